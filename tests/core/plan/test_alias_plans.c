/* Alias: mistakes that are noticed, windows of other ranks, fp8 blocks, digests, sets of equal ranks, and memory that is out.
 * ctest: timeout=600 */
#include "plan/alias.h"

#include "report/equal_ranks.h"
#include "plan/pairs.h"
#include "plan/small.h"

#include "base/larger.h"
#include "test.h"

#include <inttypes.h>

static treadle_plan_base plan_base_of(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                      int64_t page, bool alias) {
  const treadle_plan_base_options options = {.page_bytes = page, .alias = alias, .small_pages = true};
  treadle_plan_base plan_base;
  assert_ok(treadle_plan_base_create(from, to, rank, &options, &plan_base));
  return plan_base;
}

/* ---- Mistakes ---- */

static const small_config small = {
    .type = "qwen2", .V = 512, .H = 64, .L = 3, .nh = 8, .ng = 4, .hd = 8, .I = 128};

static treadle_status make(const treadle_layout *from, const treadle_layout *to, int64_t rank, bool keep,
                           treadle_plan **plan_p) {
  const treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options),
                                        .page_bytes = 4096,
                                        .cap_bytes = 1 << 20,
                                        .alias = true,
                                        .keep_params = keep};
  return treadle_plan_create(from, to, rank, &options, plan_p);
}

static void wrong_pages(void **state) {
  (void)state;
  treadle_model *model = small_model(&small);
  treadle_layout *from, *to;
  treadle_plan *plan;
  uint64_t sum = 0;
  int64_t bytes = 0;
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 2, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 2, NULL, &to));
  assert_ok(make(from, to, 1, false, &plan));
  const treadle_arrangement *a = &plan->arrangement;
  assert_true(a->pages > 2);
  assert_ok(treadle_alias_mark(plan, false, plan->from_page, plan->to_page, &sum, &bytes));
  assert_int_equal(sum, treadle_alias_coverage(a, false));
  assert_int_equal(bytes, a->pages * 4096);
  int64_t y = a->runs[0].to / 4096;
  plan->to_page[y]++;
  assert_fails(TREADLE_DIFFERENT, "lies on page",
               treadle_alias_mark(plan, false, plan->from_page, plan->to_page, &sum, &bytes));
  assert_fails(TREADLE_DIFFERENT, "rank 1",
               treadle_alias_mark(plan, true, plan->from_page, plan->to_page, &sum, &bytes));
  plan->to_page[y]--;
  plan->from_page[a->from_of[y]]++;
  assert_fails(TREADLE_DIFFERENT, "lies on page",
               treadle_alias_mark(plan, true, plan->from_page, plan->to_page, &sum, &bytes));
  assert_int_equal(bytes, a->pages * 4096);
  treadle_plan_destroy(plan);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

static void wrong_places(void **state) {
  (void)state;
  treadle_model *model = small_model(&small);
  treadle_layout *from, *to;
  treadle_plan *plan, *other;
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 4, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=4", 4, NULL, &to));
  assert_ok(make(from, to, 0, false, &plan));
  assert_ok(make(from, to, 1, false, &other));
  int32_t count = other->arrangement.storage_count;
  int64_t shift[200] = {0};
  assert_in_range(count, 2, 200);
  assert_refused("has not said", treadle_plan_check_placed(plan));
  assert_refused("no peer", treadle_plan_place_peers(plan, 0, shift, count, other->to_pages));
  assert_refused("no peer", treadle_plan_place_peers(plan, 4, shift, count, other->to_pages));
  assert_refused("and has", treadle_plan_place_peers(plan, 1, shift, count - 1, other->to_pages));
  shift[1] = 32;
  assert_refused("no multiple of 64", treadle_plan_place_peers(plan, 1, shift, count, other->to_pages));
  shift[1] = 64;
  assert_refused("two storage tensors", treadle_plan_place_peers(plan, 1, shift, count, other->to_pages));
  shift[1] = 1 << 30;
  assert_refused("of a window of", treadle_plan_place_peers(plan, 1, shift, count, other->to_pages));
  shift[1] = -(1 << 30);
  assert_refused("of a window of", treadle_plan_place_peers(plan, 1, shift, count, other->to_pages));
  shift[1] = 0;
  for (int64_t peer = 1; peer < 4; peer++)
    assert_ok(treadle_plan_place_peers(plan, peer, shift, count, other->to_pages));
  assert_refused("placed already", treadle_plan_place_peers(plan, 1, shift, count, other->to_pages));
  assert_ok(treadle_plan_check_placed(plan));
  treadle_plan_destroy(plan);
  treadle_plan_destroy(other);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

/* ---- fp8 blocks: the same block rows as without alias, at the places of the arranged windows ---- */

static treadle_plan *plan_on(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                             bool alias) {
  treadle_plan_base plan_base = plan_base_of(from, to, rank, 128, alias);
  treadle_plan *plan;
  assert_ok(treadle_plan_make_on(&plan_base, 20, 1 << 20, &plan));
  treadle_plan_base_release(&plan_base);
  return plan;
}

/* Where what a block row or an op of rank 0 reads lies, by whose window it is. */
static int64_t read_at(treadle_plan *const *plans, bool back, bool twin, int32_t source, int64_t at) {
  if (twin) return back ? at : treadle_plan_place(&plans[0]->arrangement, at);
  return back ? treadle_plan_place(&plans[source]->arrangement, at) : at;
}

static int64_t compare_block_rows(treadle_plan *const *plans, const treadle_plan *plain, bool back) {
  const treadle_direction *with = back ? &plans[0]->back : &plans[0]->forward;
  const treadle_direction *without = back ? &plain->back : &plain->forward;
  const treadle_arrangement *own = &plans[0]->arrangement;
  int64_t moved = 0;
  assert_int_equal(with->block_rows.count, without->block_rows.count);
  for (size_t i = 0; i < with->block_rows.count; i++) {
    const treadle_block_row *a = &with->block_rows.items[i], *b = &without->block_rows.items[i];
    const treadle_block_row_part *part = with->block_row_parts.items + a->part_first;
    const treadle_block_row_part *other = without->block_row_parts.items + b->part_first;
    int64_t codes = b->codes, scales = b->scales;
    assert_int_equal(a->parts, b->parts);
    if (!a->quantises) {
      codes = read_at(plans, back, a->twin, part->op.source, codes);
      scales = read_at(plans, back, a->twin, part->op.source, scales);
    } else if (!back) {
      codes = treadle_plan_place(own, codes);
      scales = treadle_plan_place(own, scales);
    }
    assert_int_equal(a->codes, codes);
    assert_int_equal(a->scales, scales);
    moved += a->codes != b->codes;
    for (int64_t k = 0; k < a->parts; k++) {
      const treadle_op *x = &part[k].op, *y = &other[k].op;
      int64_t to = a->quantises || back ? y->to : treadle_plan_place(own, y->to);
      int64_t from = a->quantises ? read_at(plans, back, y->twin, y->source, y->from) : y->from;
      assert_int_equal(x->from, from);
      assert_int_equal(x->to, to);
      moved += x->from != y->from || x->to != y->to;
    }
  }
  return moved;
}

static void fp8_blocks(void **state) {
  (void)state;
  enum { RANKS = 4 };
  static const small_config quantised = {
      .type = "qwen3_moe",
      .V = 80,
      .H = 64,
      .L = 4,
      .nh = 8,
      .ng = 4,
      .hd = 16,
      .I = 64,
      .more = "\"num_experts\": 4, \"moe_intermediate_size\": 48, \"decoder_sparse_step\": 1, "
              "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [16, 16]}"};
  static const char *const texts[][2] = {
      {"megatron:tp=2,ep=2,etp=1,dtype=bf16", "vllm:tp=2,dp=2,ep=on,dtype=fp8"},
      {"hf:dtype=fp8", "vllm:tp=2,ep=on,dtype=bf16"},
      {"vllm:tp=4,ep=on,dtype=fp8", "megatron:tp=2,pp=2,dtype=bf16"},
  };
  treadle_model *model = small_model(&quantised);
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    treadle_layout *from, *to;
    treadle_plan *plans[RANKS], *plain;
    assert_ok(treadle_layout_create(model, texts[i][0], RANKS, NULL, &from));
    assert_ok(treadle_layout_create(model, texts[i][1], RANKS, NULL, &to));
    for (int64_t r = 0; r < RANKS; r++) plans[r] = plan_on(from, to, r, true);
    plain = plan_on(from, to, 0, false);
    for (int64_t peer = 1; peer < RANKS; peer++) {
      const treadle_arrangement *a = &plans[peer]->arrangement;
      int64_t *shift = calloc((size_t)a->storage_count + 1, sizeof *shift);
      assert_non_null(shift);
      if (a->shift) memcpy(shift, a->shift, (size_t)a->storage_count * sizeof *shift);
      assert_ok(treadle_plan_place_peers(plans[0], peer, shift, a->storage_count, plans[peer]->to_pages));
      free(shift);
    }
    int64_t moved = compare_block_rows(plans, plain, false) + compare_block_rows(plans, plain, true);
    print_message("'%s' to '%s': %" PRId64 " pages aliased, %" PRId64 " bands or parts moved\n",
                  texts[i][0], texts[i][1], plans[0]->arrangement.pages, moved);
    assert_true(moved > 0);
    for (int64_t r = 0; r < RANKS; r++) treadle_plan_destroy(plans[r]);
    treadle_plan_destroy(plain);
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
  }
  treadle_model_close(model);
}

/* ---- Digests, sets, memory ---- */

static void options_count(void **state) {
  (void)state;
  treadle_model *model = small_model(&small);
  treadle_layout *from, *to;
  uint64_t digest[4];
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 2, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 2, NULL, &to));
  for (int i = 0; i < 4; i++) {
    treadle_plan *plan;
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    treadle_storage_info moved = TREADLE_INIT(treadle_storage_info),
                         plain = TREADLE_INIT(treadle_storage_info);
    const treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options),
                                          .page_bytes = 4096,
                                          .cap_bytes = 1 << 20,
                                          .alias = i & 1,
                                          .keep_params = i & 2};
    assert_ok(treadle_plan_create(from, to, 0, &options, &plan));
    treadle_plan_get_info(plan, &info);
    digest[i] = info.digest;
    for (int k = 0; k < i; k++) assert_true(digest[k] != digest[i]);
    assert_true(i & 1 ? info.aliased_bytes > 0 : info.aliased_bytes == 0);
    assert_int_equal(info.peak_bound_bytes,
                     (i & 2 ? info.from_bytes + info.to_bytes
                            : (size_t)treadle_larger((int64_t)info.from_bytes, (int64_t)info.to_bytes)) +
                         info.cap_bytes);
    if (i & 2) assert_int_equal(plan->back.ops.count, 0);
    for (int32_t s = 0; s < treadle_layout_storage_count(to, 0); s++) {
      assert_ok(treadle_plan_storage(plan, s, &moved));
      assert_ok(treadle_layout_storage(to, 0, s, &plain));
      assert_string_equal(moved.name, plain.name);
      if (!(i & 1)) assert_int_equal(moved.offset_bytes, plain.offset_bytes);
    }
    treadle_plan_destroy(plan);
  }
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

static bool same_figures(const treadle_plan_info *a, const treadle_plan_info *b) {
  return a->from_bytes == b->from_bytes && a->to_bytes == b->to_bytes && a->moved_bytes == b->moved_bytes &&
         a->lower_bound_bytes == b->lower_bound_bytes && a->resident_bytes == b->resident_bytes &&
         a->back_moved_bytes == b->back_moved_bytes &&
         a->back_lower_bound_bytes == b->back_lower_bound_bytes && a->peak_bytes == b->peak_bytes &&
         a->padding_bytes == b->padding_bytes && a->infer_bytes == b->infer_bytes &&
         a->copied_bytes == b->copied_bytes && a->aliased_bytes == b->aliased_bytes;
}

/* Every rank has the figures of the one that stands for its set, which were found with what is known of sets before. The
 * result is how many sets alias nothing and have their pages from another set. */
static int check_kinds(const treadle_layout *from, const treadle_layout *to, int64_t page,
                       const char *what) {
  treadle_equal_ranks equal_ranks;
  int taken_over = 0;
  assert_ok(treadle_equal_ranks_create_paired(from, to, &equal_ranks));
  treadle_plan_info *infos = calloc((size_t)equal_ranks.count, sizeof *infos);
  treadle_plan_base *plan_bases = calloc((size_t)equal_ranks.count, sizeof *plan_bases);
  for (int32_t k = 0; k < equal_ranks.count; k++) {
    int32_t like = equal_ranks.like[k];
    assert_in_range(like, 0, k);
    const treadle_plan_base_options options = {.page_bytes = page, .alias = true, .small_pages = true};
    assert_ok(treadle_plan_base_create(from, to, equal_ranks.first[k], &options, &plan_bases[k]));
    for (int again = 0; again < 2; again++) /* with other waves first */
      assert_ok(treadle_plan_measure_on(&plan_bases[k], again ? 50 : 7, page * 40, NULL,
                                        like < k ? &infos[like] : NULL, &infos[k]));
    taken_over += like < k && plan_bases[k].count == 1;
  }
  for (int64_t r = 0; r < from->ranks; r++) {
    treadle_plan_base plan_base = plan_base_of(from, to, r, page, true);
    const treadle_plan_info *like = &infos[equal_ranks.of[r]];
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    assert_ok(treadle_plan_measure_on(&plan_base, 50, page * 40, NULL, NULL, &info));
    if (!same_figures(&info, like) ||
        plan_base.cap_min_bytes != plan_bases[equal_ranks.of[r]].cap_min_bytes)
      fail_msg("%s, pages of %" PRId64 ": rank %" PRId64 " is not as rank %" PRId64
               ": aliased %zu and %zu, peak %zu and %zu, cap_min %" PRId64 " and %" PRId64,
               what, page, r, equal_ranks.first[equal_ranks.of[r]], info.aliased_bytes, like->aliased_bytes,
               info.peak_bytes, like->peak_bytes, plan_base.cap_min_bytes,
               plan_bases[equal_ranks.of[r]].cap_min_bytes);
    treadle_plan_base_release(&plan_base);
  }
  for (int32_t k = 0; k < equal_ranks.count; k++) treadle_plan_base_release(&plan_bases[k]);
  treadle_equal_ranks_release(&equal_ranks);
  free(infos);
  free(plan_bases);
  return taken_over;
}

/* Sharded data parallel: of hardly any rank do both windows hold the same page, and where they might is other for each. */
static void kinds_of_flat_ranks(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"zero3", "vllm:tp=2"},  {"zero3:dtype=bf16", "vllm:tp=4"}, {"fsdp2", "vllm:tp=2"},
      {"fsdp", "sglang:tp=2"}, {"zero1:dtype=bf16", "vllm:tp=2"}, {"vllm:tp=4", "zero3"}};
  enum { RANKS = 16 };
  treadle_model *model = small_model(&small);
  int taken_over = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    for (int64_t page = 64; page <= 4096; page *= 8) {
      treadle_layout *from, *to;
      assert_ok(treadle_layout_create(model, texts[i][0], RANKS, NULL, &from));
      assert_ok(treadle_layout_create(model, texts[i][1], RANKS, NULL, &to));
      taken_over += check_kinds(from, to, page, texts[i][0]);
      treadle_layout_destroy(from);
      treadle_layout_destroy(to);
    }
  print_message("%d kinds took their pages from others\n", taken_over);
  assert_true(taken_over > 20);
  treadle_model_close(model);
}

static void kinds_of_ranks(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(150); seed++) {
    pair p;
    pair_make(&p, seed * 17 + 3, 20000);
    check_kinds(p.from.layout, p.to.layout, INT64_C(64) << seed % 7, pair_describe(&p));
    pair_release(&p);
  }
}

static treadle_status make_once(const treadle_layout *from, const treadle_layout *to, bool keep) {
  treadle_plan *plan = NULL;
  treadle_equal_ranks equal_ranks = {0};
  treadle_status status = make(from, to, 0, keep, &plan);
  if (status == TREADLE_OK && plan->arrangement.storage_count > 0) {
    const int64_t shift[200] = {0};
    status = treadle_plan_place_peers(plan, 1, shift, plan->arrangement.storage_count, plan->to_pages);
  }
  if (status == TREADLE_OK) status = treadle_equal_ranks_create_paired(from, to, &equal_ranks);
  treadle_equal_ranks_release(&equal_ranks);
  treadle_plan_destroy(plan);
  return status;
}

static void failing_allocations(void **state) {
  (void)state;
  treadle_model *model = small_model(&small);
  treadle_layout *from, *to;
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 2, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 2, NULL, &to));
  TEST_EACH_ALLOCATION(make_once(from, to, false));
  TEST_EACH_ALLOCATION(make_once(from, to, true));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_pages),        cmocka_unit_test(wrong_places),
      cmocka_unit_test(fp8_blocks),         cmocka_unit_test(options_count),
      cmocka_unit_test(kinds_of_ranks),     cmocka_unit_test(kinds_of_flat_ranks),
      cmocka_unit_test(failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

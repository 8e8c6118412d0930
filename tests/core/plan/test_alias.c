/* Alias: plans whose windows share pages that hold the same, played byte by byte and compared with a direct cut of the
 * whole tensors, both ways, beside the same plans without alias. ctest: optimise timeout=600 */
#include "plan/alias.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/larger.h"
#include "base/random.h"
#include "plan/pairs.h"
#include "plan/small.h"

#include "test.h"

#include <inttypes.h>

/* ---- A world: the plans of all ranks, and their memory ---- */

typedef struct member {
  treadle_plan *plan;
  uint8_t *pages;
  uint8_t *written;      /* by byte of the window that is written */
  int32_t arrived, done; /* waves: all but relays and twins; and these */
} member;

typedef struct world {
  const treadle_layout *from, *to;
  int64_t ranks, page;
  bool keep;
  const char *what;
  treadle_nodes nodes; /* zeroed: there is one */
  member *members;
  treadle_random random;
  int64_t aliased, infer; /* bytes, of all ranks */
} world;

static void fail_with(const world *w, const char *call) {
  fail_msg("%s, pages of %" PRId64 "%s: %s: %s", w->what, w->page, w->keep ? ", params kept" : "", call,
           treadle_error_message());
}

#define MUST(w, call)                                                                                      \
  do {                                                                                                     \
    if ((call) != TREADLE_OK) fail_with(w, #call);                                                         \
  } while (0)

static treadle_plan_base plan_base_of(const world *w, int64_t rank, bool alias) {
  const treadle_plan_base_options options = {.page_bytes = w->page,
                                             .alias = alias,
                                             .keep_params = w->keep,
                                             .small_pages = true,
                                             .nodes = w->nodes.count ? &w->nodes : NULL};
  treadle_plan_base plan_base;
  MUST(w, treadle_plan_base_create(w->from, w->to, rank, &options, &plan_base));
  return plan_base;
}

/* Plans as a switch makes them: the largest cap_min, its waves, and the most waves where one is over its bound. */
static void make_plans(world *w) {
  treadle_plan_base *plan_bases = calloc((size_t)w->ranks, sizeof *plan_bases);
  int64_t cap = 0;
  assert_non_null(plan_bases);
  for (int64_t r = 0; r < w->ranks; r++) {
    treadle_plan_base plain = plan_base_of(w, r, false);
    plan_bases[r] = plan_base_of(w, r, true);
    if (plan_bases[r].cap_min_bytes > plain.cap_min_bytes)
      fail_msg("%s: rank %" PRId64 ": cap_min is %" PRId64 " with alias and %" PRId64 " without", w->what,
               r, plan_bases[r].cap_min_bytes, plain.cap_min_bytes);
    cap = treadle_larger(cap, plan_bases[r].cap_min_bytes);
    treadle_plan_base_release(&plain);
  }
  if (treadle_random_below(&w->random, 2)) cap += w->page * treadle_random_below(&w->random, 8);
  int32_t waves = treadle_plan_waves(w->from, w->to, w->page, cap);
  for (bool over = true; over;) {
    over = false;
    for (int64_t r = 0; r < w->ranks; r++) {
      treadle_plan *plan;
      MUST(w, treadle_plan_make_on(&plan_bases[r], waves, cap, &plan));
      treadle_plan_destroy(w->members[r].plan);
      w->members[r].plan = plan;
      if (plan->physical_pages * w->page > treadle_plan_bound(plan)) over = true;
    }
    if (over && waves == TREADLE_MAX_WAVES)
      fail_msg("%s, pages of %" PRId64 ": the peak is over its bound", w->what, w->page);
    waves = TREADLE_MAX_WAVES;
  }
  for (int64_t r = 0; r < w->ranks; r++) treadle_plan_base_release(&plan_bases[r]);
  free(plan_bases);
}

/* ---- Values ---- */

/* Stored as it is wherever both layouts have one type; else few bits, which no type rounds. */
static void value_of(const world *w, const treadle_piece *piece, int64_t index, void *value) {
  const treadle_tensor *tensor = &w->from->model->tensors[piece->tensor];
  uint64_t hash = treadle_hash_more((uint64_t)piece->tensor, (uint64_t)index);
  bool same = treadle_layout_dtype(w->from, tensor) == treadle_layout_dtype(w->to, tensor) &&
              treadle_layout_add(w->from, piece->tensor) == treadle_layout_add(w->to, piece->tensor);
  float few = 0.5f + (float)(hash % 96) / 64 + (float)piece->add;
  if (same)
    memcpy(value, &hash, treadle_dtype_bytes(piece->dtype));
  else
    treadle_dtype_convert(value, piece->dtype, &few, TREADLE_FP32, 1);
}

static uint8_t *byte_at(const world *w, int64_t rank, bool to, int64_t at) {
  const member *m = &w->members[rank];
  const int32_t *table = to ? m->plan->to_page : m->plan->from_page;
  return m->pages + (int64_t)table[at / w->page] * w->page + at % w->page;
}

typedef void (*visit)(world *w, int64_t rank, bool to, int64_t at, const treadle_piece *piece,
                      const void *value);

/* Hands out every element of a rank's window, at its place. */
static void walk_rank(world *w, int64_t rank, bool to, visit each) {
  const treadle_layout *layout = to ? w->to : w->from;
  treadle_pieces pieces = {0};
  MUST(w, treadle_layout_pieces(layout, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    const int64_t zero = 0;
    int64_t begin =
        to ? treadle_plan_place(&w->members[rank].plan->arrangement, piece->offset) : piece->offset;
    if (piece->tensor < 0) {
      for (int64_t e = 0; e < piece->box.size[0]; e++)
        each(w, rank, to, begin + e * piece->stride[0], piece, &zero);
      continue;
    }
    const treadle_tensor *tensor = &layout->model->tensors[piece->tensor];
    int64_t elems = treadle_box_elems(&piece->box);
    for (int64_t e = 0; e < elems; e++) {
      int64_t rest = e, index = 0, at = begin, weight = 1;
      for (int a = tensor->naxes - 1; a >= 0; a--) {
        int64_t inside = rest % piece->box.size[a];
        rest /= piece->box.size[a];
        index += (piece->box.start[a] + inside) * weight;
        at += inside * piece->stride[a];
        weight *= tensor->axis[a];
      }
      uint64_t value = 0;
      value_of(w, piece, index, &value);
      each(w, rank, to, at, piece, &value);
    }
  }
  treadle_array_release(&pieces);
}

static void walk_all(world *w, bool to, visit each) {
  for (int64_t r = 0; r < w->ranks; r++) walk_rank(w, r, to, each);
}

static void store(world *w, int64_t rank, bool to, int64_t at, const treadle_piece *piece,
                  const void *value) {
  for (int64_t i = 0; i < (int64_t)treadle_dtype_bytes(piece->dtype); i++)
    *byte_at(w, rank, to, at + i) = ((const uint8_t *)value)[i];
}

static void compare(world *w, int64_t rank, bool to, int64_t at, const treadle_piece *piece,
                    const void *value) {
  const member *m = &w->members[rank];
  const int32_t *aliased = to ? m->plan->arrangement.from_of : m->plan->arrangement.to_of;
  for (int64_t i = at; i < at + (int64_t)treadle_dtype_bytes(piece->dtype); i++) {
    if (*byte_at(w, rank, to, i) != ((const uint8_t *)value)[i - at])
      fail_msg("%s, pages of %" PRId64 ": rank %" PRId64 ": byte %" PRId64 " of the %s-window is wrong",
               w->what, w->page, rank, i, to ? "to" : "from");
    bool shared = aliased && aliased[i / w->page] >= 0;
    int expected = shared || (!to && w->keep) ? 0 : 1;
    if (m->written[i] != expected)
      fail_msg("%s, pages of %" PRId64 ": rank %" PRId64 ": byte %" PRId64 " of the %s-window%s is written "
               "%d times",
               w->what, w->page, rank, i, to ? "to" : "from", shared ? ", aliased," : "", m->written[i]);
  }
}

/* ---- Playing ---- */

static void play_op(world *w, int64_t rank, const treadle_op *op, bool back) {
  size_t from_size = treadle_dtype_bytes((treadle_dtype)op->from_dtype);
  size_t to_size = treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  for (int64_t e = 0; e < op->elems; e++) {
    int64_t rest = e, from = op->from, to = op->to;
    uint64_t value = 0, made = 0;
    for (int d = op->ndim - 1; d >= 0; d--) {
      from += rest % op->size[d] * op->from_stride[d];
      to += rest % op->size[d] * op->to_stride[d];
      rest /= op->size[d];
    }
    if (op->source >= 0) {
      bool side = op->twin ? !back : back; /* which window is read */
      for (size_t i = 0; i < from_size; i++)
        ((uint8_t *)&value)[i] = *byte_at(w, op->source, side, from + (int64_t)i);
      float wide;
      treadle_dtype_convert(&wide, TREADLE_FP32, &value, (treadle_dtype)op->from_dtype, 1);
      wide += (float)op->add;
      if (op->from_dtype == op->to_dtype && !op->add)
        made = value;
      else
        treadle_dtype_convert(&made, (treadle_dtype)op->to_dtype, &wide, TREADLE_FP32, 1);
    }
    for (size_t i = 0; i < to_size; i++) {
      *byte_at(w, rank, !back, to + (int64_t)i) = ((uint8_t *)&made)[i];
      w->members[rank].written[to + (int64_t)i]++;
    }
  }
}

static const treadle_direction *direction_of(const world *w, int64_t rank, bool back) {
  const treadle_plan *plan = w->members[rank].plan;
  return back ? &plan->back : &plan->forward;
}

/* What ops and the explicit mark have covered is what the plan says. */
static void check_coverage(world *w, int64_t rank, bool back) {
  const treadle_plan *plan = w->members[rank].plan;
  const treadle_direction *direction = direction_of(w, rank, back);
  uint64_t sum = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    sum += treadle_op_mark(op);
    bytes += op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  }
  MUST(w, treadle_alias_mark(plan, back, plan->from_page, plan->to_page, &sum, &bytes));
  if (sum != direction->coverage || bytes != direction->written_bytes)
    fail_msg("%s: rank %" PRId64 ": coverage of %" PRId64 " bytes, and %" PRId64 " are to be written",
             w->what, rank, bytes, direction->written_bytes);
}

/* May a rank go on with its next wave, or with the relays and twins of the one at hand? */
static bool may_go_on(const world *w, int64_t rank, bool back, int32_t slowest) {
  const member *m = &w->members[rank];
  const treadle_direction *direction = direction_of(w, rank, back);
  if (m->arrived == m->done) return m->done < m->plan->waves - 1 && direction->need[m->done + 1] <= slowest;
  for (int32_t i = direction->wave_first[m->arrived]; i < direction->wave_first[m->arrived + 1]; i++) {
    const treadle_op *op = &direction->ops.items[i];
    if (op->twin && op->source != rank && w->members[op->source].arrived < m->arrived) return false;
  }
  return true;
}

static void play(world *w, bool back) {
  int32_t waves = w->members[0].plan->waves, slowest = -1;
  for (int64_t r = 0; r < w->ranks; r++) {
    const treadle_plan *plan = w->members[r].plan;
    w->members[r].arrived = w->members[r].done = -1;
    memset(w->members[r].written, 0, (size_t)(treadle_larger(plan->from_pages, plan->to_pages) * w->page));
  }
  while (slowest < waves - 1) {
    int64_t r = treadle_random_below(&w->random, w->ranks);
    while (!may_go_on(w, r, back, slowest)) r = (r + 1) % w->ranks; /* the slowest can always go on */
    member *m = &w->members[r];
    const treadle_direction *direction = direction_of(w, r, back);
    bool twins = m->arrived > m->done;
    int32_t wave = m->done + 1;
    for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++)
      if (direction->ops.items[i].twin == twins) play_op(w, r, &direction->ops.items[i], back);
    *(twins ? &m->done : &m->arrived) = wave;
    slowest = wave;
    for (int64_t s = 0; s < w->ranks; s++)
      if (w->members[s].done < slowest) slowest = w->members[s].done;
  }
  for (int64_t r = 0; r < w->ranks; r++) check_coverage(w, r, back);
}

/* Physical pages that the window does not lie on are overwritten with noise. */
static void spoil_others(world *w, bool to) {
  for (int64_t r = 0; r < w->ranks; r++) {
    const treadle_plan *plan = w->members[r].plan;
    const int32_t *table = to ? plan->to_page : plan->from_page;
    int64_t count = to ? plan->to_pages : plan->from_pages;
    uint8_t *used = calloc((size_t)plan->physical_pages + 1, 1);
    assert_non_null(used);
    for (int64_t i = 0; i < count; i++) used[table[i]] = 1;
    for (int64_t i = 0; i < plan->physical_pages; i++)
      if (!used[i]) memset(w->members[r].pages + i * w->page, 0xa5, (size_t)w->page);
    free(used);
  }
}

static void tell_places(world *w) {
  for (int64_t r = 0; r < w->ranks; r++)
    for (int64_t peer = 0; peer < w->ranks; peer++) {
      const treadle_plan *plan = w->members[peer].plan;
      const treadle_arrangement *a = &plan->arrangement;
      int64_t *shift = calloc((size_t)a->storage_count + 1, sizeof *shift);
      assert_non_null(shift);
      if (a->shift) memcpy(shift, a->shift, (size_t)a->storage_count * sizeof *shift);
      if (peer != r)
        MUST(w,
             treadle_plan_place_peers(w->members[r].plan, peer, shift, a->storage_count, plan->to_pages));
      free(shift);
    }
}

static void check_tables(const world *w, int64_t rank) {
  const treadle_plan *plan = w->members[rank].plan;
  const treadle_arrangement *a = &plan->arrangement;
  int64_t aliased = 0;
  int32_t *held = calloc((size_t)plan->physical_pages + 1, sizeof *held);
  assert_non_null(held);
  for (int64_t i = 0; i < plan->from_pages; i++) held[plan->from_page[i]]++;
  for (int64_t i = 0; i < plan->physical_pages; i++) assert_in_range(held[i], 0, 1);
  memset(held, 0, (size_t)plan->physical_pages * sizeof *held);
  for (int64_t i = 0; i < plan->to_pages; i++) {
    held[plan->to_page[i]]++;
    if (a->from_of && a->from_of[i] >= 0) {
      assert_int_equal(plan->to_page[i], plan->from_page[a->from_of[i]]);
      assert_int_equal(a->to_of[a->from_of[i]], i);
      aliased++;
    } else if (w->keep) {
      assert_true(plan->to_page[i] >= plan->from_pages);
    }
  }
  for (int64_t i = 0; i < plan->physical_pages; i++) assert_in_range(held[i], 0, 1);
  assert_int_equal(aliased, a->pages);
  free(held);
}

/* Two nodes, whose ranks come in any order. */
static void draw_nodes(world *w) {
  int32_t of[64];
  for (int64_t r = 0; r < w->ranks; r++) of[r] = (int32_t)treadle_random_below(&w->random, 2);
  assert_ok(treadle_nodes_make(of, w->ranks, &w->nodes));
}

/* Plays a pair in one size of pages, over nodes every other time; returns the aliased bytes. */
static int64_t play_pair(const treadle_layout *from, const treadle_layout *to, int64_t page, bool keep,
                         uint64_t seed, const char *what) {
  world w = {.from = from,
             .to = to,
             .ranks = from->ranks,
             .page = page,
             .keep = keep,
             .what = what,
             .random = {seed}};
  w.members = calloc((size_t)w.ranks, sizeof *w.members);
  assert_non_null(w.members);
  if (seed / 2 % 2 == 1) draw_nodes(&w);
  make_plans(&w);
  for (int64_t r = 0; r < w.ranks; r++) {
    const treadle_plan *plan = w.members[r].plan;
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    treadle_plan_get_info(plan, &info);
    w.members[r].pages = malloc((size_t)(plan->physical_pages * page) + 1);
    w.members[r].written = malloc((size_t)(treadle_larger(plan->from_pages, plan->to_pages) * page) + 1);
    assert_true(w.members[r].pages && w.members[r].written);
    memset(w.members[r].pages, 0xa5, (size_t)(plan->physical_pages * page));
    assert_int_equal(plan->digest, w.members[0].plan->digest);
    assert_int_equal(info.moved_bytes, info.lower_bound_bytes);
    assert_int_equal(info.infer_bytes,
                     info.copied_bytes + info.aliased_bytes + (size_t)plan->forward.fill_bytes);
    assert_true(info.padding_bytes == 0 || info.padding_bytes < info.aliased_bytes);
    check_tables(&w, r);
    w.aliased += (int64_t)info.aliased_bytes;
  }
  tell_places(&w);
  for (int64_t r = 0; r < w.ranks; r++) MUST(&w, treadle_plan_check_placed(w.members[r].plan));
  walk_all(&w, false, store);
  play(&w, false);
  walk_all(&w, true, compare);
  if (!keep) spoil_others(&w, true);
  play(&w, true);
  walk_all(&w, false, compare);
  for (int64_t r = 0; r < w.ranks; r++) {
    treadle_plan_destroy(w.members[r].plan);
    free(w.members[r].pages);
    free(w.members[r].written);
  }
  free(w.members);
  treadle_nodes_release(&w.nodes);
  return w.aliased;
}

/* Do values come back, few bits or not? Those of one type do. */
static bool comes_back(const treadle_layout *from, const treadle_layout *to) {
  for (int32_t t = 0; t < from->model->tensor_count; t++)
    if (!treadle_dtype_lossless(treadle_layout_dtype(from, &from->model->tensors[t]),
                                treadle_layout_dtype(to, &to->model->tensors[t])))
      return false;
  return true;
}

/* ---- Random pairs ---- */

static void random_pairs(void **state) {
  (void)state;
  static const int64_t sizes[] = {64, 128, 256, 512, 1024, 2048, 4096};
  int played = 0, aliased = 0;
  for (uint64_t seed = 1; seed <= test_seeds(400); seed++) {
    pair p;
    pair_make(&p, seed * 31, 20000);
    treadle_random random = {seed};
    int64_t page = sizes[treadle_random_below(&random, TEST_COUNT(sizes))];
    bool blocks = p.from.layout->fp8 ||
                  p.to.layout->fp8; /* this interpreter plays ops; test_threads_switch has both */
    if (!blocks && comes_back(p.from.layout, p.to.layout)) {
      played++;
      aliased += play_pair(p.from.layout, p.to.layout, page, seed % 4 == 0, seed, pair_describe(&p)) > 0;
    }
    pair_release(&p);
  }
  print_message("%d pairs, %d with aliased pages\n", played, aliased);
  int of_400 = (int)test_seeds(400);
  assert_true(played * 400 > 150 * of_400 && aliased * 400 > 50 * of_400);
}

/* ---- Pairs whose shares are known ---- */

static const char moe[] = "\"num_experts\": 16, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
                          "\"decoder_sparse_step\": 1, \"norm_topk_prob\": true, \"mlp_only_layers\": []";

static void known_pairs(void **state) {
  (void)state;
  static const small_config dense = {
      .type = "qwen2", .V = 512, .H = 64, .L = 3, .nh = 8, .ng = 4, .hd = 8, .I = 128};
  static const small_config experts = {
      .type = "qwen3_moe", .V = 256, .H = 64, .L = 3, .nh = 8, .ng = 4, .hd = 8, .I = 64, .more = moe};
  static const struct {
    const small_config *config;
    const char *from, *to;
    int64_t ranks;
    double share; /* of the infer bytes that is aliased, at least */
  } rows[] = {
      {&dense, "megatron:tp=4", "vllm:tp=4", 4, 0.9},
      {&dense, "megatron:tp=2", "vllm:tp=2", 4, 0.6},
      {&dense, "megatron:tp=2", "vllm:tp=4", 4, 0.15},
      {&dense, "megatron:tp=2,pp=3", "sglang:tp=2", 6, 0.1},
      {&dense, "megatron:tp=1,pp=3", "vllm:tp=1", 3, 0.2},
      {&dense, "fsdp2:dp=2", "vllm:tp=2", 2, 0.1},
      {&dense, "hf", "hf", 2, 0.95},
      {&experts, "megatron:tp=1,ep=4", "vllm:tp=1,dp=4,ep=on", 4, 0.6},
      {&experts, "megatron:tp=4,ep=4,etp=1", "vllm:tp=4,ep=on", 4, 0.8},
      {&experts, "megatron:tp=1,ep=4,experts=sequential", "vllm:tp=1,dp=4,ep=on", 4, 0.3},
  };
  static const int64_t sizes[] = {256, 1024, 4096};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_model *model = small_model(rows[i].config);
    treadle_layout *from, *to;
    assert_ok(treadle_layout_create(model, rows[i].from, rows[i].ranks, NULL, &from));
    assert_ok(treadle_layout_create(model, rows[i].to, rows[i].ranks, NULL, &to));
    for (size_t k = 0; k < TEST_COUNT(sizes); k++) {
      int64_t infer = 0, aliased = play_pair(from, to, sizes[k], k == 1, 3 * i + k, rows[i].to);
      for (int64_t r = 0; r < rows[i].ranks; r++) infer += (int64_t)treadle_layout_window_bytes(to, r);
      double share = (double)aliased / (double)infer;
      print_message("'%s' to '%s', pages of %" PRId64 ": %.3f aliased\n", rows[i].from, rows[i].to,
                    sizes[k], share);
      if (sizes[k] < 4096 && share < rows[i].share) fail_msg("less than %.3f", rows[i].share);
    }
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
    treadle_model_close(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs), cmocka_unit_test(known_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Owners: the ranks that on= names, against a table of all ranks; and layouts that only some ranks hold. */
#include "test.h"

#include "base/random.h"
#include "layout/layout.h"
#include "layout/owners.h"
#include "plan/plan.h"
#include "plan/small.h"

#include <inttypes.h>

static const small_config config = {
    .type = "qwen2", .V = 300, .H = 48, .L = 8, .nh = 12, .ng = 4, .hd = 4, .I = 24};

/* ---- The set ---- */

enum { RANKS = 40, TEXT = 400 };

/* Runs in any order, some of them in two. */
static int64_t draw(treadle_random *random, bool in[RANKS + 1], char text[TEXT]) {
  char runs[RANKS][16];
  int count = 0;
  int64_t owners = 0;
  text[0] = in[RANKS] = 0;
  for (int64_t r = 0; r < RANKS; r++) owners += in[r] = treadle_random_below(random, 3) > 0;
  for (int64_t r = 0; r < RANKS; r++) {
    if (!in[r]) continue;
    int64_t last = r;
    while (in[last + 1] && treadle_random_below(random, 6) > 0) last++;
    snprintf(runs[count++], sizeof runs[0], last > r ? "%" PRId64 "-%" PRId64 : "%" PRId64, r, last);
    r = last;
  }
  for (int i = 0; i < count; i++) {
    int other = (int)treadle_random_below(random, i + 1);
    char run[16];
    memcpy(run, runs[i], sizeof run);
    memcpy(runs[i], runs[other], sizeof run);
    memcpy(runs[other], run, sizeof run);
  }
  for (int i = 0; i < count; i++) {
    if (i > 0) strcat(text, ",");
    strcat(text, runs[i]);
  }
  return owners;
}

static void sets_are_as_a_table_has_them(void **state) {
  (void)state;
  treadle_random random = {4711};
  for (int i = 0; i < 2000; i++) {
    bool in[RANKS + 1];
    char text[TEXT];
    int64_t count = draw(&random, in, text), owner = 0;
    if (count == 0) continue;
    treadle_owners owners, again;
    treadle_builder normal = {0}, second = {0};
    assert_ok(treadle_owners_parse(text, RANKS, "x", &owners));
    assert_int_equal(owners.count, count);
    if (count == RANKS) assert_null(owners.runs);
    for (int64_t r = 0; r < RANKS; r++) {
      assert_int_equal(treadle_owners_find(&owners, r), in[r] ? owner : -1);
      if (in[r]) assert_int_equal(treadle_owners_rank(&owners, owner++), r);
    }
    if (owners.runs) {
      treadle_owners_print(&owners, &normal);
      assert_ok(treadle_owners_parse(normal.text, RANKS, "x", &again));
      assert_int_equal(again.run_count, owners.run_count);
      assert_memory_equal(again.runs, owners.runs, (size_t)again.run_count * sizeof *again.runs);
      for (int32_t k = 1; k < again.run_count; k++) /* as long as they can be */
        assert_true(again.runs[k].first > again.runs[k - 1].first + again.runs[k - 1].count);
      treadle_owners_print(&again, &second);
      assert_string_equal(second.text, normal.text);
      treadle_owners_release(&again);
    }
    treadle_builder_release(&normal);
    treadle_builder_release(&second);
    treadle_owners_release(&owners);
  }
}

static const struct {
  const char *on, *why;
} wrong[] = {
    {"4", "rank 4 is not one of 4"},
    {"2-4", "rank 4 is not one of 4"},
    {"3-0", "the range 3-0 ends before it begins"},
    {"\"0,0\"", "rank 0 is there twice"},
    {"\"2,0-3\"", "rank 2 is there twice"},
    {"\"0-2,1-3\"", "rank 1 is there twice"},
    {"\"\"", "on has no value"},
    {"\",\"", "'' is neither a rank nor a range"},
    {"\"0,\"", "'' is neither a rank nor a range"},
    {"\"0, 1\"", "' 1' is neither a rank nor a range"},
    {"0-", "'0-' is neither a rank nor a range"},
    {"-1", "'-1' is neither a rank nor a range"},
    {"0-1-2", "'0-1-2' is neither a rank nor a range"},
    {"all", "'all' is neither a rank nor a range"},
    {"+1", "'+1' is neither a rank nor a range"},
    {"0x1", "'0x1' is neither a rank nor a range"},
    {"99999999999999999999", "'99999999999999999999' is neither a rank nor a range"},
    {"0,on=1", "on is given twice"},
};

static void wrong_sets_are_refused(void **state) {
  (void)state;
  static const char *const types[] = {"hf", "megatron", "vllm", "sglang", "fsdp", "distopt"};
  treadle_model *model = small_model(&config);
  treadle_layout *layout;
  char text[200];
  for (size_t i = 0; i < TEST_COUNT(wrong); i++)
    for (size_t k = 0; k < TEST_COUNT(types); k++) {
      snprintf(text, sizeof text, "%s:on=%s", types[k], wrong[i].on);
      assert_refused(wrong[i].why, treadle_layout_create(model, text, 4, NULL, &layout));
      assert_null(layout);
    }
  assert_refused("the 3 ranks of on are not divisible by tp * cp * pp = 2",
                 treadle_layout_create(model, "megatron:tp=2,on=0-2", 4, NULL, &layout));
  assert_refused("dp=4, but 2 ranks leave dp=2",
                 treadle_layout_create(model, "fsdp:dp=4,on=0-1", 4, NULL, &layout));
  assert_refused("root and on both say which ranks hold it",
                 treadle_layout_create(model, "hf:root=1,on=0-2", 4, NULL, &layout));
  char *many = malloc(1 << 15);
  size_t used = (size_t)sprintf(many, "hf:on=\"0");
  for (int r = 2; r <= 2048; r += 2) used += (size_t)sprintf(many + used, ",%d", r);
  strcpy(many + used, "\"");
  assert_refused("", treadle_layout_create(model, many, 4096, NULL, &layout));
  char *last = strrchr(many, ',');
  strcpy(last, "\""); /* 1024 of them will do */
  assert_ok(treadle_layout_create(model, many, 4096, NULL, &layout));
  treadle_layout_destroy(layout);
  free(many);
  treadle_model_close(model);
}

/* ---- Layouts ---- */

static const struct {
  const char *type, *options;
  int64_t owners;
} layouts[] = {
    {"hf", "", 3},
    {"megatron", "tp=2,pp=2", 8},
    {"vllm", "tp=2,pp=2", 4},
    {"sglang", "tp=4,attn_dp=2", 4},
    {"fsdp", "replicate=2", 6},
    {"fsdp2", "tp=2", 6},
    {"zero1", "", 5},
    {"zero3", "", 5},
    {"distopt", "tp=2", 4},
};

static void same_pieces(const treadle_layout *few, int64_t owner, const treadle_layout *all, int64_t rank) {
  treadle_pieces one = {0}, two = {0};
  assert_ok(treadle_layout_pieces(few, owner, &one));
  assert_ok(treadle_layout_pieces(all, rank, &two));
  assert_int_equal(one.count, two.count);
  for (size_t i = 0; i < one.count; i++) {
    assert_int_equal(one.items[i].tensor, two.items[i].tensor);
    assert_int_equal(one.items[i].offset, two.items[i].offset);
    assert_true(treadle_box_equal(&one.items[i].box, &two.items[i].box));
  }
  treadle_array_release(&one);
  treadle_array_release(&two);
  assert_int_equal(treadle_layout_window_bytes(few, owner), treadle_layout_window_bytes(all, rank));
  assert_int_equal(treadle_layout_storage_count(few, owner), treadle_layout_storage_count(all, rank));
}

static void has_nothing(const treadle_layout *layout, int64_t rank) {
  treadle_pieces pieces = {0};
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  int64_t index;
  int32_t count;
  treadle_run *runs;
  size_t run_count;
  assert_false(treadle_layout_holds(layout, rank));
  assert_int_equal(treadle_layout_window_bytes(layout, rank), 0);
  assert_int_equal(treadle_layout_storage_count(layout, rank), 0);
  assert_ok(treadle_layout_pieces(layout, rank, &pieces));
  for (int32_t t = 0; t < layout->model->tensor_count; t++) {
    assert_ok(treadle_layout_pieces_of(layout, rank, t, &pieces));
    if (treadle_layout_forms(layout)) assert_ok(treadle_layout_bundles_of(layout, rank, t, &pieces));
  }
  assert_ok(treadle_layout_pieces_in(layout, rank, 0, &pieces));
  assert_int_equal(pieces.count, 0);
  treadle_array_release(&pieces);
  assert_non_null(treadle_layout_storages(layout, rank, &count));
  assert_int_equal(count, 0);
  assert_refused("has 0 storage tensors", treadle_layout_storage(layout, rank, 0, &info));
  assert_refused("has 0 storage tensors", treadle_layout_runs(layout, rank, 0, &runs, &run_count));
  assert_int_equal(treadle_layout_find(layout, rank, "lm_head.weight"), -1);
  if (layout->ops->mesh)
    assert_refused("does not hold it", treadle_layout_coordinate(layout, rank, "pp", &index));
}

/* The holders of every cell are those of the layout on fewer ranks. */
static void same_cells(const treadle_layout *few, const treadle_layout *all, const int64_t *rank_of,
                       int64_t owners) {
  for (int32_t t = 0; t < few->model->tensor_count; t++) {
    treadle_cells one = {0}, two = {0};
    const treadle_box whole = treadle_box_whole(&few->model->tensors[t]);
    assert_ok(treadle_layout_cells(few, t, &whole, &one));
    assert_ok(treadle_layout_cells(all, t, &whole, &two));
    assert_int_equal(one.count, two.count);
    for (size_t i = 0; i < one.count; i++) {
      int64_t found = 0;
      assert_true(treadle_box_equal(&one.items[i].box, &two.items[i].box));
      assert_int_equal(one.items[i].holders, two.items[i].holders);
      for (int64_t h = 0; h < one.items[i].holders; h++)
        assert_int_equal(rank_of[treadle_cell_rank(few, &one.items[i], h)],
                         treadle_cell_rank(all, &two.items[i], h));
      for (int64_t r = 0; r < all->ranks; r++) found += treadle_cell_find(all, &two.items[i], r) >= 0;
      int64_t wanted = 0;
      for (int64_t m = 0; m < owners; m++) wanted += treadle_cell_find(few, &one.items[i], m) >= 0;
      assert_int_equal(found, wanted);
    }
    treadle_array_release(&one);
    treadle_array_release(&two);
  }
}

static void owners_hold_it_in_order(void **state) {
  (void)state;
  enum { ALL = 16 };
  treadle_random random = {12};
  treadle_model *model = small_model(&config);
  for (size_t i = 0; i < TEST_COUNT(layouts); i++)
    for (int turn = 0; turn < 5; turn++) {
      char text[200], few_text[100];
      int64_t rank_of[ALL], owner = 0;
      bool in[ALL] = {false};
      treadle_layout *few, *all, *whole;
      for (int64_t left = layouts[i].owners; left > 0;) {
        int64_t r = treadle_random_below(&random, ALL);
        left -= !in[r];
        in[r] = true;
      }
      const char *comma = layouts[i].options[0] ? "," : "";
      snprintf(few_text, sizeof few_text, "%s%s%s", layouts[i].type, comma[0] ? ":" : "",
               layouts[i].options);
      size_t used =
          (size_t)snprintf(text, sizeof text, "%s:%s%son=\"", layouts[i].type, layouts[i].options, comma);
      for (int64_t r = ALL - 1; r >= 0; r--) /* from the last on */
        if (in[r]) used += (size_t)snprintf(text + used, sizeof text - used, "%" PRId64 ",", r);
      strcpy(text + used - 1, "\"");
      assert_ok(treadle_layout_create(model, few_text, layouts[i].owners, NULL, &few));
      assert_ok(treadle_layout_create(model, text, ALL, NULL, &all));
      assert_int_equal(treadle_layout_ranks(all), ALL);
      for (int64_t r = 0; r < ALL; r++) {
        if (!in[r]) {
          has_nothing(all, r);
          continue;
        }
        assert_true(treadle_layout_holds(all, r));
        rank_of[owner] = r;
        same_pieces(few, owner++, all, r);
      }
      same_cells(few, all, rank_of, owner);
      assert_true(few->digest != all->digest);
      if (treadle_layout_create(model, few_text, ALL, NULL, &whole) == TREADLE_OK) {
        assert_true(whole->digest != all->digest);
        treadle_layout_destroy(whole);
      }
      treadle_layout_destroy(few);
      treadle_layout_destroy(all);
    }
  treadle_model_close(model);
}

/* Layout ranks are places among the owners. */
static void rank_maps_are_of_owners(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  treadle_layout *train, *infer;
  int64_t index;
  assert_ok(treadle_layout_create(model, "megatron:tp=4,on=\"1,3,5,7\"", 8, NULL, &train));
  treadle_layout_options options = TREADLE_INIT(treadle_layout_options);
  options.train = train;
  options.rank_map = TREADLE_STRIDED;
  assert_ok(treadle_layout_create(model, "vllm:tp=2,on=\"1,3,5,7\"", 8, &options, &infer));
  static const int64_t tp_of[] = {0, 0, 1, 1}; /* groups are 1, 5 and 3, 7 */
  for (int i = 0; i < 4; i++) {
    assert_ok(treadle_layout_coordinate(infer, 2 * i + 1, "tp", &index));
    assert_int_equal(index, tp_of[i]);
  }
  treadle_layout_destroy(infer);
  options.rank_map = TREADLE_BEST;
  assert_ok(treadle_layout_create(model, "vllm:tp=2,on=\"1,3,5,7\"", 8, &options, &infer));
  assert_string_equal(treadle_layout_rank_map(infer), "strided:2");
  treadle_layout_destroy(infer);
  assert_refused("3 ranks are not divisible by blocks of 4",
                 (options.rank_map = TREADLE_STRIDED,
                  treadle_layout_create(model, "vllm:on=\"1,3,5\"", 8, &options, &infer)));
  treadle_layout_destroy(train);
  treadle_model_close(model);
}

/* A billion ranks cost what eight do. */
static void many_ranks_cost_nothing(void **state) {
  (void)state;
  enum { ALL = 1 << 30 };
  treadle_model *model = small_model(&config);
  treadle_layout *train, *infer;
  treadle_plan *plan;
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  assert_ok(treadle_layout_create(model, "megatron:tp=4,on=\"0-536870907,1073741820-1073741823\"", ALL,
                                  NULL, &train));
  assert_ok(treadle_layout_create(model, "vllm:tp=2,on=536870908-1073741819", ALL, NULL, &infer));
  const int64_t ranks[] = {0, ALL - 1, ALL / 2};
  for (size_t i = 0; i < TEST_COUNT(ranks); i++) {
    assert_ok(treadle_plan_create(train, infer, ranks[i], NULL, &plan));
    treadle_plan_get_info(plan, &info);
    assert_int_equal(info.moved_bytes, info.lower_bound_bytes);
    assert_int_equal(info.moved_bytes > 0, i == 2);
    treadle_plan_destroy(plan);
  }
  treadle_layout_destroy(train);
  treadle_layout_destroy(infer);
  treadle_model_close(model);
}

static treadle_status create(const treadle_model *model, const char *text) {
  treadle_layout *layout;
  treadle_status status = treadle_layout_create(model, text, 16, NULL, &layout);
  treadle_layout_destroy(layout);
  return status;
}

static void allocations_fail(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  TEST_EACH_ALLOCATION(create(model, "megatron:tp=2,on=\"7,0-2,5-6,9,13-14,11\""));
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sets_are_as_a_table_has_them), cmocka_unit_test(wrong_sets_are_refused),
      cmocka_unit_test(owners_hold_it_in_order),      cmocka_unit_test(rank_maps_are_of_owners),
      cmocka_unit_test(many_ranks_cost_nothing),      cmocka_unit_test(allocations_fail)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

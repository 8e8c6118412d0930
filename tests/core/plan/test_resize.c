/* Growing and shrinking tensor parallelism, on ranks that both sides share and on ranks of their own: what is moved, the peak, and how
 * evenly the ranks send. ctest: stage=gcc */
#include "base/larger.h"
#include "test.h"

#include "plan/small.h"

enum { MOST_RANKS = 24, PAGE = 4096 };

/* Heads and columns that 2, 3, 4, 8 and 16 divide. */
static const small_config config = {.V = 12288, .H = 768, .L = 4, .nh = 48, .ng = 48, .hd = 16, .I = 1536};

typedef struct resize {
  int64_t ranks;
  const char *from, *to;
  double sent; /* the most that a rank sends, over the mean of those that hold the source: at most this */
} resize;

/* From 3 to 2 on shared ranks each byte has one holder, so nobody can choose: of thirds, rank 0 has all of [0, 1/3) where it is wanted,
 * and the other two send a sixth and a third of the model: the most is twice the mean. */
static const resize cases[] = {
    {16, "megatron:tp=4,on=0-3", "vllm:tp=16", 1.1},
    {20, "megatron:tp=4,on=0-3", "vllm:tp=16,on=4-19", 1.1},
    {16, "megatron:tp=16", "vllm:tp=4,on=0-3", 1.1},
    {20, "megatron:tp=16,on=0-15", "vllm:tp=4,on=16-19", 1.1},
    {3, "megatron:tp=3", "vllm:tp=2,on=0-1", 2.001},
    {5, "megatron:tp=3,on=0-2", "vllm:tp=2,on=3-4", 1.1},
    {16, "vllm:tp=4,on=12-15", "megatron:tp=16", 1.1},
    {24, "megatron:tp=4,on=0-7", "vllm:tp=16,on=8-23", 1.1}, /* two copies */
    {12, "hf:on=0-3", "vllm:tp=8,on=4-11", 1.1},             /* four of all */
    {8, "fsdp2:on=0-3", "vllm:tp=2,on=4-7", 1.1},
};

static treadle_plan *plan_of(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                             size_t cap_bytes, bool keep_params) {
  const treadle_plan_options options = {.struct_size = sizeof options,
                                        .page_bytes = PAGE,
                                        .cap_bytes = cap_bytes,
                                        .keep_params = keep_params};
  treadle_plan *plan;
  assert_ok(treadle_plan_create(from, to, rank, &options, &plan));
  return plan;
}

static void check_sent(const resize *c, const treadle_layout *from, const treadle_layout *to) {
  size_t sent[MOST_RANKS] = {0}, got[MOST_RANKS], most = 0, sum = 0, owners = 0;
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  for (int64_t r = 0; r < c->ranks; r++) {
    treadle_plan *plan = plan_of(from, to, r, 0, false);
    treadle_plan_get_info(plan, &info);
    assert_int_equal(info.moved_bytes, info.lower_bound_bytes);
    assert_int_equal(info.back_moved_bytes, info.back_lower_bound_bytes);
    treadle_plan_inbound(plan, got);
    for (int64_t s = 0; s < c->ranks; s++) {
      sent[s] += got[s];
      if (!treadle_layout_holds(from, s) || s == r) assert_int_equal(got[s], 0);
    }
    treadle_plan_destroy(plan);
  }
  for (int64_t r = 0; r < c->ranks; r++) {
    owners += treadle_layout_holds(from, r);
    sum += sent[r];
    if (sent[r] > most) most = sent[r];
  }
  double ratio = (double)most * (double)owners / (double)sum;
  printf("  %-24s -> %-22s sent, most over mean: %.4f\n", c->from, c->to, ratio);
  if (!(ratio <= c->sent)) fail_msg("%s to %s: %.4f", c->from, c->to, ratio);
}

/* The largest of a rank, in pages. */
static size_t window_of(const treadle_layout *layout, int64_t rank) {
  return (treadle_layout_window_bytes(layout, rank) + PAGE - 1) / PAGE * PAGE;
}

/* With a cap of half the larger window. */
static void check_peak(const resize *c, const treadle_layout *from, const treadle_layout *to) {
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  size_t largest = 0;
  for (int64_t r = 0; r < c->ranks; r++)
    largest = treadle_larger_size(largest, treadle_larger_size(window_of(from, r), window_of(to, r)));
  for (int64_t r = 0; r < c->ranks; r++)
    for (int kept = 0; kept < 2; kept++) {
      treadle_plan *plan = plan_of(from, to, r, largest / 2, kept);
      size_t train = window_of(from, r), infer = window_of(to, r);
      treadle_plan_get_info(plan, &info);
      assert_true(info.peak_bytes <=
                  (kept ? train + infer : treadle_larger_size(train, infer)) + largest / 2);
      if (!kept) assert_true(2 * info.peak_bytes < 3 * largest);
      treadle_plan_destroy(plan);
    }
}

static void sizes_change(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_layout *from, *to;
    assert_ok(treadle_layout_create(model, cases[i].from, cases[i].ranks, NULL, &from));
    assert_ok(treadle_layout_create(model, cases[i].to, cases[i].ranks, NULL, &to));
    check_sent(&cases[i], from, to);
    check_peak(&cases[i], from, to);
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
  }
  treadle_model_close(model);
}

/* The same, bit by bit against the oracle. */
static void bits_arrive(void **state) {
  (void)state;
  static const small_config small = {.V = 96, .H = 96, .L = 2, .nh = 48, .ng = 48, .hd = 2, .I = 96};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    pair_result result = small_play(&small, cases[i].ranks, cases[i].from, cases[i].to, 1);
    assert_true(result.moved > 0 && result.moved == result.bound);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_change), cmocka_unit_test(bits_arrive)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

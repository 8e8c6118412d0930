/* Learning rates by Megatron's formula (get_lr of megatron/core/optimizer_param_scheduler.py, counted there in rows of batches of 8, 64, 4 and 32). */
#include "test.h"

#include "run/schedule.h"

#include <math.h>

static const struct {
  treadle_lr_style style;
  double lr, min_lr, warmup;
  int64_t steps, done;
  double wanted;
} vectors[] = {
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 0, 0},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 1, 0.00020000000000000001},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 2, 0.00040000000000000002},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 3, 0.00060000000000000006},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 5, 0.001},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 6, 0.001},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 7, 0.001},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 9, 0.001},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 10, 0.001},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 49, 0.001},
    {TREADLE_LR_CONSTANT, 0.001, 0, 0.1, 50, 50, 0.001},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 0, 0},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 1, 4.9999999999999996e-05},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 2, 9.9999999999999991e-05},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 3, 0.00014999999999999999},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 5, 0.00024999999999999995},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 6, 0.00029999999999999997},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 7, 0.00029712765957446807},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 9, 0.00029138297872340421},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 10, 0.00028851063829787231},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 49, 0.00017648936170212764},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 50, 0.00017361702127659571},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 99, 3.2872340425531907e-05},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 100, 3.0000000000000001e-05},
    {TREADLE_LR_LINEAR, 0.0003, 3e-05, 0.06, 100, 101, 3.0000000000000001e-05},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 0, 0.001},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 1, 0.00097577297556610107},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 2, 0.00090546341221559902},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 3, 0.00079595369988477423},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 5, 0.00050500000000000002},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 6, 0.00035203658778440108},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 7, 0.00021404630011522585},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 9, 3.4227024433899005e-05},
    {TREADLE_LR_COSINE, 0.001, 1e-05, 0, 10, 10, 1.0000000000000001e-05},
    {TREADLE_LR_COSINE, 0.0006, 6e-05, 0.25, 7, 0, 0},
    {TREADLE_LR_COSINE, 0.0006, 6e-05, 0.25, 7, 1, 0.00034285714285714285},
    {TREADLE_LR_COSINE, 0.0006, 6e-05, 0.25, 7, 2, 0.00059698432308078462},
    {TREADLE_LR_COSINE, 0.0006, 6e-05, 0.25, 7, 3, 0.00052792400539405297},
    {TREADLE_LR_COSINE, 0.0006, 6e-05, 0.25, 7, 5, 0.00023135792342107329},
    {TREADLE_LR_COSINE, 0.0006, 6e-05, 0.25, 7, 6, 0.00010691553093468144},
    {TREADLE_LR_COSINE, 0.0006, 6e-05, 0.25, 7, 7, 6.0000000000000002e-05},
};

static void test_vectors(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(vectors); i++) {
    const treadle_lr_schedule schedule = {vectors[i].style, vectors[i].lr, vectors[i].min_lr,
                                          vectors[i].warmup, vectors[i].steps};
    double got = treadle_schedule_lr(&schedule, vectors[i].done);
    if (!(fabs(got - vectors[i].wanted) <= 1e-15 * vectors[i].lr))
      fail_msg("vector %zu: %.17g, wanted %.17g", i, got, vectors[i].wanted);
  }
}

static void test_styles(void **state) {
  (void)state;
  treadle_lr_style style = TREADLE_LR_CONSTANT;
  assert_true(treadle_lr_style_parse("cosine", &style) && style == TREADLE_LR_COSINE);
  assert_true(treadle_lr_style_parse("linear", &style) && style == TREADLE_LR_LINEAR);
  assert_true(treadle_lr_style_parse("constant", &style) && style == TREADLE_LR_CONSTANT);
  assert_false(treadle_lr_style_parse("WSD", &style) || treadle_lr_style_parse("", &style));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vectors),
      cmocka_unit_test(test_styles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

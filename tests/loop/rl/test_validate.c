/* What a test of a policy says of scores: mean, best and majority of n samples, by data source and of all; against brute force, and draws. */
#include "test.h"

#include "rl/validate.h"

#include "base/random.h"

#include <math.h>

static double verdict(const treadle_rl_verdicts *v, const char *name) {
  for (size_t i = 0; i < v->items.count; i++)
    if (strcmp(v->items.items[i].name, name) == 0) return v->items.items[i].value;
  fail_msg("there is no %s", name);
  return 0;
}

static void test_names(void **state) {
  (void)state;
  const treadle_rl_judged judged[] = {{"math", 0, 1, "7"}, {"math", 0, 1, "7"},   {"math", 0, 0, "8"},
                                      {"gsm", 1, 0, NULL}, {"gsm", 1, 0.5, NULL}, {"gsm", 1, 0.25, NULL},
                                      {"math", 2, 0, "1"}, {"math", 2, 0, "2"},   {"math", 2, 0, "3"}};
  treadle_rl_verdicts v;
  assert_ok(treadle_rl_validate(judged, 9, 3, &v));
  assert_float_equal(verdict(&v, "val-core/math/reward/mean@3"), 1.0 / 3, 1e-12);
  assert_float_equal(verdict(&v, "val-core/gsm/reward/mean@3"), 0.25, 1e-12);
  assert_float_equal(v.mean, (2.0 / 3 + 0.25) / 3, 1e-12);
  assert_false(v.has_majority); /* gsm has none */
  assert_true(verdict(&v, "val-core/math/reward/maj@3/mean") > 0.3);
  assert_int_equal(v.items.count, 5);
  treadle_rl_verdicts_release(&v);
}

/* The expectation of the best of n draws with replacement, over all n^n of them. */
static double best_by_force(const treadle_rl_judged *judged, int n) {
  double sum = 0;
  long all = 1;
  for (int i = 0; i < n; i++) all *= n;
  for (long draw = 0; draw < all; draw++) {
    double best = -INFINITY;
    long left = draw;
    for (int i = 0; i < n; i++, left /= n) best = fmax(best, judged[left % n].score);
    sum += best;
  }
  return sum / (double)all;
}

static void test_best(void **state) {
  (void)state;
  treadle_random random = {7};
  for (int turn = 0; turn < 50; turn++) {
    treadle_rl_judged judged[6];
    double scores[6];
    int n = (int)treadle_random_between(&random, 1, 6);
    for (int i = 0; i < n; i++)
      judged[i] = (treadle_rl_judged){.score = (double)treadle_random_between(&random, -3, 3) / 4};
    assert_float_equal(treadle_rl_best(judged, n, scores), best_by_force(judged, n), 1e-12);
  }
}

static void test_majority(void **state) {
  (void)state;
  int64_t drawn[8];
  treadle_rl_judged same[8], none[2] = {{.score = 1, .pred = "1"}, {.score = 1, .pred = NULL}};
  for (int i = 0; i < 8; i++) same[i] = (treadle_rl_judged){.score = i < 7, .pred = i < 7 ? "42" : "41"};
  assert_true(treadle_rl_majority(same, 8, drawn) > 0.99); /* 7 of 8 say 42 */
  for (int i = 0; i < 8; i++) same[i].score = 1 - same[i].score;
  assert_true(treadle_rl_majority(same, 8, drawn) < 0.01);
  assert_true(isnan(treadle_rl_majority(none, 2, drawn)));
  assert_float_equal(treadle_rl_majority(same, 1, drawn), 0, 0);
  const treadle_rl_judged two[] = {{"x", 0, .9, "A"}, {"x", 0, .8, "B"}, {"x", 0, .7, "A"}};
  double majority = treadle_rl_majority(two, 3, drawn);
  assert_true(majority > .75 && majority < .85); /* A, drawn as the first or the last one */
}

static treadle_status once(void) {
  const treadle_rl_judged judged[] = {{"a", 0, 1, "1"}, {"b", 1, 0, "2"}};
  treadle_rl_verdicts v;
  treadle_status status = treadle_rl_validate(judged, 2, 1, &v);
  treadle_rl_verdicts_release(&v);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(once());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_best),
                                     cmocka_unit_test(test_majority), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

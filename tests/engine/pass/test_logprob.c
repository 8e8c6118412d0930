/* Log-probabilities, and the largest of a row against a whole sort. */
#include "pass/logprob.h"

#include "base/random.h"
#include "generate/sampling.h"
#include "test.h"

#include <math.h>

static double lse_of(const float *logits, int64_t count, float temperature) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += exp((double)(logits[i] / temperature));
  return log(sum);
}

static int compare(const void *left, const void *right) {
  const treadle_token_logprob *a = left, *b = right;
  if (a->logprob != b->logprob) return a->logprob > b->logprob ? -1 : 1;
  return a->token - b->token;
}

enum { MOST = 1000 };

static void test_top(void **state) {
  (void)state;
  float logits[MOST];
  treadle_token_logprob all[MOST], top[MOST];
  for (uint64_t seed = 0; seed < test_seeds(500); seed++) {
    treadle_random random = {.state = seed};
    int64_t count = treadle_random_between(&random, 1, MOST), most = treadle_random_between(&random, 0, 25);
    float temperature = seed % 2 ? 0.7f : 1;
    for (int64_t i = 0; i < count;
         i++) { /* steps of less than a bit of the log-probability, and many ties */
      float step = seed % 3 ? 0.5f : 0x1p-24f;
      logits[i] = (float)treadle_random_between(&random, -20, 20) * step;
    }
    if (seed % 5 == 0) logits[0] = -INFINITY;
    double lse = lse_of(logits, count, temperature);
    for (int64_t i = 0; i < count; i++)
      all[i] = (treadle_token_logprob){(int32_t)i, treadle_logprob(logits[i], temperature, lse)};
    qsort(all, (size_t)count, sizeof *all, compare);
    int64_t got = treadle_logprob_top(logits, count, temperature, lse, most, top);
    assert_int_equal(got, most < count ? most : count);
    for (int64_t i = 0; i < got; i++)
      if (top[i].token != all[i].token || top[i].logprob != all[i].logprob)
        fail_msg("seed %llu: place %lld has token %d, not %d", (unsigned long long)seed, (long long)i,
                 top[i].token, all[i].token);
  }
}

static void test_value(void **state) {
  (void)state;
  const float logits[] = {1, 2, 3};
  double lse = lse_of(logits, 3, 0.5f), sum = 0;
  for (int i = 0; i < 3; i++) sum += exp((double)treadle_logprob(logits[i], 0.5f, lse));
  assert_true(fabs(sum - 1) < 1e-6);
  assert_true(treadle_logprob(3, 1, 3) == 0);
}

static void test_temperature(void **state) {
  (void)state;
  treadle_sampling_values sampling;
  treadle_sampling_default(&sampling);
  sampling.temperature = 0.7;
  assert_true(treadle_logprob_temperature(TREADLE_LOGPROB_RAW, &sampling) == 1);
  assert_true(treadle_logprob_temperature(TREADLE_LOGPROB_SCALED, &sampling) == 0.7f);
  sampling.temperature = 0;
  assert_true(treadle_logprob_temperature(TREADLE_LOGPROB_SCALED, &sampling) == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_top), cmocka_unit_test(test_value),
                                     cmocka_unit_test(test_temperature)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Ids taken out of a row of logits: with every set of row operations the rest has the sum of a row that has nothing
 * else, others add exactly 0 to sums, entropies and gradients, whatever their logits were; and the sampler's limit,
 * where logits are equal. */
#include "pass/kept.h"
#include "test.h"

#include "base/random.h"
#include "generate/sampler.h"
#include "nn/rows.h"
#include "nn/rows_back.h"

#include <math.h>

enum { VOCABULARY = 331, MOST = VOCABULARY };

static double real_of(treadle_random *random) {
  return (double)(treadle_random_next(random) >> 11) / 9007199254740992.0;
}

/* Logits around `middle`, a few far away on either side. */
static void fill(treadle_random *random, float *logits, double middle, double spread) {
  for (int i = 0; i < VOCABULARY; i++) {
    logits[i] = (float)(middle + spread * (real_of(random) - 0.5));
    if (treadle_random_below(random, 20) == 0) logits[i] += (float)(spread * 50);
    if (treadle_random_below(random, 20) == 0) logits[i] -= (float)(spread * 50);
  }
}

static size_t choose(treadle_random *random, uint64_t one_in, int32_t *ids) {
  size_t count = 0;
  for (int32_t i = 0; i < VOCABULARY; i++)
    if (treadle_random_below(random, one_in) == 0) ids[count++] = i;
  if (!count) ids[count++] = (int32_t)treadle_random_below(random, VOCABULARY);
  return count;
}

static double lse_of(const treadle_row_ops *ops, const float *logits, float temperature) {
  float largest;
  double sum;
  ops->sum_exp(logits, VOCABULARY, temperature, &largest, &sum);
  return (double)largest + treadle_log(sum);
}

/* The logarithm of the sum over ids alone, with the C library's functions. */
static double wanted_of(const float *logits, const int32_t *ids, size_t count, float temperature) {
  double largest = -INFINITY, sum = 0;
  for (size_t i = 0; i < count; i++) largest = fmax(largest, (double)logits[ids[i]] / (double)temperature);
  for (size_t i = 0; i < count; i++) sum += exp((double)logits[ids[i]] / (double)temperature - largest);
  return largest + log(sum);
}

static void sums(void **state) {
  (void)state;
  static const double middles[] = {0, 30, -4000, 1e6, -1e12}, spreads[] = {1, 20, 500};
  static const float temperatures[] = {1, 0.7f, 1e-5f, 1000};
  treadle_random random = {20261127};
  int kinds;
  const treadle_row_ops *const *ops = treadle_row_ops_list(&kinds);
  for (uint64_t seed = 0; seed < 240; seed++) {
    float before[VOCABULARY], row[VOCABULARY], others[VOCABULARY];
    int32_t ids[MOST], out[MOST];
    size_t outs = 0;
    const double middle = middles[seed % 5], spread = spreads[seed / 5 % 3];
    const float temperature = temperatures[seed / 15 % 4];
    fill(&random, before, middle, spread);
    const size_t count = choose(&random, seed % 7 + 2, ids);
    for (int32_t i = 0; i < VOCABULARY; i++) {
      bool is_in = false;
      for (size_t k = 0; k < count; k++) is_in = is_in || ids[k] == i;
      if (!is_in) out[outs++] = i;
    }
    memcpy(row, before, sizeof row);
    memcpy(others, before, sizeof others);
    treadle_kept_leave(row, VOCABULARY, ids, count, temperature);
    treadle_kept_without(others, VOCABULARY, out, outs, temperature);
    const double first = lse_of(ops[0], row, temperature),
                 wanted = wanted_of(before, ids, count, temperature);
    if (!(fabs(first - wanted) <= 1e-6 * (fabs(wanted) + 20)))
      fail_msg("seed %llu: %zu ids, temperature %g: %.9g, not %.9g", (unsigned long long)seed, count,
               (double)temperature, first, wanted);
    for (int k = 0; k < kinds; k++) {
      if (!ops[k]->supported()) continue;
      const double left = lse_of(ops[k], row, temperature), rest = lse_of(ops[k], others, temperature);
      assert_memory_equal(&left, &first, sizeof left);
      assert_memory_equal(&rest, &first, sizeof rest);
    }
    for (size_t i = 0; i < count; i++) assert_memory_equal(&row[ids[i]], &before[ids[i]], sizeof *row);
    int back_kinds;
    const treadle_row_back_ops *const *back = treadle_row_back_ops_list(&back_kinds);
    const float entropy = (float)back[0]->entropy(row, VOCABULARY, (float)first, temperature);
    const treadle_policy_row policy = {.lse = (float)first,
                                       .temperature = temperature,
                                       .entropy = entropy,
                                       .by_logprob = 0.3f,
                                       .by_entropy = -0.7f,
                                       .target = ids[0]};
    assert_true(isfinite(entropy));
    back[0]->policy(row, VOCABULARY, &policy);
    for (size_t i = 0; i < outs; i++) assert_true(row[out[i]] == 0);
  }
}

/* Nothing to take out: not a bit changes. */
static void nothing(void **state) {
  (void)state;
  treadle_random random = {5};
  float before[VOCABULARY], row[VOCABULARY];
  static const int32_t beyond[] = {-1, VOCABULARY, INT32_MAX};
  fill(&random, before, 0, 10);
  memcpy(row, before, sizeof row);
  treadle_kept_without(row, VOCABULARY, NULL, 0, 1);
  treadle_kept_without(row, VOCABULARY, beyond, TEST_COUNT(beyond), 1);
  assert_memory_equal(row, before, sizeof row);
}

/* `most` of the ids that stay: the largest, of equal ones the lower; those that are never drawn are not among them. */
static void most(void **state) {
  (void)state;
  treadle_random random = {9};
  treadle_sampler *sampler;
  assert_ok(treadle_sampler_create(VOCABULARY, &sampler));
  for (uint64_t seed = 0; seed < 300; seed++) {
    float logits[VOCABULARY];
    int32_t never[MOST];
    treadle_sampling_values sampling;
    treadle_candidates left;
    treadle_sampling_default(&sampling);
    if (seed % 3 == 1) sampling.top_p = 0.9;
    if (seed % 3 == 2) sampling.min_p = 0.01;
    /* few values, so that many are equal; once all of them */
    for (int i = 0; i < VOCABULARY; i++)
      logits[i] = seed % 10 ? (float)treadle_random_below(&random, 4 + seed) / 4 : 1;
    const treadle_sampler_row row = {.logits = logits,
                                     .sampling = &sampling,
                                     .never = never,
                                     .never_count = (int64_t)choose(&random, 9, never),
                                     .most = 1 + (int64_t)treadle_random_below(&random, 40)};
    treadle_sampler_row all = row;
    int32_t kept[MOST];
    all.most = 0;
    assert_ok(treadle_sampler_keep(sampler, &all, &left));
    const int64_t count = left.count;
    memcpy(kept, left.ids, (size_t)count * sizeof *kept);
    assert_ok(treadle_sampler_keep(sampler, &row, &left));
    assert_int_equal(left.count, count < row.most ? count : row.most);
    double total = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
      int64_t before = 0; /* how many come first */
      for (int64_t k = 0; k < count; k++)
        before += logits[kept[k]] > logits[kept[i]] || (logits[kept[k]] == logits[kept[i]] && k < i);
      for (int64_t k = 0; k < row.never_count; k++) assert_true(never[k] != kept[i]);
      if (before >= row.most) continue;
      assert_int_equal(left.ids[at], kept[i]);
      total += left.weights[at++];
    }
    assert_true(fabs(total - left.total) < 1e-9);
  }
  treadle_sampler_destroy(sampler);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums), cmocka_unit_test(nothing),
                                     cmocka_unit_test(most)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

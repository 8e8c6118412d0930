/* Generalised advantages: the numbers of verl's and MindSpeed-RL's own tests; random rows against their definition, a double sum over what
 * follows each token; and what is refused. */
#include "test.h"

#include "base/random.h"
#include "rl/advantages.h"
#include "rl/critic.h"
#include "treadle_loop.h"

#include <math.h>
#include <string.h>

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-6)

/* One sample of three tokens. */
static void find(bool whiten, double gamma, const double *rewards, const float *values, double *advantages,
                 double *returns) {
  static const int64_t group[] = {0};
  static const size_t first[] = {0, 3};
  double score = rewards[0] + rewards[1] + rewards[2], of_samples[1];
  const treadle_rl_scored scored = {1, group, first, rewards, &score, values};
  const treadle_rl_estimator_options options = {TREADLE_RL_GAE, false, whiten, gamma,
                                                gamma != 0 ? 1 : 0.95};
  assert_ok(treadle_rl_advantages(&options, &scored, advantages, returns, of_samples));
  NEAR(of_samples[0], (advantages[0] + advantages[1] + advantages[2]) / 3);
}

static void test_vectors(void **state) {
  (void)state;
  double a[3], r[3];
  find(true, 0, (const double[]){1, 2, 3}, (const float[]){.5F, 1, 1.5F}, a, r); /* MindSpeed-RL's */
  for (int i = 0; i < 3; i++) {
    NEAR(a[i], i - 1);
    NEAR(r[i], i + 1);
  }
  find(false, 1, (const double[]){0, 0, 1}, (const float[]){.5F, .6F, .7F}, a, r); /* verl's */
  for (int i = 0; i < 3; i++) {
    NEAR(a[i], .5 - .1 * i);
    NEAR(r[i], 1);
  }
  find(true, 1, (const double[]){0, 0, 1}, (const float[]){.5F, .6F, .7F}, a, r);
  for (int i = 0; i < 3; i++) {
    NEAR(a[i], 1 - i);
    NEAR(r[i], 1);
  }
}

/* ---- Random rows ---- */

enum { ROWS = 9, MOST = 12 };

typedef struct rows {
  treadle_batch *batch;
  int64_t offsets[ROWS + 1], group[ROWS];
  int32_t ids[ROWS * MOST];
  float values[ROWS * MOST];
  double rewards[ROWS];
} rows;

static void add(treadle_batch *batch, const char *name, treadle_column_type type, const int64_t *offsets,
                void *data) {
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = name,
                                 .type = type,
                                 .width = !offsets,
                                 .offsets = offsets,
                                 .data = data};
  assert_ok(treadle_batch_add(batch, &column));
}

static double real(treadle_random *random) {
  return (double)treadle_random_below(random, 1 << 20) / (1 << 19) - 1;
}

static void draw(treadle_random *random, rows *r) {
  *r = (rows){0};
  for (int i = 0; i < ROWS; i++) {
    int64_t count = (int64_t)treadle_random_below(random, MOST + 1);
    if (i < 2) count += count < 2; /* two tokens at least, to be whitened */
    r->offsets[i + 1] = r->offsets[i] + count;
    r->rewards[i] = real(random);
    for (int64_t t = r->offsets[i]; t < r->offsets[i + 1]; t++) r->values[t] = (float)real(random);
  }
  assert_ok(treadle_batch_create(ROWS, &r->batch));
  add(r->batch, "ids", TREADLE_COLUMN_INT32, r->offsets, r->ids);
  add(r->batch, "group", TREADLE_COLUMN_INT64, NULL, r->group);
  add(r->batch, "score", TREADLE_COLUMN_FP64, NULL, r->rewards);
  add(r->batch, "values", TREADLE_COLUMN_FP32, r->offsets, r->values);
}

/* The definition: of each token, the sum of what all that follow it were better than expected. */
static double twin_of(const rows *r, int row, int64_t token, double gamma, double lam) {
  const int64_t end = r->offsets[row + 1];
  double sum = 0;
  for (int64_t t = token; t < end; t++) {
    const double next = t + 1 < end ? (double)r->values[t + 1] : 0,
                 reward = t + 1 == end ? r->rewards[row] : 0;
    sum += pow(gamma * lam, (double)(t - token)) * (reward + gamma * next - (double)r->values[t]);
  }
  return sum;
}

static void twin(const rows *r, double gamma, double lam, bool whiten, double *advantages,
                 double *returns) {
  const int64_t tokens = r->offsets[ROWS];
  double mean = 0, squares = 0;
  for (int row = 0; row < ROWS; row++)
    for (int64_t t = r->offsets[row]; t < r->offsets[row + 1]; t++) {
      advantages[t] = twin_of(r, row, t, gamma, lam);
      returns[t] = advantages[t] + (double)r->values[t];
      mean += advantages[t] / (double)tokens;
    }
  for (int64_t t = 0; t < tokens; t++) squares += pow(advantages[t] - mean, 2);
  for (int64_t t = 0; whiten && t < tokens; t++)
    advantages[t] = (advantages[t] - mean) / sqrt(squares / (double)(tokens - 1) + 1e-8);
}

static treadle_column column_of(const treadle_batch *batch, const char *name) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, name, &column));
  return column;
}

static void try_seed(uint64_t seed) {
  treadle_random random = {seed};
  double wanted[ROWS * MOST], wanted_returns[ROWS * MOST];
  rows r;
  draw(&random, &r);
  const treadle_advantage_options options = {.struct_size = sizeof options,
                                             .estimator = "gae",
                                             .keep_scale = seed % 2,
                                             .gamma = fabs(real(&random)) * .9 + .05,
                                             .lam = fabs(real(&random)) * .9 + .05};
  assert_ok(treadle_advantages(r.batch, &options));
  twin(&r, options.gamma, options.lam, !options.keep_scale, wanted, wanted_returns);
  const treadle_column advantages = column_of(r.batch, "advantages"),
                       returns = column_of(r.batch, "returns");
  assert_int_equal(advantages.type, TREADLE_COLUMN_FP64);
  assert_int_equal(returns.type, TREADLE_COLUMN_FP32);
  assert_memory_equal(advantages.offsets, r.offsets, sizeof r.offsets);
  assert_memory_equal(returns.offsets, r.offsets, sizeof r.offsets);
  for (int64_t t = 0; t < r.offsets[ROWS]; t++) {
    NEAR(((const double *)advantages.data)[t], wanted[t]);
    NEAR((double)((const float *)returns.data)[t], wanted_returns[t]);
  }
  treadle_batch_destroy(r.batch);
}

static void test_random(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 200; seed++) try_seed(seed);
}

/* As verl has it, by variances of samples. */
static void test_explained(void **state) {
  (void)state;
  static const double returns[] = {1, 2, 4};
  NEAR(treadle_rl_explained_variance(returns, (const float[]){1, 2, 4}, 3), 1);
  NEAR(treadle_rl_explained_variance(returns, (const float[]){11, 12, 14}, 3), 1);
  NEAR(treadle_rl_explained_variance(returns, (const float[]){0, 0, 0}, 3), 1 - (7. / 3) / (7. / 3 + 1e-5));
  NEAR(treadle_rl_explained_variance(returns, (const float[]){2, 1, 4}, 3), 1 - 1 / (7. / 3 + 1e-5));
  assert_true(isnan(treadle_rl_explained_variance(returns, (const float[]){1}, 1)));
}

/* ---- Refused ---- */

static treadle_status estimate(treadle_batch *batch, double lam) {
  const treadle_advantage_options options = {.struct_size = sizeof options, .estimator = "gae", .lam = lam};
  treadle_status status = treadle_advantages(batch, &options);
  assert_true(treadle_batch_has(batch, "advantages") == (status == TREADLE_OK));
  if (status) return status;
  assert_ok(treadle_batch_remove(batch, "advantages"));
  return treadle_batch_remove(batch, "returns");
}

static void test_refused(void **state) {
  (void)state;
  treadle_random random = {3};
  rows r;
  draw(&random, &r);
  assert_ok(estimate(r.batch, 0));
  assert_refused("lam 1.5: 0 to 1", estimate(r.batch, 1.5));
  assert_refused("lam nan: 0 to 1", estimate(r.batch, NAN));
  TEST_EACH_ALLOCATION(estimate(r.batch, .5));
  assert_ok(treadle_batch_rename(r.batch, "values", "kept"));
  assert_refused("'values'", estimate(r.batch, 0));
  add(r.batch, "values", TREADLE_COLUMN_INT32, r.offsets, r.ids);
  assert_refused("column 'values' is of another type", estimate(r.batch, 0));
  assert_ok(treadle_batch_remove(r.batch, "values"));
  int64_t others[ROWS + 1];
  memcpy(others, r.offsets, sizeof others);
  others[1]--;
  add(r.batch, "values", TREADLE_COLUMN_FP32, others, r.values);
  assert_refused("row 0: column 'values' has", estimate(r.batch, 0));
  assert_ok(treadle_batch_remove(r.batch, "values"));
  r.values[r.offsets[1] + 1] = INFINITY;
  add(r.batch, "values", TREADLE_COLUMN_FP32, r.offsets, r.values);
  assert_refused("sample 1: the value before its token 1 is inf", estimate(r.batch, 0));
  treadle_batch_destroy(r.batch);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_random),
                                     cmocka_unit_test(test_explained), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

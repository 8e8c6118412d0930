/* AdamW as torch.optim.AdamW has it: what tools/record-adamw recorded, to a few units in the last place, and the formula in double; the
 * same bits for every number of threads. */
#include "test.h"

#include "io/json.h"
#include "train/adam.h"

#include <math.h>

enum { VALUES_MOST = 64 };

static json_t *member(json_t *object, const char *name) {
  json_t *value = json_object_get(object, name);
  assert_non_null(value);
  return value;
}

static double number(json_t *object, const char *name) { return json_number_value(member(object, name)); }

static size_t read_values(json_t *array, float *to) {
  size_t count = json_array_size(array);
  assert_true(count > 0 && count <= VALUES_MOST);
  for (size_t i = 0; i < count; i++) to[i] = (float)json_number_value(json_array_get(array, i));
  return count;
}

/* sizes: of what was added up, which may be far larger than the sum. */
static void assert_close(json_t *wanted, const float *got, const float *sizes, size_t count) {
  float values[VALUES_MOST];
  assert_int_equal(read_values(wanted, values), count);
  for (size_t i = 0; i < count; i++)
    if (!(fabs((double)got[i] - values[i]) <= 4e-7 * sizes[i]))
      fail_msg("value %zu: %.9g, wanted %.9g", i, (double)got[i], (double)values[i]);
}

/* The formula in double, beside it. */
static void step_in_double(const treadle_adam *adam, const treadle_adam_step *step, const float *grad,
                           double (*state)[VALUES_MOST], size_t count) {
  for (size_t i = 0; i < count; i++) {
    double g = (double)grad[i] * step->scale;
    state[1][i] = adam->beta1 * state[1][i] + (1 - adam->beta1) * g;
    state[2][i] = adam->beta2 * state[2][i] + (1 - adam->beta2) * g * g;
    double m = state[1][i] / (1 - pow(adam->beta1, (double)step->step));
    double v = state[2][i] / (1 - pow(adam->beta2, (double)step->step));
    state[0][i] = state[0][i] * (1 - step->lr * step->weight_decay) - step->lr * m / (sqrt(v) + adam->eps);
  }
}

static void check_case(json_t *one) {
  const treadle_adam adam = {number(one, "beta1"), number(one, "beta2"), number(one, "eps")};
  float master[VALUES_MOST], exp_avg[VALUES_MOST] = {0}, exp_avg_sq[VALUES_MOST] = {0}, grad[VALUES_MOST];
  double twin[3][VALUES_MOST] = {{0}};
  float most[VALUES_MOST] = {0}, ones[VALUES_MOST];
  uint16_t weights[VALUES_MOST];
  size_t count = read_values(member(one, "start"), master);
  for (size_t i = 0; i < count; i++) twin[0][i] = master[i], ones[i] = 1;
  json_t *grads = member(one, "grads");
  for (size_t s = 0; s < json_array_size(grads); s++) {
    const treadle_adam_step step = {(int64_t)s + 1, number(one, "lr"), number(one, "weight_decay"), 0.5};
    const treadle_adam_factors factors = treadle_adam_factors_of(&adam, &step);
    assert_int_equal(read_values(json_array_get(grads, s), grad), count);
    for (size_t i = 0; i < count; i++) {
      most[i] = fmaxf(most[i], fabsf(grad[i]));
      grad[i] *= 2; /* exact, and so is the scale */
    }
    const treadle_adam_run run = {master, exp_avg, exp_avg_sq, grad, weights, TREADLE_BF16, (int64_t)count};
    treadle_adam_take(treadle_adam_ops_for("auto"), NULL, &factors, &run);
    step_in_double(&adam, &step, grad, twin, count);
  }
  assert_close(member(one, "weight"), master, ones, count);
  assert_close(member(one, "exp_avg"), exp_avg, most, count);
  assert_close(member(one, "exp_avg_sq"), exp_avg_sq, exp_avg_sq, count);
  for (size_t i = 0; i < count; i++) {
    assert_true(fabs(master[i] - twin[0][i]) <= 2e-6 * (1 + fabs(twin[0][i])));
    assert_int_equal(weights[i], treadle_bf16_of_float(master[i]));
  }
}

static void test_torch(void **state) {
  (void)state;
  json_t *root = json_load_file(TREADLE_SOURCE_DIR "/tests/engine/train/adamw.json", 0, NULL);
  assert_non_null(root);
  json_t *cases = member(root, "cases");
  assert_int_equal(json_array_size(cases), 3);
  for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
  json_decref(root);
}

enum { LONG = 100001 };

static void test_teams(void **state) {
  (void)state;
  static float start[LONG], grad[LONG], made[4][3][LONG];
  const treadle_adam adam = {0.9, 0.95, 1e-8};
  const treadle_adam_step step = {3, 1e-2, 0.1, 1};
  const treadle_adam_factors factors = treadle_adam_factors_of(&adam, &step);
  for (int i = 0; i < LONG; i++) start[i] = (float)i / LONG, grad[i] = (float)(i % 97) - 48;
  for (int t = 0; t < 4; t++) {
    treadle_team *team;
    const treadle_adam_run run = {made[t][0], made[t][1], made[t][2], grad, NULL, TREADLE_FP32, LONG};
    memcpy(made[t][0], start, sizeof start);
    assert_ok(treadle_team_create(t ? t + 1 : 1, false, &team));
    treadle_adam_take(treadle_adam_ops_for("auto"), t ? team : NULL, &factors, &run);
    treadle_team_destroy(team);
    assert_memory_equal(made[t], made[0], sizeof made[t]);
  }
  assert_true(made[0][0][LONG - 1] < start[LONG - 1] && made[0][2][LONG - 1] > 0);
}

static void test_clip(void **state) {
  (void)state;
  assert_true(treadle_adam_clip(2, 1) == 1 / (2 + 1e-6));
  assert_true(treadle_adam_clip(0.5, 1) == 1 && treadle_adam_clip(5, 0) == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_torch),
      cmocka_unit_test(test_teams),
      cmocka_unit_test(test_clip),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

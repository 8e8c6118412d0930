/* src/engine/nn/exp.c against the C library's functions of double. */
#include "nn/exp.h"

#include "nn/values.h"
#include "test.h"

#include <float.h>
#include <math.h>

static void exp_is_close(void **state) {
  (void)state;
  double worst = 0.0;
  float at = 0.0f;
  for (uint32_t step = 1, bits = 0; bits < 0xc2b00000; bits += step) { /* both signs, each exponent */
    step = 12345;
    float x;
    memcpy(&x, &bits, sizeof x);
    if (!(x >= TREADLE_EXP_LEAST && x <= TREADLE_EXP_MOST)) continue;
    double ulp = test_ulp(treadle_exp(x), exp((double)x));
    if (ulp > worst) {
      worst = ulp;
      at = x;
    }
  }
  for (float x = TREADLE_EXP_LEAST; x <= TREADLE_EXP_MOST; x += 0.00021f) {
    double ulp = test_ulp(treadle_exp(x), exp((double)x));
    if (ulp > worst) {
      worst = ulp;
      at = x;
    }
  }
  if (worst > 1.5) fail_msg("e^%a is %.3f ulp off", (double)at, worst);
}

static void exp_at_its_ends(void **state) {
  (void)state;
  assert_true(treadle_exp(0.0f) == 1.0f && treadle_exp(-0.0f) == 1.0f);
  assert_true(treadle_exp(-INFINITY) == 0.0f && treadle_exp(INFINITY) == INFINITY);
  assert_true(isnan(treadle_exp(NAN)) && isnan(treadle_exp(-NAN)));
  float least = TREADLE_EXP_LEAST, most = TREADLE_EXP_MOST;
  assert_true(treadle_exp(least) >= FLT_MIN && treadle_exp(nextafterf(least, -INFINITY)) == 0.0f);
  assert_true(treadle_exp(most) > 3.4e38f && treadle_exp(most) < INFINITY);
  assert_true(treadle_exp(nextafterf(most, INFINITY)) == INFINITY);
  assert_true(treadle_exp(FLT_MAX) == INFINITY && treadle_exp(-FLT_MAX) == 0.0f);
  assert_true(treadle_sigmoid(0.0f) == 0.5f && treadle_sigmoid(200.0f) == 1.0f &&
              treadle_sigmoid(-200.0f) == 0.0f);
}

static void log_is_close(void **state) {
  (void)state;
  treadle_random random = {3};
  for (int i = 0; i < 200000; i++) {
    double x = ldexp(1.0 + (double)treadle_random_below(&random, 1 << 30) / (1 << 30),
                     (int)treadle_random_between(&random, i % 2 ? -1 : -1070, i % 2 ? 1 : 1000));
    double wanted = log(x), made = treadle_log(x);
    if (fabs(made - wanted) > 1e-15 * (1.0 + fabs(wanted)))
      fail_msg("log %a is %a, not %a", x, made, wanted);
  }
  assert_true(treadle_log(1.0) == 0.0 && treadle_log(0.0) == -INFINITY &&
              treadle_log(INFINITY) == INFINITY);
  assert_true(isnan(treadle_log(-1.0)) && isnan(treadle_log(NAN)));
}

static void power_is_close(void **state) {
  (void)state;
  static const double bases[] = {1.0, 1.5, 10000.0, 500000.0, 1e6, 1e15, 1e30};
  for (size_t b = 0; b < TEST_COUNT(bases); b++)
    for (int i = 0; i <= 1000; i++) {
      double wanted = pow(bases[b], i / 1000.0), made = treadle_power(bases[b], i / 1000.0);
      if (fabs(made / wanted - 1.0) > 3e-14)
        fail_msg("%g^%g is %a, not %a", bases[b], i / 1000.0, made, wanted);
    }
}

static void sine_is_close(void **state) {
  (void)state;
  treadle_random random = {4};
  for (int i = 0; i < 300000; i++) {
    float angle = (float)treadle_random_below(&random, 1 << 24) * (i % 3 == 0   ? 1.0f
                                                                   : i % 3 == 1 ? 0x1p-12f
                                                                                : 0x1p-22f);
    if (i % 2) angle = -angle;
    double sine, cosine;
    treadle_sine((double)angle, &sine, &cosine);
    if (fabs(sine - sin((double)angle)) > 3e-16 || fabs(cosine - cos((double)angle)) > 3e-16)
      fail_msg("at %a: %a and %a, not %a and %a", (double)angle, sine, cosine, sin((double)angle),
               cos((double)angle));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exp_is_close), cmocka_unit_test(exp_at_its_ends),
                                     cmocka_unit_test(log_is_close), cmocka_unit_test(power_is_close),
                                     cmocka_unit_test(sine_is_close)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

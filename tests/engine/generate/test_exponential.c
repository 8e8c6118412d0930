/* e^x in double: how exact it is, its ends, and that a value does not depend on its place in a row. */
/* ctest: label=kernels */
#include "generate/exponential.h"

#include "base/random.h"
#include "test.h"

#include <math.h>

enum { MANY = 1003 };

static void fill(double *x, uint64_t seed) {
  treadle_random random = {.state = seed};
  for (int i = 0; i < MANY; i++) {
    double part = (double)(treadle_random_next(&random) >> 11) * 0x1p-53;
    x[i] = i % 2 ? -700 * part : -3 * part * part;
  }
}

static void test_exact(void **state) {
  (void)state;
  double x[MANY], e[MANY];
  for (uint64_t seed = 0; seed < test_seeds(100); seed++) {
    fill(x, seed);
    treadle_exponentials(e, x, 0, 1, MANY);
    for (int i = 0; i < MANY; i++) {
      long double wanted = expl((long double)x[i]);
      if (fabsl((long double)e[i] - wanted) > 4e-16L * wanted) fail_msg("e^%.17g is %.17g", x[i], e[i]);
    }
  }
}

/* Alone a value is made by the end of the loop, in a row by its vectors. */
static void test_place(void **state) {
  (void)state;
  double x[MANY], e[MANY], alone;
  fill(x, 1);
  for (int begin = 0; begin < 9; begin++) {
    treadle_exponentials(e + begin, x + begin, 2, 0.7, MANY - begin);
    for (int i = begin; i < MANY; i++) {
      treadle_exponentials(&alone, &x[i], 2, 0.7, 1);
      assert_true(alone == e[i]);
    }
  }
}

static void test_ends(void **state) {
  (void)state;
  const double x[] = {0, -0.0, -708.5, -740, -745, -746, -1e9, -INFINITY};
  double e[TEST_COUNT(x)];
  treadle_exponentials(e, x, 0, 1, TEST_COUNT(x));
  assert_true(e[0] == 1 && e[1] == 1);
  for (size_t i = 2; i < TEST_COUNT(x); i++)
    assert_true(fabs(e[i] - exp(x[i])) <= exp(x[i]) * 4e-16 + 0x1p-1074);
  assert_true(e[4] == 0x1p-1074 && e[5] == 0 && e[6] == 0 && e[7] == 0);
  treadle_exponentials(e, (double[]){5, 3}, 5, 0.5, 2);
  assert_true(e[0] == 1 && fabs(e[1] - exp(-1)) < 1e-16);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact), cmocka_unit_test(test_place),
                                     cmocka_unit_test(test_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tiles of outer products: each result is a chain of fused multiply-adds over the inner dimension, with every set of instructions. */
#include "test.h"

#include "base/random.h"
#include "nn/outer.h"

#include <math.h>

enum { INNER = 131 };

static float number(treadle_random *random) {
  return (float)treadle_random_between(random, -1000000, 1000000) / 524288.0f;
}

static void check(const treadle_outer_ops *ops, treadle_random *random, int64_t inner) {
  float a[INNER * TREADLE_OUTER_ROWS_MOST], b[INNER * TREADLE_OUTER_COLUMNS_MOST];
  float tile[TREADLE_OUTER_ROWS_MOST * TREADLE_OUTER_COLUMNS_MOST];
  assert_in_range(ops->rows, 1, TREADLE_OUTER_ROWS_MOST);
  assert_in_range(ops->columns, 1, TREADLE_OUTER_COLUMNS_MOST);
  for (int64_t i = 0; i < inner * ops->rows; i++) a[i] = number(random);
  for (int64_t i = 0; i < inner * ops->columns; i++) b[i] = number(random);
  ops->tile(tile, a, b, inner);
  for (int r = 0; r < ops->rows; r++)
    for (int c = 0; c < ops->columns; c++) {
      float wanted = 0;
      for (int64_t k = 0; k < inner; k++)
        wanted = fmaf(a[k * ops->rows + r], b[k * ops->columns + c], wanted);
      assert_true(tile[r * ops->columns + c] == wanted);
    }
}

static void test_chains(void **state) {
  (void)state;
  static const char *const kinds[] = {"plain", "avx2", "avx512"};
  treadle_random random = {7};
  for (int kind = 0; kind < 3; kind++) {
    const treadle_outer_ops *ops = treadle_outer_ops_for(kinds[kind]);
    assert_true(ops->supported());
    printf("%s: %s\n", kinds[kind], ops->name);
    for (int64_t inner = 0; inner <= INNER; inner += inner < 5 ? 1 : 21) check(ops, &random, inner);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

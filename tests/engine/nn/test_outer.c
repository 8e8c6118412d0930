/* Tiles of outer products: each result is a chain of fused multiply-adds over the inner dimension, which takes the place of what was there or is
 * added onto it, with every set of instructions. */
#include "test.h"

#include "base/random.h"
#include "nn/outer.h"

#include <math.h>

enum { INNER = 131, APART = TREADLE_OUTER_COLUMNS_MOST + 5, ROW = TREADLE_OUTER_ROWS_MOST + 3 };

static float number(treadle_random *random) {
  return (float)treadle_random_between(random, -1000000, 1000000) / 524288.0f;
}

typedef struct operands {
  float rows[INNER * ROW], a[INNER * TREADLE_OUTER_ROWS_MOST], b[INNER * TREADLE_OUTER_COLUMNS_MOST];
} operands;

/* What lies between the rows of y stays. */
static void check_tile(const treadle_outer_ops *ops, treadle_random *random, const operands *o,
                       int64_t inner, bool adds) {
  float y[TREADLE_OUTER_ROWS_MOST * APART], before[TREADLE_OUTER_ROWS_MOST * APART];
  for (int i = 0; i < TREADLE_OUTER_ROWS_MOST * APART; i++) y[i] = before[i] = number(random);
  ops->tile(y, APART, adds, o->a, o->b, inner);
  for (int r = 0; r < TREADLE_OUTER_ROWS_MOST; r++)
    for (int c = 0; c < APART; c++) {
      float wanted = 0, was = before[r * APART + c];
      bool inside = r < ops->rows && c < ops->columns;
      for (int64_t k = 0; inside && k < inner; k++)
        wanted = fmaf(o->rows[k * ROW + r], o->b[k * ops->columns + c], wanted);
      assert_true(y[r * APART + c] == (!inside ? was : adds ? was + wanted : wanted));
    }
}

static void check(const treadle_outer_ops *ops, treadle_random *random, int64_t inner) {
  operands o;
  assert_in_range(ops->rows, 1, TREADLE_OUTER_ROWS_MOST);
  assert_in_range(ops->columns, 1, TREADLE_OUTER_COLUMNS_MOST);
  for (int64_t i = 0; i < inner * ROW; i++) o.rows[i] = number(random);
  for (int64_t i = 0; i < inner * ops->columns; i++) o.b[i] = number(random);
  ops->take(o.a, o.rows, ROW, inner);
  check_tile(ops, random, &o, inner, false);
  check_tile(ops, random, &o, inner, true);
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

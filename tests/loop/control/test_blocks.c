/* Blocks: large ones are kept while anybody has opened them, up to a bound; of these the last that fits is given again. */
#include "control/blocks.h"
#include "test.h"

#include "base/alloc.h"

enum { SMALL = 1000, LARGE = 1 << 20, HUGE_BLOCK = 200 << 20 };

/* Allocations that taking one block of that many bytes needs. */
static long cost(size_t bytes) {
  const long before = treadle_alloc_count();
  char *block = treadle_block_take(bytes);
  assert_non_null(block);
  block[0] = block[bytes - 1] = 1;
  treadle_block_give(block);
  return treadle_alloc_count() - before;
}

static void test_kept(void **state) {
  (void)state;
  assert_int_equal(cost(LARGE), 1);
  assert_int_equal(cost(LARGE), 1); /* nobody has opened them */
  treadle_blocks_open();
  treadle_blocks_open();
  assert_int_equal(cost(LARGE), 1);
  assert_int_equal(cost(LARGE), 0);
  assert_int_equal(cost(LARGE / 2), 0);
  assert_int_equal(cost(LARGE / 2 - 1), 1); /* too large for it; and then it has one of its own */
  assert_int_equal(cost(LARGE / 2 - 1), 0);
  assert_int_equal(cost(LARGE + 1), 1);
  assert_int_equal(cost(SMALL), 1);
  assert_int_equal(cost(SMALL), 1);
  treadle_blocks_close();
  assert_int_equal(cost(LARGE), 0);
  treadle_blocks_close();
  assert_int_equal(cost(LARGE), 1);
}

static void test_bound(void **state) {
  char *two[2];
  (void)state;
  treadle_blocks_open();
  for (int i = 0; i < 2; i++) assert_non_null(two[i] = treadle_block_take(HUGE_BLOCK));
  for (int i = 0; i < 2; i++) treadle_block_give(two[i]); /* the second is too much */
  assert_ptr_equal(treadle_block_take(HUGE_BLOCK), two[0]);
  assert_int_equal(cost(HUGE_BLOCK), 1);
  treadle_block_give(two[0]); /* the first is kept no more: the one of before is */
  treadle_blocks_close();
}

static void test_none(void **state) {
  (void)state;
  treadle_block_give(NULL);
  assert_null(treadle_block_take(SIZE_MAX));
  treadle_alloc_fail_at(1);
  assert_null(treadle_block_take(LARGE));
  treadle_alloc_fail_at(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_bound),
                                     cmocka_unit_test(test_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

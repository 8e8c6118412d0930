/* src/core/base/alloc.c: zeroed memory, overflow, and the hook that makes the n-th allocation fail. */
#include "test.h"

static void memory_is_zeroed(void **state) {
  (void)state;
  for (int i = 0; i < 50; i++) {
    unsigned char *memory = treadle_alloc(1000);
    for (int j = 0; j < 1000; j++) assert_int_equal(memory[j], 0);
    memset(memory, 0xff, 1000);
    treadle_free(memory);
  }
  void *nothing = treadle_alloc(0);
  assert_non_null(nothing);
  treadle_free(nothing);
}

static void products_do_not_overflow(void **state) {
  (void)state;
  assert_null(treadle_alloc_array(SIZE_MAX / 8 + 1, 8));
  assert_null(treadle_alloc_array(2, SIZE_MAX));
  void *memory = treadle_alloc_array(3, 0);
  assert_non_null(memory);
  treadle_free(memory);
}

static void nth_fails_once(void **state) {
  (void)state;
  treadle_alloc_fail_at(2);
  void *first = treadle_alloc(1);
  assert_non_null(first);
  assert_null(treadle_realloc(first, 10)); /* first is still ours */
  void *third = treadle_realloc(first, 10);
  assert_non_null(third);
  treadle_free(third);
  treadle_alloc_fail_at(1);
  treadle_alloc_fail_at(0);
  long before = treadle_alloc_count();
  void *memory = treadle_alloc(1);
  assert_non_null(memory);
  assert_int_equal(treadle_alloc_count(), before + 1);
  treadle_free(memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_zeroed),
                                     cmocka_unit_test(products_do_not_overflow),
                                     cmocka_unit_test(nth_fails_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

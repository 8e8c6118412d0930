/* src/core/base/search.h against a loop. */
#include "base/search.h"

#include "test.h"

static void last_at_most(void **state) {
  (void)state;
  static const struct {
    int64_t before, at;
  } items[] = {{0, -5}, {0, -5}, {0, 0}, {0, 3}, {0, 3}, {0, 4}, {0, INT64_MAX}};
  for (int64_t count = 0; count <= (int64_t)TEST_COUNT(items); count++)
    for (int64_t limit = -7; limit < 7; limit++) {
      int64_t wanted = 0;
      for (int64_t i = 0; i < count; i++)
        if (items[i].at <= limit) wanted = i;
      assert_int_equal(treadle_last_at_most(&items[0].at, sizeof *items, count, limit), wanted);
    }
  assert_int_equal(treadle_last_at_most(&items[0].at, sizeof *items, TEST_COUNT(items), INT64_MAX), 6);
  assert_int_equal(treadle_last_at_most(NULL, 8, 0, 1), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(last_at_most)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

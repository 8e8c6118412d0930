/* src/core/base/hash_index.c. */
#include "test.h"

#include "base/hash.h"
#include "base/hash_index.h"

enum { COUNT = 5000 };

/* Multiples of 2^32 all belong at the first place of a small index. */
static uint64_t hash_of(int32_t i) { return i % 2 ? treadle_mix64((uint64_t)i) : (uint64_t)i << 32; }

static void finds_what_was_put(void **state) {
  (void)state;
  treadle_hash_index hash_index = {0};
  int32_t number;
  for (int turn = 0; turn < 2; turn++) {
    assert_int_equal(treadle_hash_index_find(&hash_index, 0), -1);
    for (int32_t i = 0; i < COUNT; i++) {
      assert_ok(treadle_hash_index_put(&hash_index, hash_of(i), i, &number));
      assert_int_equal(number, i);
      assert_ok(treadle_hash_index_put(&hash_index, hash_of(i / 2), COUNT, &number));
      assert_int_equal(number, i / 2);
    }
    assert_int_equal(hash_index.count, COUNT);
    for (int32_t i = 0; i < COUNT; i++) {
      assert_int_equal(treadle_hash_index_find(&hash_index, hash_of(i)), i);
      assert_int_equal(treadle_hash_index_find(&hash_index, hash_of(i) ^ 1), -1);
    }
    treadle_hash_index_clear(&hash_index);
  }
  treadle_hash_index_release(&hash_index);
}

static void keeps_the_room_that_was_reserved(void **state) {
  (void)state;
  treadle_hash_index hash_index = {0};
  int32_t number;
  assert_ok(treadle_hash_index_reserve(&hash_index, COUNT));
  const void *entries = hash_index.entries;
  for (int32_t i = 0; i < COUNT; i++)
    assert_ok(treadle_hash_index_put(&hash_index, hash_of(i), i, &number));
  assert_ptr_equal(hash_index.entries, entries);
  treadle_hash_index_release(&hash_index);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_was_put),
                                     cmocka_unit_test(keeps_the_room_that_was_reserved)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

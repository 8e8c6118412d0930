/* src/core/base/hash_map.c and hash.c. */
#include "test.h"

#include "base/hash.h"
#include "base/hash_map.h"

static void puts_and_gets(void **state) {
  (void)state;
  enum { COUNT = 5000 };
  static char names[COUNT][32];
  treadle_hash_map map = {0};
  assert_int_equal(treadle_hash_map_get(&map, "absent", -7), -7);
  for (int i = 0; i < COUNT; i++) {
    snprintf(names[i], sizeof names[i], "model.layers.%d.weight", i);
    assert_ok(treadle_hash_map_put(&map, names[i], i));
    assert_ok(treadle_hash_map_put(&map, names[i / 2], i)); /* overwrites */
  }
  assert_int_equal(map.count, COUNT);
  for (int i = 0; i < COUNT; i++) {
    char key[32];
    strcpy(key, names[i]);
    /* Last put: of 2i + 1 or 2i, where these exist, otherwise of itself. */
    int want = 2 * i + 1 < COUNT ? 2 * i + 1 : 2 * i < COUNT ? 2 * i : i;
    assert_int_equal(treadle_hash_map_get(&map, key, -1), want);
  }
  assert_int_equal(treadle_hash_map_get(&map, "model.layers.5000.weight", -1), -1);
  treadle_hash_map_release(&map);
  assert_int_equal(treadle_hash_map_get(&map, names[0], -1), -1);
}

static void memory_is_out(void **state) {
  (void)state;
  static char names[200][12];
  treadle_hash_map map = {0};
  for (int i = 0; i < 200; i++) {
    snprintf(names[i], sizeof names[i], "%d", i);
    treadle_alloc_fail_at(1);
    treadle_status status = treadle_hash_map_put(&map, names[i], i);
    treadle_alloc_fail_at(0);
    if (status != TREADLE_OK) {
      assert_int_equal(status, TREADLE_NO_MEMORY);
      assert_ok(treadle_hash_map_put(&map, names[i], i));
    }
  }
  for (int i = 0; i < 200; i++) assert_int_equal(treadle_hash_map_get(&map, names[i], -1), i);
  treadle_hash_map_release(&map);
}

static void reserves(void **state) {
  (void)state;
  treadle_hash_map map = {0};
  assert_ok(treadle_hash_map_reserve(&map, 1000));
  struct treadle_hash_slot *slots = map.slots;
  char names[1000][8];
  for (int i = 0; i < 1000; i++) {
    snprintf(names[i], sizeof names[i], "n%d", i);
    assert_ok(treadle_hash_map_put(&map, names[i], i));
  }
  assert_ptr_equal(map.slots, slots); /* it never grew */
  assert_ok(treadle_hash_map_reserve(&map, 10));
  assert_ptr_equal(map.slots, slots);
  for (int i = 0; i < 1000; i++) assert_int_equal(treadle_hash_map_get(&map, names[i], -1), i);
  treadle_hash_map_release(&map);
}

static void hashes_are_fixed(void **state) {
  (void)state;
  /* Known answers: digests of plans and of weights are compared between machines. */
  assert_true(treadle_mix64(0) == 0xe220a8397b1dcdafu); /* first output of splitmix64 from seed 0 */
  assert_true(treadle_hash_bytes("", 0, 0) == 0x2d06800538d394c2u); /* XXH3 of nothing */
  assert_true(treadle_hash_text("abc", 0) == treadle_hash_bytes("abc", 3, 0));
  assert_true(treadle_hash_text("abc", 1) != treadle_hash_text("abc", 0));
  assert_true(treadle_hash_more(1, 2) != treadle_hash_more(2, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(puts_and_gets), cmocka_unit_test(memory_is_out),
                                     cmocka_unit_test(reserves), cmocka_unit_test(hashes_are_fixed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

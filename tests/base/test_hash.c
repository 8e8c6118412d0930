/* src/base/hash.c: the fast way gives what the plain one gives. */
#include "base/hash.h"
#include "test.h"

#include <xxhash.h>

static void fast_and_plain(void **state) {
  (void)state;
  static unsigned char bytes[200000];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * i >> 7);
  for (size_t count = 1; count < sizeof bytes; count += count / 3 + 1)
    for (uint64_t seed = 0; seed < 2; seed++) {
      uint64_t plain = XXH3_64bits_withSeed(bytes + 1, count, seed), fast = plain;
      assert_true(treadle_hash_bytes(bytes + 1, count, seed) == plain);
      (void)treadle_hash_wide(bytes + 1, count, seed, &fast);
      assert_true(fast == plain);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fast_and_plain)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

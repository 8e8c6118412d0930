/* src/core/base/hash.c: the fast way gives what the plain one gives. */
/* ctest: label=kernels */
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

static void in_pieces(void **state) {
  (void)state;
  static unsigned char bytes[150000];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * i >> 5);
  for (size_t step = 1; step < sizeof bytes; step = step * 3 + 7) {
    treadle_hash_piece pieces[64];
    size_t count = 0, at = 0, all = 0;
    for (; count < 64 && at < sizeof bytes; count++) {
      const size_t now = at + step < sizeof bytes ? step : sizeof bytes - at;
      pieces[count] = (treadle_hash_piece){bytes + at, now};
      at += now;
      all = at;
    }
    assert_true(treadle_hash_pieces(pieces, count) == XXH3_64bits(bytes, all));
  }
  assert_true(treadle_hash_pieces(NULL, 0) == XXH3_64bits("", 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fast_and_plain), cmocka_unit_test(in_pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

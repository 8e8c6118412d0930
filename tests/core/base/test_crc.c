/* src/core/base/crc.c against zlib's, at all small lengths and places, and in pieces. */
/* ctest: label=kernels */
#include "test.h"

#include "base/crc.h"
#include "base/random.h"

#include <zlib.h>

static void equals_zlib(void **state) {
  (void)state;
  enum { BYTES = 3000 };
  unsigned char bytes[BYTES + 16];
  treadle_random random = {1};
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)treadle_random_next(&random);
  assert_int_equal(treadle_crc32(0, "123456789", 9), 0xcbf43926); /* the check value that catalogues give */
  assert_int_equal(treadle_crc32(5, NULL, 0), 5);
  for (size_t count = 0; count <= BYTES; count++)
    for (size_t at = 0; at < 16; at += count < 200 ? 1 : 5)
      assert_int_equal(treadle_crc32((uint32_t)count, bytes + at, count),
                       crc32_z(count, bytes + at, count));
  for (size_t cut = 0; cut <= BYTES; cut++)
    assert_int_equal(treadle_crc32(treadle_crc32(0, bytes, cut), bytes + cut, BYTES - cut),
                     crc32_z(0, bytes, BYTES));
  memset(bytes, 0, sizeof bytes);
  assert_int_equal(treadle_crc32(0, bytes, BYTES), crc32_z(0, bytes, BYTES));
  memset(bytes, 0xff, sizeof bytes);
  assert_int_equal(treadle_crc32(0, bytes, BYTES), crc32_z(0, bytes, BYTES));
}

static void castagnoli(void **state) {
  (void)state;
  unsigned char bytes[32] = {0};
  assert_int_equal(treadle_crc32c(0, "123456789", 9), 0xe3069283); /* RFC 3720, B.4, and the catalogues */
  assert_int_equal(treadle_crc32c(0, bytes, 32), 0x8a9136aa);
  assert_int_equal(treadle_crc32c(treadle_crc32c(0, bytes, 5), bytes + 5, 27), 0x8a9136aa);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equals_zlib), cmocka_unit_test(castagnoli)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

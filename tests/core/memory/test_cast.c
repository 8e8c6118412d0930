/* src/core/memory/cast.c against its plain twin, bit by bit: all values of the small types, what lies at the borders
 * of fp32, every length and alignment. */
/* ctest: label=kernels */
#include "base/random.h"
#include "memory/cast.h"
#include "memory/copy.h"
#include "test.h"

enum { MOST = 1 << 18, GUARD = 64 };

static char from[MOST * 4 + GUARD], made[MOST * 4 + 2 * GUARD], wanted[MOST * 4 + 2 * GUARD];

static void check(treadle_cast cast, size_t from_off, size_t to_off, size_t count) {
  size_t bytes = count * treadle_dtype_bytes(cast.to);
  memset(wanted, 0x5a, bytes + to_off + GUARD);
  treadle_dtype_convert_add(wanted + to_off, cast.to, from + from_off, cast.from, cast.add, count);
  for (int stream = 0; stream < 2; stream++) {
    memset(made, 0x5a, bytes + to_off + GUARD);
    (stream ? treadle_cast_stream : treadle_cast_run)(cast, made + to_off, from + from_off, count);
    treadle_copy_fence();
    if (memcmp(made, wanted, bytes + to_off + GUARD) == 0) continue;
    size_t at = 0;
    while (made[at] == wanted[at]) at++;
    fail_msg("%s to %s, %+d, %zu values, offsets %zu and %zu: byte %zu", treadle_dtype_name(cast.from),
             treadle_dtype_name(cast.to), cast.add, count, from_off, to_off, at);
  }
}

/* Calls `check` for each destination type and addition. */
static void check_all(treadle_dtype dtype, size_t from_off, size_t to_off, size_t count) {
  for (int to = TREADLE_FP32; to <= TREADLE_FP8_E4M3; to++)
    for (int add = -1; add <= 1; add++)
      check((treadle_cast){.to = (treadle_dtype)to, .from = dtype, .add = add}, from_off, to_off, count);
}

static void all_values(void **state) {
  (void)state;
  if (!treadle_cast_supported()) skip();
  for (int i = 0; i < 256; i++) from[i] = (char)i;
  check_all(TREADLE_FP8_E4M3, 0, 0, 256);
  for (uint32_t i = 0; i < 0x10000; i++) memcpy(from + i * 2, &(uint16_t){(uint16_t)i}, 2);
  check_all(TREADLE_BF16, 0, 0, 0x10000);
  check_all(TREADLE_FP16, 0, 0, 0x10000);
  for (uint32_t i = 0; i < MOST; i++) { /* borders of bf16 */
    static const uint32_t lower[] = {0, 0x7fff, 0x8000, 0x8001};
    uint32_t bits = i / 4 << 16 | lower[i % 4];
    memcpy(from + i * 4, &bits, 4);
  }
  check_all(TREADLE_FP32, 0, 0, MOST);
  for (uint32_t i = 0; i < MOST;
       i++) { /* half-way values of fp16, and beside them; those of fp8 are among them */
    uint32_t bits = 0x33000000 + i / 3 * 0x1000 + i % 3 - 1;
    memcpy(from + i * 4, &bits, 4);
  }
  check_all(TREADLE_FP32, 0, 0, MOST);
  treadle_random random = {5};
  for (uint32_t i = 0; i < MOST * 4; i++) from[i] = (char)treadle_random_next(&random);
  check_all(TREADLE_FP32, 0, 0, MOST);
}

static void all_lengths(void **state) {
  (void)state;
  if (!treadle_cast_supported()) skip();
  treadle_random random = {6};
  for (uint32_t i = 0; i < 1 << 14; i++) from[i] = (char)treadle_random_next(&random);
  for (int dtype = TREADLE_FP32; dtype <= TREADLE_FP8_E4M3; dtype++) {
    for (size_t count = 0; count <= 70; count++) check_all((treadle_dtype)dtype, 1, count % 3, count);
    for (size_t off = 0; off <= 64; off++) check_all((treadle_dtype)dtype, off % 5, off, 500 + off * 3);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_values), cmocka_unit_test(all_lengths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

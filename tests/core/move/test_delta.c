/* Deltas: against a plain writer and a plain reader that are written here a second time, byte by byte and for each element alone;
 * all patterns of few elements, all deltas of few bytes, random ones; and what deltas of weights cost. ctest: optimise */
#include "move/delta.h"

#include "base/random.h"
#include "test.h"

#include <stdbool.h>

static const size_t sizes[] = {1, 2, 4};

static uint64_t drawn; /* the seed of the random test that runs; 0: none */

static int tell_seed(void **state) {
  (void)state;
  if (drawn) print_error("seed %llu\n", (unsigned long long)drawn);
  drawn = 0;
  return 0;
}

/* ---- The plain twins ---- */

typedef struct plain {
  uint8_t bytes[1 << 16];
  size_t count;
} plain;

static void plain_number(plain *p, size_t number) {
  while (number > 127) {
    p->bytes[p->count++] = (uint8_t)(number % 128 + 128);
    number /= 128;
  }
  p->bytes[p->count++] = (uint8_t)number;
}

static void plain_values(plain *p, const uint8_t *values, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) p->bytes[p->count++] = values[i];
}

static bool differs(const uint8_t *old, const uint8_t *now, size_t i, size_t each) {
  for (size_t byte = i * each; byte < (i + 1) * each; byte++)
    if (old[byte] != now[byte]) return true;
  return false;
}

/* Runs of at most `longest` changed elements; false where nothing has changed. */
static bool plain_positions(plain *p, const uint8_t *old, const uint8_t *now, size_t count, size_t each,
                            bool alone) {
  size_t last = 0;
  p->count = 0;
  p->bytes[p->count++] = alone ? 1 : 2;
  for (size_t i = 0; i < count; i++) {
    size_t end = i;
    while (end < count && differs(old, now, end, each) && (!alone || end == i)) end++;
    if (end == i) continue;
    plain_number(p, i - last);
    if (!alone) plain_number(p, end - i - 1);
    plain_values(p, now + i * each, (end - i) * each);
    last = end;
    i = end - 1;
  }
  return p->count > 1;
}

/* The shortest form: dense, then runs, then gaps where they have as many bytes. */
static const plain *plain_write(const uint8_t *old, const uint8_t *now, size_t count, size_t each) {
  static plain dense, runs, gaps;
  dense.count = 0;
  if (!plain_positions(&runs, old, now, count, each, false)) return &dense;
  plain_positions(&gaps, old, now, count, each, true);
  dense.bytes[dense.count++] = 0;
  plain_values(&dense, now, count * each);
  const plain *best = runs.count < dense.count ? &runs : &dense;
  return gaps.count < best->count ? &gaps : best;
}

/* A number of less than 2^63 at *at, or false. */
static bool plain_read(const uint8_t *from, size_t bytes, size_t *at, uint64_t *number) {
  *number = 0;
  for (int digit = 0; digit < 9 && *at < bytes; digit++) {
    uint8_t byte = from[(*at)++];
    *number += (uint64_t)(byte % 128) << (7 * digit);
    if (byte < 128) return true;
  }
  return false;
}

/* Applies to `values`, whatever becomes of it; false: it is not a delta. */
static bool plain_apply(const uint8_t *from, size_t bytes, size_t count, size_t each, uint8_t *values) {
  size_t at = 1, i = 0;
  if (bytes == 0) return true;
  if (bytes == 1 || from[0] > 2 || (from[0] == 0 && bytes != 1 + count * each)) return false;
  if (from[0] == 0) {
    for (size_t byte = 1; byte < bytes; byte++) values[byte - 1] = from[byte];
    return true;
  }
  while (at < bytes) {
    uint64_t gap, length = 0;
    if (!plain_read(from, bytes, &at, &gap)) return false;
    if (from[0] == 2 && !plain_read(from, bytes, &at, &length)) return false;
    for (; gap > 0 && i < count; gap--) i++;
    if (gap > 0) return false;
    for (length++; length > 0; length--, i++)
      for (size_t byte = 0; byte < each; byte++) {
        if (i >= count || at >= bytes) return false;
        values[i * each + byte] = from[at++];
      }
  }
  return true;
}

/* ---- There and back ---- */

/* A copy in a block of just its size, off any alignment of more than a byte where `off` is. */
static uint8_t *exact(const void *bytes, size_t count, size_t off) {
  uint8_t *copy = malloc(count + off + 1);
  assert_non_null(copy);
  if (count) memcpy(copy + off, bytes, count);
  return copy;
}

/* Writes the delta and applies it; its bytes. With `same`, they are those of the plain writer. */
static size_t there_and_back(const uint8_t *old, const uint8_t *now, size_t count, size_t each, bool same) {
  size_t most = treadle_delta_most(count, each);
  uint8_t *to = malloc(most), *values = exact(old, count * each, 1);
  assert_non_null(to);
  size_t bytes = treadle_delta_write(old, now, count, each, to);
  assert_true(bytes <= most);
  if (same) {
    const plain *wanted = plain_write(old, now, count, each);
    assert_int_equal(bytes, wanted->count);
    assert_memory_equal(to, wanted->bytes, bytes);
  }
  uint8_t *from = exact(to, bytes, 0);
  assert_ok(treadle_delta_apply(from, bytes, count, each, values + 1));
  assert_memory_equal(values + 1, now, count * each);
  free(from);
  free(values);
  free(to);
  return bytes;
}

static void fill(treadle_random *random, uint8_t *values, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) values[i] = (uint8_t)treadle_random_next(random);
}

/* Changes one byte of an element, or all of them. */
static void change(treadle_random *random, uint8_t *value, size_t each) {
  uint64_t draw = treadle_random_next(random);
  for (size_t byte = 0; byte < each; byte++)
    if (draw % 2 || byte == draw / 2 % each) value[byte] ^= (uint8_t)(1 + (draw >> 8 * byte >> 8) % 255);
}

/* Each pattern of changes in up to 12 elements. */
static void test_all_patterns(void **state) {
  (void)state;
  treadle_random random = {1};
  for (size_t s = 0; s < TEST_COUNT(sizes); s++)
    for (size_t count = 0; count <= 12; count++)
      for (unsigned pattern = 0; pattern < 1u << count; pattern++) {
        uint8_t old[12 * 4], now[12 * 4];
        fill(&random, old, sizeof old);
        memcpy(now, old, sizeof now);
        for (size_t i = 0; i < count; i++)
          if (pattern >> i & 1) change(&random, now + i * sizes[s], sizes[s]);
        size_t bytes = there_and_back(old, now, count, sizes[s], true);
        assert_int_equal(bytes == 0, pattern == 0);
      }
}

/* One run, with its begin and end around the borders of blocks, of stretches and of numbers. */
static void test_borders(void **state) {
  (void)state;
  static const size_t places[] = {0,   1,   2,   62,  63,   64,   65,   126,  127,  128,  129, 130,
                                  191, 192, 255, 256, 1023, 1024, 1025, 1087, 1088, 2048, 4000};
  static uint8_t old[4000 * 4], now[4000 * 4];
  treadle_random random = {2};
  fill(&random, old, sizeof old);
  for (size_t s = 0; s < TEST_COUNT(sizes); s++)
    for (size_t b = 0; b < TEST_COUNT(places); b++)
      for (size_t e = b + 1; e < TEST_COUNT(places); e++)
        for (size_t c = e; c < TEST_COUNT(places); c += 3) {
          memcpy(now, old, sizeof now);
          for (size_t i = places[b]; i < places[e]; i++) change(&random, now + i * sizes[s], sizes[s]);
          there_and_back(old, now, places[c], sizes[s], true);
        }
}

/* Runs and gaps of all lengths, at any alignment. */
static void test_random(void **state) {
  (void)state;
  static uint8_t old[1 << 14], now[1 << 14];
  for (uint64_t seed = 1; seed <= test_seeds(3000); seed++) {
    treadle_random random = {treadle_hash_more(17, drawn = seed)};
    size_t each = sizes[treadle_random_below(&random, 3)], off = (size_t)treadle_random_below(&random, 8);
    size_t count = (size_t)treadle_random_below(&random, (int64_t)((sizeof old - 8) / each));
    int64_t gaps = 1 << treadle_random_below(&random, 13), runs = 1 << treadle_random_below(&random, 13);
    fill(&random, old, sizeof old);
    memcpy(now, old, sizeof now);
    for (size_t i = 0; i < count;) {
      i += (size_t)treadle_random_below(&random, gaps + 1);
      for (int64_t left = treadle_random_between(&random, 1, runs); left > 0 && i < count; left--, i++)
        change(&random, now + off + i * each, each);
    }
    there_and_back(old + off, now + off, count, each, true);
  }
  drawn = 0;
}

/* Elements are bytes: what floating point calls equal may have changed, and what it calls unequal need not have. */
static void test_payloads(void **state) {
  (void)state;
  static const uint16_t half[] = {0x7fc0, 0x7fc1, 0xffc0, 0x7f81, 0x7e00, 0x7e01, 0x0000, 0x8000};
  static const uint32_t single[] = {0x7fc00000, 0x7fc00001, 0xffc00000, 0x7f800001, 0, 0x80000000};
  for (size_t a = 0; a < TEST_COUNT(half); a++)
    for (size_t b = 0; b < TEST_COUNT(half); b++) {
      uint16_t old[200], now[200];
      for (size_t i = 0; i < 200; i++) old[i] = now[i] = half[i % TEST_COUNT(half)];
      old[150] = half[a];
      now[150] = half[b];
      size_t bytes = there_and_back((const uint8_t *)old, (const uint8_t *)now, 200, 2, true);
      assert_int_equal(bytes, a == b ? 0 : 1 + 2 + 2); /* form, a gap of 150, value */
    }
  for (size_t a = 0; a < TEST_COUNT(single); a++)
    for (size_t b = 0; b < TEST_COUNT(single); b++) {
      uint32_t old[70], now[70];
      for (size_t i = 0; i < 70; i++) old[i] = now[i] = single[i % TEST_COUNT(single)];
      old[66] = single[a];
      now[66] = single[b];
      size_t bytes = there_and_back((const uint8_t *)old, (const uint8_t *)now, 70, 4, true);
      assert_int_equal(bytes, a == b ? 0 : 1 + 1 + 4);
    }
}

/* ---- What it costs ---- */

/* Bytes of the deltas of 1 MiB in blocks, over those of the values, where this many of a thousand elements change at random. */
static double cost(size_t block, size_t each, int64_t thousandths) {
  enum { TOTAL = 1 << 20 };
  uint8_t *old = malloc(TOTAL), *now = malloc(TOTAL);
  treadle_random random = {treadle_hash_more(block + each, (uint64_t)thousandths)};
  size_t bytes = 0;
  assert_true(old && now);
  fill(&random, old, TOTAL);
  memcpy(now, old, TOTAL);
  for (size_t i = 0; i < TOTAL / each; i++)
    if (treadle_random_below(&random, 1000) < thousandths) change(&random, now + i * each, each);
  for (size_t at = 0; at < TOTAL; at += block)
    bytes += there_and_back(old + at, now + at, block / each, each, false);
  free(now);
  free(old);
  return (double)bytes / TOTAL;
}

static void test_costs(void **state) {
  (void)state;
  static const size_t blocks[] = {1 << 20, 512};
  for (size_t s = 0; s < TEST_COUNT(sizes); s++)
    for (size_t b = 0; b < TEST_COUNT(blocks); b++) {
      assert_true(cost(blocks[b], sizes[s], 0) == 0);
      assert_true(cost(blocks[b], sizes[s], 10) <= (sizes[s] == 1 ? 0.0275 : 0.025)); /* the bar: 0.05 */
      assert_true(cost(blocks[b], sizes[s], 1000) <= 1 + 1.0 / (double)blocks[b]);    /* the bar: 1.01 */
    }
}

/* ---- What is refused ---- */

/* As the plain reader says: applied, or refused with nothing written. */
static void check_apply(const uint8_t *bytes, size_t count_bytes, size_t count, size_t each) {
  uint8_t before[64], wanted[64];
  assert_true(count * each <= sizeof before);
  for (size_t i = 0; i < sizeof before; i++) before[i] = wanted[i] = (uint8_t)(0xa0 + i);
  uint8_t *from = exact(bytes, count_bytes, 0), *values = exact(before, count * each, 0);
  bool taken = plain_apply(bytes, count_bytes, count, each, wanted);
  treadle_status status = treadle_delta_apply(from, count_bytes, count, each, values);
  assert_int_equal(status, taken ? TREADLE_OK : TREADLE_REFUSED);
  assert_memory_equal(values, taken ? wanted : before, count * each);
  free(values);
  free(from);
}

/* Each string of three bytes, and those of four and five whose bytes are small or near the borders of numbers. */
static void test_all_bytes(void **state) {
  (void)state;
  static const uint8_t digits[] = {0, 1, 2, 3, 4, 5, 0x7f, 0x80, 0x81, 0xff};
  uint8_t bytes[6] = {0};
  for (size_t s = 0; s < TEST_COUNT(sizes); s++) {
    for (unsigned form = 0; form < 256; form++) {
      bytes[0] = (uint8_t)form;
      for (size_t length = 0; length <= 1; length++) check_apply(bytes, length, 5, sizes[s]);
      for (unsigned i = 0; i < (form < 4 ? 65536 : 256); i++) {
        bytes[1] = (uint8_t)i;
        bytes[2] = (uint8_t)(i >> 8);
        check_apply(bytes, form < 4 ? 3 : 2, (i >> 4) % 5, sizes[s]);
      }
    }
    for (unsigned i = 0; i < 300000; i += (unsigned)test_step(20)) {
      unsigned left = i / 3;
      bytes[0] = (uint8_t)(i % 3);
      for (size_t byte = 1; byte < sizeof bytes; byte++, left /= TEST_COUNT(digits))
        bytes[byte] = digits[left % TEST_COUNT(digits)];
      check_apply(bytes, sizeof bytes - i % 2, 5, sizes[s]);
    }
  }
}

/* Deltas cut off anywhere, and with any byte changed. */
static void test_broken(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(600); seed++) {
    treadle_random random = {treadle_hash_more(18, drawn = seed)};
    size_t each = sizes[treadle_random_below(&random, 3)], count = 60 / each;
    uint8_t old[64], now[64], delta[65];
    for (size_t i = 0; i < sizeof old; i++) old[i] = now[i] = (uint8_t)(0xa0 + i);
    for (size_t i = (size_t)treadle_random_below(&random, 8); i < count;
         i += (size_t)treadle_random_between(&random, 1, 9))
      change(&random, now + i * each, each);
    size_t bytes = treadle_delta_write(old, now, count, each, delta);
    for (size_t cut = 0; cut <= bytes; cut++) check_apply(delta, cut, count, each);
    for (size_t at = 0; at < bytes; at++)
      for (int bit = 0; bit < 8; bit++) {
        delta[at] ^= (uint8_t)(1 << bit);
        check_apply(delta, bytes, count, each);
        check_apply(delta, bytes, count - 1, each);
        delta[at] ^= (uint8_t)(1 << bit);
      }
  }
  drawn = 0;
}

static void test_reasons(void **state) {
  (void)state;
  uint8_t values[40] = {0};
  assert_ok(treadle_delta_apply(NULL, 0, 0, 2, NULL));
  assert_ok(treadle_delta_apply(NULL, 0, 10, 4, values));
  assert_refused("a delta of 2 bytes begins with 3, which is not a form",
                 treadle_delta_apply("\3\1", 2, 10, 4, values));
  assert_refused("has a form, 0, and nothing behind it", treadle_delta_apply("", 1, 0, 4, NULL));
  assert_refused("a dense delta of 10 elements of 2 bytes has 20 bytes, not 21",
                 treadle_delta_apply("\0abcdefghijklmnopqrst", 20, 10, 2, values));
  assert_refused("a delta of 10 elements has 1 from element 10 on, at byte 4",
                 treadle_delta_apply("\1\2ab\7cd", 7, 10, 2, values));
  assert_refused("a delta of 10 elements has 5 from element 6 on, at byte 1",
                 treadle_delta_apply("\2\6\4abcdefghij", 13, 10, 2, values));
  assert_refused("a delta of 4 bytes ends before 2 values of 1 bytes, at byte 3",
                 treadle_delta_apply("\2\6\1a", 4, 10, 1, values));
  assert_refused("or has one of more than 63 bits, at byte 1",
                 treadle_delta_apply("\1\x80\x80\x80\x80\x80\x80\x80\x80\x80\1a", 12, 10, 1, values));
  assert_refused("a delta of 10 elements has 9223372036854775808 from element 0 on, at byte 1",
                 treadle_delta_apply("\2\0\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11, 10, 1, values));
  assert_refused("a delta of 2 bytes ends in a number", treadle_delta_apply("\1\x80", 2, 10, 1, values));
  for (size_t i = 0; i < sizeof values; i++) assert_int_equal(values[i], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_patterns),
      cmocka_unit_test(test_borders),
      cmocka_unit_test_teardown(test_random, tell_seed),
      cmocka_unit_test(test_payloads),
      cmocka_unit_test(test_costs),
      cmocka_unit_test(test_all_bytes),
      cmocka_unit_test_teardown(test_broken, tell_seed),
      cmocka_unit_test(test_reasons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

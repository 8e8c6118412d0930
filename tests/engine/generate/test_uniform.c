/* Random numbers: the published answers of Philox, and whether neighbours of seed, sample and position are independent. */
#include "generate/uniform.h"

#include "test.h"

#include <math.h>

/* Of the authors' kat_vectors, philox4x32, 10 rounds. */
static void test_published(void **state) {
  (void)state;
  static const uint32_t vectors[3][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
       0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
       0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    treadle_philox(vectors[i], vectors[i] + 4, out);
    assert_memory_equal(out, vectors[i] + 6, sizeof out);
  }
}

enum { BINS = 256, DRAWS = 1 << 17 };

/* Chi-square of pairs of neighbours in 16 x 16 bins: 255 degrees of freedom; above 347 or below 179 once in 10,000. */
static double chi_of_pairs(double (*number)(int64_t i)) {
  int64_t seen[BINS] = {0};
  double chi = 0, wanted = (double)DRAWS / BINS;
  for (int64_t i = 0; i < DRAWS; i++) {
    double a = number(i), b = number(i + 1);
    assert_true(a >= 0 && a < 1);
    seen[(int)(a * 16) * 16 + (int)(b * 16)]++;
  }
  for (int i = 0; i < BINS; i++) chi += ((double)seen[i] - wanted) * ((double)seen[i] - wanted) / wanted;
  return chi;
}

static double by_position(int64_t i) { return treadle_uniform(0, 0, i); }
static double by_sample(int64_t i) { return treadle_uniform(0, i, 17); }
static double by_seed(int64_t i) { return treadle_uniform(i, 0, 17); }
static double by_request(int64_t i) { return treadle_uniform(treadle_seed_of_request(0, i), 0, 17); }
static double by_run(int64_t i) { return treadle_uniform(treadle_seed_of_request(i, 3), 0, 17); }
static double by_negative(int64_t i) { return treadle_uniform(-i, INT64_MAX, INT64_MAX - i); }
static double by_high(int64_t i) { return treadle_uniform(i << 32, 0, 5); }

static void test_chi_square(void **state) {
  (void)state;
  double (*const numbers[])(int64_t) = {by_position, by_sample,   by_seed, by_request,
                                        by_run,      by_negative, by_high};
  for (size_t k = 0; k < TEST_COUNT(numbers); k++) {
    double chi = chi_of_pairs(numbers[k]);
    if (chi < 179 || chi > 347) fail_msg("numbers %zu: chi-square %g", k, chi);
  }
}

/* Each of the 53 bits is set half of the time: within five standard deviations. */
static void test_bits(void **state) {
  (void)state;
  int64_t set[53] = {0};
  for (int64_t i = 0; i < DRAWS; i++) {
    uint64_t bits = (uint64_t)(treadle_uniform(42, 1, i) * 0x1p53);
    for (int b = 0; b < 53; b++) set[b] += bits >> b & 1;
  }
  for (int b = 0; b < 53; b++) assert_true(fabs((double)set[b] - DRAWS / 2.0) < 5 * sqrt(DRAWS) / 2);
}

/* What earlier versions drew is drawn again. */
static void test_fixed(void **state) {
  (void)state;
  assert_true(treadle_uniform(0, 0, 0) == (double)(UINT64_C(0xe169c58d6627e8d5) >> 11) * 0x1p-53);
  assert_true(treadle_uniform(1, 2, 3) != treadle_uniform(1, 3, 2));
  assert_true(treadle_uniform(1, 2, 3) != treadle_uniform(3, 2, 1));
  assert_true(treadle_seed_of_request(0, 1) != treadle_seed_of_request(1, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_chi_square),
                                     cmocka_unit_test(test_bits), cmocka_unit_test(test_fixed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

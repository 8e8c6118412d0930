/* Real numbers as text and back: the same bits, in a locale with a comma too. */
#include "base/random.h"
#include "base/real.h"
#include "test.h"

#include <locale.h>
#include <math.h>

static void reads_numbers_alone(void **state) {
  (void)state;
  static const char *const no[] = {"",    "-",     ".",   "1 ",  " 1",     "0x10",  "inf",
                                   "nan", "1e",    "e5",  "1e+", "1.5e-x", "1..2",  "1,5",
                                   "--1", "1e999", "1_0", "1d5", "+-1",    "${a.b}"};
  static const struct {
    const char *text;
    double value;
  } yes[] = {{"0", 0},       {"-0.5", -0.5},   {"+2", 2},    {".5", 0.5},     {"5.", 5},
             {"1e-6", 1e-6}, {"1.5E+3", 1500}, {"0.1", 0.1}, {"1e308", 1e308}};
  double value;
  for (size_t i = 0; i < TEST_COUNT(no); i++)
    if (treadle_text_to_real(no[i], &value)) fail_msg("'%s' is read as %g", no[i], value);
  for (size_t i = 0; i < TEST_COUNT(yes); i++) {
    assert_true(treadle_text_to_real(yes[i].text, &value));
    assert_true(value == yes[i].value);
  }
}

static void writes_the_fewest_digits(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *text;
  } rows[] = {{0, "0"}, {1e-6, "1e-06"}, {0.1, "0.1"},   {0.95, "0.95"},
              {1, "1"}, {-2.5, "-2.5"},  {1000, "1000"}, {-0.0, "-0"}};
  char text[TREADLE_REAL_BYTES];
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_text_of_real(text, rows[i].value);
    assert_string_equal(text, rows[i].text);
  }
}

static void all_bits_come_back(void **state) {
  (void)state;
  treadle_random random = {.state = 20261123};
  char text[TREADLE_REAL_BYTES];
  if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) printf("no locale with a comma here\n");
  for (int i = 0; i < 20000; i++) {
    uint64_t bits = treadle_random_next(&random);
    double value, back;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    treadle_text_of_real(text, value);
    assert_null(strchr(text, ','));
    assert_true(treadle_text_to_real(text, &back));
    assert_memory_equal(&value, &back, sizeof value);
  }
  setlocale(LC_NUMERIC, "C");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_numbers_alone),
                                     cmocka_unit_test(writes_the_fewest_digits),
                                     cmocka_unit_test(all_bits_come_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

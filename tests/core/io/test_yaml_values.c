/* What scalars say: as PyYAML (YAML 1.1) reads them, of which the right column is. And a byte order mark before a file. */
#include "test.h"

#include "io/yaml.h"

static const struct {
  const char *text, *number; /* NULL: no number */
} numbers[] = {
    {"17", "17"},
    {"017", "15"},
    {"0", "0"},
    {"00", "0"},
    {"-010", "-8"},
    {"+07", "7"},
    {"0_7", "7"},
    {"1_000", "1000"},
    {"1_0.5", "10.5"},
    {"0x1F", "31"},
    {"0b1_01", "5"},
    {"1:30", "90"},
    {"190:20:30", "685230"},
    {"1:30.5", "90.5"},
    {"-1:30", "-90"},
    {"1e-6", "1e-6"},
    {"007.5", "007.5"},
    {"08", NULL},
    {"0o17", "0o17"},
    {"0x", NULL},
    {"0b2", NULL},
    {"1:60", NULL},
    {"0:30", NULL},
    {"1:", NULL},
    {"64MiB", "64MiB"},
    {"many", "many"},
    {"", ""},
    {"0777777777777777777777777", NULL},
};

static void each_number(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(numbers); i++) {
    char to[TREADLE_YAML_NUMBER];
    const char *number = treadle_yaml_number(numbers[i].text, to);
    if (!numbers[i].number && number) fail_msg("%s is %s, and no number", numbers[i].text, number);
    if (numbers[i].number && (!number || strcmp(number, numbers[i].number) != 0))
      fail_msg("%s is %s, not %s", numbers[i].text, number ? number : "no number", numbers[i].number);
  }
}

static void truths(void **state) {
  (void)state;
  static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"},
                           *const no[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"},
                           *const neither[] = {"y", "n", "1", "0", "tRUE", "oN", "", "truely"};
  bool truth;
  for (size_t i = 0; i < TEST_COUNT(yes); i++) assert_true(treadle_yaml_truth(yes[i], &truth) && truth);
  for (size_t i = 0; i < TEST_COUNT(no); i++) assert_true(treadle_yaml_truth(no[i], &truth) && !truth);
  for (size_t i = 0; i < TEST_COUNT(neither); i++) assert_false(treadle_yaml_truth(neither[i], &truth));
  assert_true(treadle_yaml_is_null("") && treadle_yaml_is_null("~") && treadle_yaml_is_null("Null"));
  assert_false(treadle_yaml_is_null("none"));
}

static void byte_order_marks(void **state) {
  (void)state;
  static const char *const files[] = {("\xef\xbb\xbf"
                                       "a: 'yes'\n"),
                                      "\xef\xbb\xbf# c\na: 'yes'\n", "\xef\xbb\xbf---\na: 'yes'\n"};
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    treadle_arena arena = {0};
    const treadle_yaml *root;
    assert_ok(treadle_yaml_parse("x.yaml", files[i], strlen(files[i]), &arena, &root));
    assert_string_equal(treadle_yaml_text(root, "a", ""), "yes");
    assert_false(treadle_yaml_get(root, "a")->is_plain);
    treadle_arena_release(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_number), cmocka_unit_test(truths),
                                     cmocka_unit_test(byte_order_marks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* src/core/base/json.h: values as Python writes them, which jansson has no place for. */
#include "test.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>

static json_t *read_text(const char *text, bool zeros) {
  const treadle_json_source source = {
      .what = "x.json", .text = text, .count = strlen(text), .zeros = zeros};
  json_t *root = NULL;
  assert_ok(treadle_json_read(&source, &root));
  return root;
}

static void are_no_type(void **state) {
  (void)state;
  static const struct {
    const char *text, *odd, *note;
  } cases[] = {
      {"[NaN]", "NaN", " (line 1: NaN)"},
      {"[\n\n-Infinity]", "-Infinity", " (line 3: -Infinity)"},
      {"[9223372036854775808]", "9223372036854775808", " (line 1: 9223372036854775808, beyond 64 bits)"},
      {"[-9223372036854775809]", "-9223372036854775809", " (line 1: -9223372036854775809, beyond 64 bits)"},
      {"[1e999]", "1e999", " (line 1: 1e999, beyond 64 bits)"},
      {"[\"a\\u0000\"]", "\"a\\u0000\"", "half of a surrogate pair"},
      {"[\"\\ud83d\"]", "\"\\ud83d\"", "half of a surrogate pair"},
      {"[\"\\ude00\\ud83d\"]", "\"\\ude00\\ud83d\"", "half of a surrogate pair"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    json_t *root = read_text(cases[i].text, false), *odd = json_array_get(root, 0);
    assert_false(json_is_number(odd) || json_is_string(odd) || json_is_array(odd) || json_is_null(odd) ||
                 json_is_boolean(odd) || treadle_json_is_object(odd));
    assert_string_equal(treadle_json_odd(odd), cases[i].odd);
    assert_non_null(strstr(treadle_json_note(odd), cases[i].note));
    char *text = treadle_json_dump(root, JSON_COMPACT);
    assert_non_null(strstr(text, cases[i].odd));
    free(text);
    json_decref(root);
  }
}

static void are_numbers_to_some(void **state) {
  (void)state;
  json_t *root = read_text(
      "[NaN, -Infinity, 1e999, 1000000000000000019884624838656, 7, 0.5, \"\\u0000\", \"1\"]", false);
  double reals[8] = {0};
  for (size_t i = 0; i < 8; i++)
    assert_int_equal(treadle_json_to_real(json_array_get(root, i), &reals[i]), i < 6);
  assert_true(isnan(reals[0]));
  assert_true(reals[1] < 0 && isinf(reals[1]) && reals[2] > 0 && isinf(reals[2]));
  assert_true(reals[3] == 1e30 && reals[4] == 7 && reals[5] == 0.5);
  assert_string_equal(treadle_json_note(json_array_get(root, 4)), "");
  json_decref(root);
}

static void zeros_and_pairs(void **state) {
  (void)state;
  json_t *root = read_text("{\"a\\u0000b\": \"\\u0000\\ud83d\\ude00\\u00e9\"}", true);
  json_t *value = json_object_get(root, "a" TREADLE_JSON_ZERO "b");
  assert_int_equal(json_string_length(value), 7);
  assert_memory_equal(json_string_value(value), "\0\xf0\x9f\x98\x80\xc3\xa9", 7);
  char bytes[8], *text = treadle_json_dump(root, JSON_INDENT(2));
  assert_int_equal(treadle_json_key("a" TREADLE_JSON_ZERO "b", bytes), 3);
  assert_memory_equal(bytes, "a\0b", 3);
  assert_string_equal(text, "{\n  \"a\\u0000b\": \"\\u0000\xf0\x9f\x98\x80\xc3\xa9\"\n}");
  free(text);
  json_decref(root);
}

static void marks_and_ends(void **state) {
  (void)state;
  json_t *root = read_text("\xef\xbb\xbf{}", false);
  json_decref(root);
  root = NULL;
  size_t used = 0;
  treadle_json_source source = {
      .what = "x", .text = "\xef\xbb\xbf{}", .count = 5, .line = 1, .used_p = &used};
  assert_refused("x: line 1, column 1: '{' or '[' is expected", treadle_json_read(&source, &root));
  source.text = "{} {} x"; /* of which a part is read */
  assert_ok(treadle_json_read(&source, &root));
  assert_int_equal(used, 2);
  json_decref(root);
  source.used_p = NULL;
  source.one_line = true;
  assert_refused("x, column 4: the end of the text is expected", treadle_json_read(&source, &root));
  for (size_t count = 0; count < 2; count++) { /* no byte behind the count is looked at */
    char *exact = malloc(count + 1);
    memcpy(exact, "[\"", count + 1);
    source = (treadle_json_source){.what = "x", .text = exact, .count = count + 1};
    assert_refused("the text ends where", treadle_json_read(&source, &root));
    free(exact);
  }
}

static void survives_failing_allocations(void **state) {
  (void)state;
  static const char text[] = "{\"a\": [NaN, \"\\ud800\", {\"b\\u0000\": \"\\n\"}], \"c\": 1e999}";
  const treadle_json_source source = {.what = "x", .text = text, .count = sizeof text - 1};
  json_t *root = NULL;
  TEST_EACH_ALLOCATION((json_decref(root), root = NULL, treadle_json_read(&source, &root)));
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(are_no_type), cmocka_unit_test(are_numbers_to_some),
                                     cmocka_unit_test(zeros_and_pairs), cmocka_unit_test(marks_and_ends),
                                     cmocka_unit_test(survives_failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

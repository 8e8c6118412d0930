/* src/core/io/json.c. */
#include "test.h"

#include "io/file.h"
#include "io/json.h"

static treadle_status parse(const char *text) {
  json_t *root = NULL;
  treadle_status status = treadle_json_parse("config.json", text, strlen(text), &root);
  json_decref(root);
  return status;
}

static void takes_documents(void **state) {
  (void)state;
  assert_ok(parse("{}"));
  assert_ok(parse(" [1, 2.5, \"x\", null, true, {\"a\": {\"a\": 1}}] \n"));
  assert_ok(parse("{\"a\": 9223372036854775807, \"\\u00e9\": -9223372036854775808}"));
}

static void refuses(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } bad[] = {
      {"", "config.json: line 1"},
      {"{", "config.json: line 1"},
      {"{\n\"a\": 1,\n\"a\": 2}", "config.json: line 3, column 1: key 'a' stands twice in one object"},
      {"{\"b\": {\"a\": 1, \"a\": 1}}", "key 'a' stands twice"},
      {"{\"a\": 1} x", "the end of the text is expected, not '"},
      {"{\"a\": 1}{}", "the end of the text is expected, not '"},
      {"{\"a\": nan}", "a value is expected, not 'n'"},
      {"{\"a\": +1}", "a value is expected, not '+'"},
      {"{\"a\": -NaN}", "a digit is expected, not 'N'"},
      {"{\"a\": 01}", "line 1, column 7: a number begins with 0"},
      {"{\"a\": \"\\x\"}", "one of \"\\/bfnrtu is expected, not 'x'"},
      {"{\"a\": \"", "the text ends where"},
      {"{'a': 1}", "config.json: line 1"},
      {"{\"a\": 1,}", "config.json: line 1"},
      {"{\"\\ud800\": 1}", "has half of a surrogate pair"},
      {"{\"\xff\": 1}", "line 1, column 3: byte 0xff is not UTF-8"},
      {"1", "'{' or '[' is expected, not '1'"},
      {"\"text\"", "'{' or '[' is expected"},
  };
  for (size_t i = 0; i < TEST_COUNT(bad); i++) assert_refused(bad[i].part, parse(bad[i].text));

  json_t *root = NULL;
  assert_refused("a control character stands in a text",
                 treadle_json_parse("x", "{\"a\": \"\0\"}", 10, &root));
  enum { DEEP = 100000 };
  char *deep = treadle_alloc(DEEP);
  memset(deep, '[', DEEP);
  assert_refused("nested deeper than 2048", treadle_json_parse("x", deep, DEEP, &root));
  treadle_free(deep);
  assert_null(root);
}

static void loads_files(void **state) {
  (void)state;
  char path[128];
  json_t *root = NULL;
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_fails(TREADLE_SYSTEM, path, treadle_json_load(path, &root));
  assert_refused("is a folder", treadle_json_load(folder, &root));
  assert_ok(treadle_file_write(path, "{\"a\": [}", 8));
  assert_refused("config.json: line 1, column 8", treadle_json_load(path, &root));
  assert_null(root);
  assert_ok(treadle_file_write(path, "{\"a\": 7}", 8));
  TEST_EACH_ALLOCATION((json_decref(root), root = NULL, treadle_json_load(path, &root)));
  assert_int_equal(json_integer_value(json_object_get(root, "a")), 7);
  json_decref(root);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(takes_documents), cmocka_unit_test(refuses),
                                     cmocka_unit_test(loads_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

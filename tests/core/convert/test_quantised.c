/* src/core/convert/quantised.c: texts of config.json without quantization_config, all else as it was. */
#include "convert/quantised.h"

#include "io/file.h"
#include "io/json.h"
#include "test.h"

#define FP8 "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"not\": [\"a}\\\"]\"]}"

static const struct {
  const char *text, *wanted; /* NULL: there is nothing to take out */
} texts[] = {
    {"{\"a\": 1, \"quantization_config\": " FP8 ", \"b\": 1e-06}", "{\"a\": 1, \"b\": 1e-06}"},
    {"{\"quantization_config\": " FP8 ", \"b\": 1.0}", "{\"b\": 1.0}"},
    {"{\"a\": [1, {}],\n \"quantization_config\" : " FP8 "\n}\n", "{\"a\": [1, {}]\n}\n"},
    {"{\"quantization_config\":" FP8 "}", "{}"},
    {"{\n  \"a\": 2,\n  \"quantization_config\": {},\n  \"b\": 3\n}", "{\n  \"a\": 2,\n  \"b\": 3\n}"},
    {"{\"text_config\": {\"x\": \"y\", \"quantization_config\": " FP8 "}, \"b\": 3}",
     "{\"text_config\": {\"x\": \"y\"}, \"b\": 3}"},
    {"{\"text_config\": {\"quantization_config\": " FP8 "}, \"quantization_config\": " FP8 "}",
     "{\"text_config\": {}}"},
    {"{\"s\": \"\\\"quantization_config\\\": {\", \"quantization_config\": {\"d\": {}}, \"t\": \"}\"}",
     "{\"s\": \"\\\"quantization_config\\\": {\", \"t\": \"}\"}"},
    {"{\"s\": \"quantization_config\", \"quantization_config_2\": {}}", NULL},
    {"{\"quantization_config\": null}", NULL},
    {"{\"a\": {\"b\": {\"quantization_config\": {}}}}", NULL}, /* not where readers look for it */
    {"{}", NULL},
};

static void members_are_cut_out(void **state) {
  (void)state;
  char path[100];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/config.json", folder);
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    char *got;
    json_t *parsed;
    assert_ok(treadle_file_write(path, texts[i].text, strlen(texts[i].text)));
    assert_ok(treadle_config_unquantised(path, &got));
    if (!texts[i].wanted) {
      assert_null(got);
      continue;
    }
    assert_non_null(got);
    assert_string_equal(got, texts[i].wanted);
    assert_ok(treadle_json_parse("config", got, strlen(got), &parsed));
    json_decref(parsed);
    treadle_free(got);
  }
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(members_are_cut_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

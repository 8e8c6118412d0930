/* Small tokenizers made at random, and what the tokenizers library does with them (tests/data/text/SOURCE.txt). */
#include "golden_support/golden.h"
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

static json_t *root;

static int setup(void **state) {
  (void)state;
  root = golden_load(TREADLE_SOURCE_DIR "/tests/data/text/tokenizers_random.json.gz");
  return root ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  json_decref(root);
  return 0;
}

static const json_t *list(void) { return json_object_get(root, "tokenizers"); }

static treadle_tokenizer *open_number(size_t number) {
  treadle_tokenizer *tokenizer = NULL;
  const json_t *json = json_object_get(json_array_get(list(), number), "json");
  assert_ok(text_open(json_string_value(json), json_string_length(json), &tokenizer));
  return tokenizer;
}

static void check_ids(size_t number, size_t at, const treadle_tokenizer *tokenizer, const json_t *item,
                      bool special) {
  const json_t *text = json_array_get(item, 0), *wanted = json_array_get(item, special ? 1 : 2);
  int32_t *ids;
  size_t count;
  assert_ok(treadle_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), special,
                                     &ids, &count));
  bool same = count == json_array_size(wanted);
  for (size_t i = 0; same && i < count; i++) same = ids[i] == json_integer_value(json_array_get(wanted, i));
  if (!same) fail_msg("tokenizer %zu, text %zu: ids differ: '%s'", number, at, json_string_value(text));
  free(ids);
}

static void encodes(void **state) {
  (void)state;
  size_t done = 0;
  for (size_t number = 0; number < json_array_size(list()); number++) {
    treadle_tokenizer *tokenizer = open_number(number);
    const json_t *cases = json_object_get(json_array_get(list(), number), "cases");
    for (size_t i = 0; i < json_array_size(cases); i++, done++) {
      check_ids(number, i, tokenizer, json_array_get(cases, i), true);
      check_ids(number, i, tokenizer, json_array_get(cases, i), false);
    }
    treadle_tokenizer_close(tokenizer);
  }
  assert_in_range(done, 500, 10000);
}

/* The texts of a stream together; NULL: the tokenizer has none. */
static char *stream_all(const treadle_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        bool special) {
  treadle_text_stream *stream;
  const char *text;
  size_t bytes, length = 0;
  char *all = calloc(1, 1 << 16);
  assert_non_null(all);
  if (treadle_text_stream_create(tokenizer, special, &stream) != TREADLE_OK) {
    free(all);
    return NULL;
  }
  for (size_t i = 0; i <= count; i++) {
    assert_ok(i < count ? treadle_text_stream_put(stream, ids[i], &text, &bytes)
                        : treadle_text_stream_end(stream, &text, &bytes));
    assert_in_range(length + bytes, 0, (1 << 16) - 1);
    memcpy(all + length, text, bytes);
    length += bytes;
  }
  treadle_text_stream_destroy(stream);
  return all;
}

static void decodes(void **state) {
  (void)state;
  size_t streamed = 0;
  for (size_t number = 0; number < json_array_size(list()); number++) {
    treadle_tokenizer *tokenizer = open_number(number);
    const json_t *all = json_object_get(json_array_get(list(), number), "decoded");
    for (size_t i = 0; i < json_array_size(all) * 2; i++) {
      const json_t *item = json_array_get(all, i / 2), *numbers = json_array_get(item, 0);
      bool special = i % 2;
      const char *wanted = json_string_value(json_array_get(item, special ? 2 : 1));
      int32_t ids[64];
      size_t count = json_array_size(numbers), bytes;
      char *text;
      assert_in_range(count, 0, TEST_COUNT(ids));
      for (size_t k = 0; k < count; k++) ids[k] = (int32_t)json_integer_value(json_array_get(numbers, k));
      assert_ok(treadle_tokenizer_decode(tokenizer, ids, count, special, &text, &bytes));
      if (strcmp(text, wanted) != 0)
        fail_msg("tokenizer %zu, ids %zu: wanted '%s', got '%s'", number, i / 2, wanted, text);
      char *together = strstr(wanted, "\xef\xbf\xbd") ? NULL : stream_all(tokenizer, ids, count, special);
      if (together && strcmp(together, wanted) != 0)
        fail_msg("tokenizer %zu, ids %zu: wanted '%s', the stream gave '%s'", number, i / 2, wanted,
                 together);
      streamed += together != NULL;
      free(together);
      free(text);
    }
    treadle_tokenizer_close(tokenizer);
  }
  assert_in_range(streamed, 300, 10000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(encodes), cmocka_unit_test(decodes)};
  return cmocka_run_group_tests(tests, setup, teardown);
}

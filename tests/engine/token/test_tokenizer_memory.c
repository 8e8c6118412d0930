/* Each allocation fails in turn, while tokenizers of all forms are read, and texts and ids go through them. */
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

static const char json[] =
    "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\xe2\x96\x81\": 3, \"<unk>\": 4, "
    "\"<0xC3>\": 5, \"<0xA9>\": 6}, "
    "\"merges\": [\"a b\"], \"unk_token\": \"<unk>\", \"byte_fallback\": true, \"end_of_word_suffix\": "
    "\"\"}, "
    "\"added_tokens\": [{\"id\": 7, \"content\": \"<s>\", \"special\": true}, {\"id\": 8, \"content\": "
    "\"X\", \"normalized\": true}], "
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}, {\"type\": "
    "\"NFC\"}, {\"type\": "
    "\"Replace\", \"pattern\": {\"Regex\": \"z+\"}, \"content\": \"b\"}]}, "
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
    "{\"Regex\": \"[^c&&\\\\w]+\"}, "
    "\"behavior\": \"Isolated\"}, {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}]}, "
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
    "{\"String\": \"\xe2\x96\x81\"}, "
    "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, "
    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
    "\"<s>\"}}, {\"Sequence\": {\"id\": "
    "\"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [7]}}}}";

static const char *folder;

static void put(const char *name, const char *text) { text_write(folder, name, text, strlen(text)); }

static int setup(void **state) {
  (void)state;
  folder = test_folder();
  return 0;
}
static int teardown(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

static treadle_status open_and_close(void) {
  treadle_tokenizer *tokenizer = NULL;
  treadle_status status = treadle_tokenizer_open(folder, &tokenizer);
  assert_true((status == TREADLE_OK) == (tokenizer != NULL));
  treadle_tokenizer_close(tokenizer);
  return status;
}

static treadle_status encode_and_free(const treadle_tokenizer *tokenizer) {
  static const char text[] = "aB zz<s>x X e\xcc\x81 \xc3\xa9";
  int32_t *ids;
  size_t count;
  treadle_status status = treadle_tokenizer_encode(tokenizer, text, strlen(text), true, &ids, &count);
  assert_true((status == TREADLE_OK) == (ids != NULL));
  free(ids);
  return status;
}

static const int32_t some_ids[] = {7, 0, 3, 5, 6, 5, 2, 8};

static treadle_status decode_and_free(const treadle_tokenizer *tokenizer) {
  char *text;
  size_t bytes;
  treadle_status status =
      treadle_tokenizer_decode(tokenizer, some_ids, TEST_COUNT(some_ids), true, &text, &bytes);
  assert_true((status == TREADLE_OK) == (text != NULL));
  free(text);
  return status;
}

static treadle_status stream_all(const treadle_tokenizer *tokenizer) {
  treadle_text_stream *stream = NULL;
  const char *text;
  size_t bytes;
  treadle_status status = treadle_text_stream_create(tokenizer, true, &stream);
  for (size_t i = 0; !status && i < TEST_COUNT(some_ids); i++)
    status = treadle_text_stream_put(stream, some_ids[i], &text, &bytes);
  if (!status) status = treadle_text_stream_end(stream, &text, &bytes);
  treadle_text_stream_destroy(stream);
  return status;
}

static void tokenizer_json(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer = NULL;
  put("tokenizer.json", json);
  put("tokenizer_config.json", "{\"eos_token\": \"<s>\"}");
  TEST_EACH_ALLOCATION(open_and_close());
  assert_ok(treadle_tokenizer_open(folder, &tokenizer));
  TEST_EACH_ALLOCATION(encode_and_free(tokenizer));
  TEST_EACH_ALLOCATION(decode_and_free(tokenizer));
  TEST_EACH_ALLOCATION(stream_all(tokenizer));
  treadle_tokenizer_close(tokenizer);
}

static void other_forms(void **state) {
  (void)state;
  static const char *const tokens[] = {" ", "a", " a"};
  char bytes[8000];
  put("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}");
  put("merges.txt", "a b\n");
  put("tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"added_tokens_decoder\": "
                               "{\"3\": {\"content\": \"<s>\"}}}");
  TEST_EACH_ALLOCATION(open_and_close());
  text_write(folder, "x.bin", bytes, text_make_bin(bytes, sizeof bytes, tokens, 3));
  char path[300];
  snprintf(path, sizeof path, "%s/vocab.json", folder);
  unlink(path);
  TEST_EACH_ALLOCATION(open_and_close());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(tokenizer_json, setup, teardown),
                                     cmocka_unit_test_setup_teardown(other_forms, setup, teardown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

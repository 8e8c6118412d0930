/* Which files of a folder are a tokenizer: src/engine/token/tokenizer_open.c, and the forms that are no tokenizer.json. */
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

static const char vocabulary[] = "{\"a\": 0, \"b\": 1, \"ab\": 2, \"\xc4\xa0\": 3, \"1\": 4, \"11\": 5}";
static const char merges[] = "#version: 0.2\na b\r\n1 1\n";
static const char json[] = "{\"model\": {\"vocab\": {\"a\": 7}, \"merges\": []}}";
static const char *folder;

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

static void put(const char *name, const char *text) { text_write(folder, name, text, strlen(text)); }

static void put_bin(const char *name) {
  static const char *const tokens[] = {" ", "a", " a"};
  char bytes[8000];
  text_write(folder, name, bytes, text_make_bin(bytes, sizeof bytes, tokens, 3));
}

/* "" is the folder itself. */
static treadle_status open_file(const char *name, treadle_tokenizer **tokenizer_p) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return treadle_tokenizer_open(path, tokenizer_p);
}

static void expect(const char *name, const char *text, const char *ids) {
  treadle_tokenizer *tokenizer = NULL;
  assert_ok(open_file(name, &tokenizer));
  text_expect(tokenizer, text, true, ids);
  treadle_tokenizer_close(tokenizer);
}

static void refuses(const char *name, const char *part) {
  treadle_tokenizer *tokenizer = NULL;
  assert_refused(part, open_file(name, &tokenizer));
  assert_null(tokenizer);
}

static void first_of_a_folder(void **state) {
  (void)state;
  refuses("", "neither tokenizer.json, nor vocab.json with merges.txt, nor a *.bin of llama2.c");
  refuses("none", "there is no such file or folder");
  put("vocab.json", vocabulary);
  refuses("", "there is vocab.json, but no merges.txt");
  refuses("vocab.json", "needs vocab.json and merges.txt");
  put_bin("small.bin");
  expect("", "a", "1 261");
  put("merges.txt", merges);
  expect("", "ab a", "2 3 0");
  expect("vocab.json", "ab", "2");
  expect("merges.txt", "ab", "2");
  put("tokenizer.json", json);
  expect("", "a", "7");
  expect("config.json", "a", "7"); /* of the model in this folder */
  expect("small.bin", "a", "1 261");
}

static void bins(void **state) {
  (void)state;
  char bytes[8000];
  static const char *const tokens[] = {" ", "a", " a", "aa", "\xc3\xa9"};
  size_t count = text_make_bin(bytes, sizeof bytes, tokens, 5);
  put("weights.bin", "\x07\0\0\0and no more of it");
  put_bin("one.bin");
  expect("", "a", "1 261");
  put_bin("two.bin");
  refuses("", "both one.bin and two.bin are tokenizers of llama2.c");
  text_write(folder, "three.bin", bytes, count);
  expect("three.bin", "aa", "1 261 260"); /* " a" has the better score */
  expect("three.bin", "\xc3\xa9\xc3\xa8", "1 259 263 198 171");
  expect("three.bin", "", "1");
  treadle_tokenizer *tokenizer = NULL;
  assert_ok(open_file("three.bin", &tokenizer));
  text_expect_back(tokenizer, "1 261 260", true, "aa");
  text_expect_back(tokenizer, "261 260 2", false, "aa");
  text_expect_back(tokenizer, "198 172 198", true, "\xc3\xa9\xef\xbf\xbd");
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_EOS), 2);
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_PAD), -1);
  treadle_tokenizer_close(tokenizer);
}

static void bad_bins(void **state) {
  (void)state;
  static const char *const tokens[] = {"a", "a"};
  char bytes[8000], spoiled[8000];
  size_t count = text_make_bin(bytes, sizeof bytes, tokens, 1);
  static const int32_t huge = INT32_MAX, negative = -1;
  text_write(folder, "x.bin", bytes, count - 1);
  refuses("x.bin", "ends in the middle of token 259, which has 1 bytes");
  text_write(folder, "x.bin", bytes, count - 6);
  refuses("x.bin", "ends in the middle of token 259");
  text_write(folder, "x.bin", bytes, 3);
  refuses("x.bin", "has 3 bytes");
  text_write(folder, "x.bin", bytes, count - 9);
  treadle_tokenizer *tokenizer = NULL;
  assert_ok(open_file("x.bin", &tokenizer)); /* without the last one it is whole */
  treadle_tokenizer_close(tokenizer);
  text_write(folder, "x.bin", bytes, 4 + 8 + 5);
  refuses("x.bin", "has 1 tokens; one of llama2.c has at least 259");
  memcpy(spoiled, bytes, count);
  memcpy(spoiled, &huge, 4);
  text_write(folder, "x.bin", spoiled, count);
  refuses("x.bin", "its longest token would have 2147483647 bytes");
  memcpy(spoiled, bytes, count);
  memcpy(spoiled + 8, &negative, 4);
  text_write(folder, "x.bin", spoiled, count);
  refuses("x.bin", "token 0 has -1 bytes");
  memcpy(spoiled + 8, &huge, 4);
  text_write(folder, "x.bin", spoiled, count);
  refuses("x.bin", "token 0 has 2147483647 bytes, at most 1024");
  memcpy(spoiled, bytes, count);
  memset(spoiled + 4, 0xff, 4);
  text_write(folder, "x.bin", spoiled, count);
  refuses("x.bin", "token 0 has no number as its score");
  memcpy(spoiled, bytes, count);
  spoiled[count - 1] = (char)0xff;
  text_write(folder, "x.bin", spoiled, count);
  refuses("x.bin", "token 259 is not UTF-8");
  text_write(folder, "x.bin", spoiled, text_make_bin(spoiled, sizeof spoiled, tokens, 2));
  refuses("x.bin", "token 'a' has two ids: 259 and 260");
}

static void classes(void **state) {
  (void)state;
  put("vocab.json", vocabulary);
  put("merges.txt", merges);
  expect("", "11", "5"); /* GPT-2 keeps numbers together, */
  put("config.json", "{\"model_type\": \"qwen2_moe\"}");
  expect("", "11", "4 4"); /* Qwen2 does not */
  put("config.json", "{\"model_type\": \"mixtral\"}");
  refuses("", "a model of type 'mixtral'");
  put("tokenizer_config.json", "{\"tokenizer_class\": \"GPT2TokenizerFast\"}");
  expect("", "11", "5");
  put("tokenizer_config.json", "{\"tokenizer_class\": \"CLIPTokenizer\"}");
  refuses("", "tokenizer_class 'CLIPTokenizer' is not known here");
  put("tokenizer_config.json", "{\"add_prefix_space\": true, \"tokenizer_class\": \"GPT2Tokenizer\"}");
  expect("", "ab", "3 2");
}

static void added(void **state) {
  (void)state;
  put("vocab.json", vocabulary);
  put("merges.txt", merges);
  put("tokenizer_config.qwen.json",
      "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"added_tokens_decoder\": {\"7\": {\"content\": \"<t>\", "
      "\"special\": false, "
      "\"normalized\": false}, \"6\": {\"content\": \"<s>\", \"special\": false}}, \"eos_token\": "
      "{\"content\": \"<s>\"}, "
      "\"pad_token\": null, \"unk_token\": null, \"bos_token\": \"<b>\", \"add_bos_token\": true, "
      "\"additional_special_tokens\": [\"<t>\", \"<u>\"]}");
  expect("", "<s>a<t><u>", "8 6 0 7 9");
  expect("tokenizer_config.qwen.json", "<s>", "8 6");
  treadle_tokenizer *tokenizer = NULL;
  treadle_token_info info = TREADLE_INIT(treadle_token_info);
  assert_ok(open_file("", &tokenizer));
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_EOS), 6);
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_BOS), 8);
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_PAD), -1);
  assert_ok(treadle_tokenizer_token(tokenizer, 6, &info));
  assert_true(info.special); /* because eos_token names it */
  assert_ok(treadle_tokenizer_token(tokenizer, 7, &info));
  assert_false(info.special);
  treadle_tokenizer_close(tokenizer);
  put("tokenizer_config.json", "{\"added_tokens_decoder\": {\"9\": {\"content\": \"<t>\"}}}");
  refuses("", "added_tokens_decoder: 9: added token '<t>' has the id 9");
  put("tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<t>\"}}}");
  refuses("", "'x' is not an id");
  put("tokenizer_config.json", "{\"split_special_tokens\": true}");
  refuses("", "tokenizer_config.json: split_special_tokens is true");
}

static void bad_merges(void **state) {
  (void)state;
  put("vocab.json", vocabulary);
  put("merges.txt", "#version: 0.2\na b\na\n");
  refuses("", "merges.txt: line 3 is not two tokens and a space");
  put("merges.txt", "a b\na c\n");
  refuses("", "merges.txt: line 2: merge 1 needs the token 'c'");
  put("merges.txt", "a b\n\xff\n");
  refuses("", "merges.txt: byte 4 is not UTF-8");
  put("merges.txt", "");
  expect("", "ab", "0 1");
  put("vocab.json", "{\"a\": 0, \"b\": 0}");
  refuses("", "vocab.json: id 0 is that of two tokens");
}

/* Special tokens beside tokenizer.json: of tokenizer_config.json, else of special_tokens_map.json. */
static void special(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer = NULL;
  put("tokenizer.json", "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}");
  put("special_tokens_map.json", "{\"eos_token\": {\"content\": \"a\"}, \"bos_token\": \"none\"}");
  assert_ok(open_file("", &tokenizer));
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_EOS), 0);
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_BOS), 2); /* added, as transformers does */
  assert_int_equal(treadle_tokenizer_count(tokenizer), 3);
  treadle_tokenizer_close(tokenizer);
  put("tokenizer_config.json", "{\"eos_token\": \"b\"}");
  assert_ok(open_file("tokenizer.json", &tokenizer));
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_EOS), 1);
  treadle_tokenizer_close(tokenizer);
  put("tokenizer_config.json", "{\"eos_token\": 7}");
  refuses("", "tokenizer_config.json: eos_token is not a text");
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {IN_A_FOLDER(first_of_a_folder),
                                     IN_A_FOLDER(bins),
                                     IN_A_FOLDER(bad_bins),
                                     IN_A_FOLDER(classes),
                                     IN_A_FOLDER(added),
                                     IN_A_FOLDER(bad_merges),
                                     IN_A_FOLDER(special)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

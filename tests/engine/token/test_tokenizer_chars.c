/* Tokenizers of single characters: char_ords of tokenizer_config.json, alone and with a chat template (examples/sequence). */
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

#define SEQUENCE TREADLE_SOURCE_DIR "/examples/sequence"

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

static void put(const char *name, const char *json) {
  char text[600];
  snprintf(text, sizeof text, "%s", json);
  for (char *at = text; *at; at++)
    if (*at == '\'') *at = '"';
  text_write(folder, name, text, strlen(text));
}

static treadle_tokenizer *open_sequence(void) {
  treadle_tokenizer *tokenizer = NULL;
  assert_ok(treadle_tokenizer_open(SEQUENCE, &tokenizer));
  return tokenizer;
}

static void texts(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer = open_sequence();
  assert_int_equal(treadle_tokenizer_count(tokenizer), 16);
  text_expect(tokenizer, "8,3:9,4S", true, "12 14 7 15 13 14 8 0");
  text_expect(tokenizer, "0123456789,:", false, "4 5 6 7 8 9 10 11 12 13 14 15");
  text_expect(tokenizer, "SEPU", true, "0 1 2 3");
  text_expect(tokenizer, "1 x\xc3\xa9\xf0\x9f\x98\x80\n2", true,
              "5 3 3 3 3 3 6"); /* each of them is unknown */
  text_expect(tokenizer, "", true, "");
  text_expect_back(tokenizer, "12 14 7 15 13 14 8 0 1 2 3", true, "8,3:9,4SEPU");
  text_expect_back(tokenizer, "12 14 7 0 4 1 2 2", false, "8,30"); /* no blanks, no special tokens */
  treadle_tokenizer_close(tokenizer);
}

static void facts(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer = open_sequence();
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_BOS), -1);
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_EOS), 1);
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_PAD), 2);
  assert_int_equal(treadle_tokenizer_special(tokenizer, TREADLE_UNKNOWN), 3);
  assert_int_equal(treadle_tokenizer_find(tokenizer, ":", 1), 15);
  for (int32_t id = 0; id < 16; id++) {
    treadle_token_info info = TREADLE_INIT(treadle_token_info);
    assert_ok(treadle_tokenizer_token(tokenizer, id, &info));
    assert_int_equal(info.special, id < 4);
    assert_int_equal(info.text[0], "SEPU0123456789,:"[id]);
    assert_int_equal(info.bytes, 1);
  }
  treadle_tokenizer_close(tokenizer);
}

static void stream(void **state) {
  (void)state;
  static const int32_t ids[] = {12, 14, 1, 7, 3};
  static const char *const given[] = {"8", ",", "", "3", ""};
  treadle_tokenizer *tokenizer = open_sequence();
  treadle_text_stream *stream = NULL;
  const char *text;
  size_t bytes;
  assert_ok(treadle_text_stream_create(tokenizer, false, &stream));
  for (size_t i = 0; i < TEST_COUNT(ids); i++) {
    assert_ok(treadle_text_stream_put(stream, ids[i], &text, &bytes));
    assert_string_equal(text, given[i]);
  }
  treadle_text_stream_destroy(stream);
  treadle_tokenizer_close(tokenizer);
}

static void expect_chat(const char *path, const char *messages, const char *variables, const char *wanted) {
  const treadle_chat_options options = {.struct_size = sizeof options, .variables = variables};
  treadle_chat *chat = NULL;
  char *text;
  size_t bytes;
  assert_ok(treadle_chat_open(path, &chat));
  assert_ok(treadle_chat_render(chat, messages, &options, &text, &bytes));
  assert_string_equal(text, wanted);
  free(text);
  treadle_chat_close(chat);
}

#define PROMPT "[{\"role\": \"user\", \"content\": \"8,3:9,4\"}]"

static void chats(void **state) {
  (void)state;
  char path[300];
  expect_chat(SEQUENCE, PROMPT, "{\"add_generation_prompt\": true}", "8,3:9,4S");
  expect_chat(SEQUENCE "/tokenizer_config.json", PROMPT, "{\"add_generation_prompt\": true}", "8,3:9,4S");
  expect_chat(SEQUENCE, PROMPT, NULL, "8,3:9,4");
  put("tokenizer_config.json", "{'char_ords': [48], 'chat_template': '{{ sep_token }}{{ eos_token }}{{ "
                               "pad_token }}{{ unk_token }}'}");
  expect_chat(folder, PROMPT, NULL, "SEPU");
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  expect_chat(path, PROMPT, NULL, "SEPU");
}

/* Characters of any length, and a class that says its name. */
static void characters(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer = NULL;
  put("tokenizer_config.json",
      "{'char_ords': [128512, 0, 233, 97], 'chat_template': '', 'tokenizer_class': 'CharTokenizer', "
      "'eos_token': 'E', 'sep_token': {'content': 'S'}, 'pad_token': null}");
  assert_ok(treadle_tokenizer_open(folder, &tokenizer));
  text_expect(tokenizer, "a\xc3\xa9\xf0\x9f\x98\x80z", true, "7 6 4 3");
  text_expect_back(tokenizer, "4 6 7", true,
                   "\xf0\x9f\x98\x80\xc3\xa9"
                   "a");
  int32_t *ids;
  size_t count;
  assert_ok(treadle_tokenizer_encode(tokenizer, "a\0a", 3, true, &ids, &count));
  assert_int_equal(count, 3);
  assert_int_equal(ids[1], 5);
  free(ids);
  treadle_tokenizer_close(tokenizer);
}

#define TEMPLATE ", 'chat_template': ''}"

static const struct {
  const char *json, *part;
} bad[] = {
    {"{'char_ords': 7" TEMPLATE, "char_ords is not a list"},
    {"{'char_ords': []" TEMPLATE, "char_ords is empty"},
    {"{'char_ords': null" TEMPLATE, "char_ords is empty"},
    {"{'char_ords': [48, '0']" TEMPLATE, "char_ords[1] is not a whole number"},
    {"{'char_ords': [48.0]" TEMPLATE, "char_ords[0] is not a whole number"},
    {"{'char_ords': [-1]" TEMPLATE, "char_ords[0] is -1, which is not a character"},
    {"{'char_ords': [55296]" TEMPLATE, "char_ords[0] is 55296, which is not a character"},
    {"{'char_ords': [1114112]" TEMPLATE, "char_ords[0] is 1114112, which is not a character"},
    {"{'char_ords': [48, 49, 48]" TEMPLATE,
     "char_ords[2] is 48, '0', which is the token with the id 4 already"},
    {"{'char_ords': [69]" TEMPLATE, "char_ords[0] is 69, 'E', which is the token with the id 1 already"},
    {"{'char_ords': [48]}", "char_ords without a chat_template"},
    {"{'char_ords': [48], 'tokenizer_class': 'CharacterTokenizer'" TEMPLATE,
     "tokenizer_class 'CharacterTokenizer' with char_ords is not known here"},
    {"{'char_ords': [48], 'eos_token': '[SEP]'" TEMPLATE, "eos_token is '[SEP]'; with char_ords it is 'E'"},
    {"{'char_ords': [48", "line 1"},
};

static void bad_files(void **state) {
  (void)state;
  char path[300];
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    treadle_tokenizer *tokenizer = NULL;
    put("tokenizer_config.json", bad[i].json);
    for (int named = 0; named < 2; named++) {
      assert_refused(bad[i].part, treadle_tokenizer_open(named ? path : folder, &tokenizer));
      assert_non_null(strstr(treadle_error_message(), path));
      assert_null(tokenizer);
    }
  }
  treadle_tokenizer *tokenizer = NULL;
  put("tokenizer_config.json", "{}");
  assert_refused("nor char_ords in tokenizer_config.json", treadle_tokenizer_open(folder, &tokenizer));
  assert_refused("needs vocab.json and merges.txt in its folder, or char_ords",
                 treadle_tokenizer_open(path, &tokenizer));
}

/* Files that are tokenizers by themselves go first. */
static void goes_last(void **state) {
  (void)state;
  treadle_tokenizer *tokenizer = NULL;
  put("tokenizer_config.json", "{'char_ords': [97]" TEMPLATE);
  put("tokenizer.json", "{'model': {'vocab': {'a': 7}, 'merges': []}}");
  assert_ok(treadle_tokenizer_open(folder, &tokenizer));
  text_expect(tokenizer, "a", true, "7");
  treadle_tokenizer_close(tokenizer);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(texts),      TEST(facts),     TEST(stream),   TEST(chats),
                                     TEST(characters), TEST(bad_files), TEST(goes_last)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Rows to train on: the tokens of each kind of row and which of them count, lists beside lines, and what is refused. */
#include "test.h"
#include "token/text_files.h"

#include "treadle_loop.h"

#define SEQUENCE TREADLE_SOURCE_DIR "/examples/sequence"

/* Texts of tests: a tokenizer whose words are letters, and a template that writes "<role>content<end>\n" of a message. */
static const char letters[] =
    "{'model': {'vocab': {'a': 0, 'b': 1, 'c': 2, 'd': 3, 'e': 4, '\\n': 5}, 'merges': []}, "
    "'added_tokens': ["
    "{'id': 6, 'content': '<user>', 'special': true}, {'id': 7, 'content': '<assistant>', 'special': "
    "true}, "
    "{'id': 8, 'content': '<end>', 'special': true}, {'id': 9, 'content': '<s>', 'special': true}], "
    "'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>'}}, "
    "{'Sequence': {'id': 'A'}}, {'SpecialToken': {'id': '<end>'}}], 'special_tokens': {'<s>': {'ids': "
    "[9]}, "
    "'<end>': {'ids': [8]}}}}";
static const char turns[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ end }}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

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

/* A tokenizer of the folder with an end token, or without one ("null"), and a template; both are of the spec. */
static treadle_train_rows_spec open_text(const char *tokenizer, const char *end, const char *template) {
  treadle_train_rows_spec spec = {.struct_size = sizeof spec, .what = "it"};
  char text[2000];
  snprintf(text, sizeof text, "%s", tokenizer);
  for (char *at = text; *at; at++)
    if (*at == '\'') *at = '"';
  text_write(folder, "tokenizer.json", text, strlen(text));
  snprintf(text, sizeof text, "{\"eos_token\": %s}", end);
  text_write(folder, "tokenizer_config.json", text, strlen(text));
  treadle_tokenizer *opened = NULL;
  treadle_chat *chat = NULL;
  assert_ok(treadle_tokenizer_open(folder, &opened));
  if (template) {
    text_write(folder, "chat_template.jinja", template, strlen(template));
    assert_ok(treadle_chat_open(folder, &chat));
  }
  spec.tokenizer = opened;
  spec.chat = chat;
  return spec;
}

static treadle_train_rows_spec open_turns(void) {
  char template[300] = "{% set end = '<end>' %}";
  strcat(template, turns);
  return open_text(letters, "\"<end>\"", template);
}

static treadle_train_rows_spec open_sequence(void) {
  treadle_train_rows_spec spec = {.struct_size = sizeof spec, .what = "it"};
  treadle_tokenizer *tokenizer = NULL;
  treadle_chat *chat = NULL;
  assert_ok(treadle_tokenizer_open(SEQUENCE, &tokenizer));
  assert_ok(treadle_chat_open(SEQUENCE, &chat));
  spec.tokenizer = tokenizer;
  spec.chat = chat;
  return spec;
}

static void close_text(treadle_train_rows_spec *spec) {
  treadle_tokenizer_close((treadle_tokenizer *)(uintptr_t)spec->tokenizer);
  treadle_chat_close((treadle_chat *)(uintptr_t)spec->chat);
}

/* ' stands for ". */
static treadle_status read_text(const treadle_train_rows_spec *spec, const char *text,
                                treadle_batch **rows_p) {
  char *copy = strdup(text);
  assert_non_null(copy);
  for (char *at = copy; *at; at++)
    if (*at == '\'') *at = '"';
  treadle_status status = treadle_train_rows_read(spec, copy, strlen(copy), rows_p);
  free(copy);
  return status;
}

/* The tokens of rows and which of them count. */
typedef struct tokens {
  const int64_t *offsets; /* [rows + 1] */
  const int32_t *ids;
  const uint8_t *mask;
} tokens;

static tokens tokens_of(const treadle_batch *rows) {
  treadle_column ids = TREADLE_INIT(treadle_column), mask = TREADLE_INIT(treadle_column);
  assert_int_equal(treadle_batch_column_count(rows), 2);
  assert_ok(treadle_batch_column(rows, "ids", &ids));
  assert_ok(treadle_batch_column(rows, "mask", &mask));
  assert_int_equal(ids.type, TREADLE_COLUMN_INT32);
  assert_int_equal(mask.type, TREADLE_COLUMN_UINT8);
  for (int64_t r = 0; r <= treadle_batch_rows(rows); r++)
    assert_int_equal(ids.offsets[r] - ids.offsets[0], mask.offsets[r] - mask.offsets[0]);
  return (tokens){.offsets = ids.offsets,
                  .ids = ids.data,
                  .mask = (const uint8_t *)mask.data + mask.offsets[0] - ids.offsets[0]};
}

/* Rows as text: "1 2 [3] [4]; 5 [6]", tokens that count in brackets. */
static void expect(const treadle_train_rows_spec *spec, const char *text, const char *wanted) {
  treadle_batch *rows = NULL;
  char said[1000] = "";
  size_t at = 0;
  assert_ok(read_text(spec, text, &rows));
  const tokens t = tokens_of(rows);
  const int64_t count = treadle_batch_rows(rows);
  for (int64_t r = 0; r < count; r++)
    for (int64_t i = t.offsets[r]; i < t.offsets[r + 1]; i++) {
      const char *form = t.mask[i] ? "[%d]%s" : "%d%s";
      const char *behind = i + 1 < t.offsets[r + 1] ? " " : r + 1 < count ? "; " : "";
      at += (size_t)snprintf(said + at, sizeof said - at, form, (int)t.ids[i], behind);
    }
  if (strcmp(said, wanted) != 0) fail_msg("%s\nwanted %s\ngot    %s", text, wanted, said);
  treadle_batch_destroy(rows);
}

/* ---- Kinds ------------------------------------------------------------------------------------------- */

static void ids(void **state) {
  (void)state;
  const treadle_train_rows_spec spec = {.struct_size = sizeof spec};
  expect(
      &spec,
      "{'ids': [5, 6, 7, 8], 'mask': [0, 1, false, true], 'id': 'x'}\n\n {'ids': [1, 2], 'mask': [0, 1]}",
      "5 [6] 7 [8]; 1 [2]");
}

static void texts(void **state) {
  (void)state;
  treadle_train_rows_spec spec = open_turns();
  expect(&spec, "{'text': 'abc'}", "9 [0] [1] [2] [8]");
  expect(&spec, "{'text': '<user>b', 'id': 3}", "9 [6] [1] [8]");
  close_text(&spec);
}

static void responses(void **state) {
  (void)state;
  treadle_train_rows_spec spec = open_sequence();
  expect(&spec, "{'prompt': '8,3:9,2', 'response': '7,2'}", "12 14 7 15 13 14 6 0 [11] [14] [6] [1]");
  expect(&spec, "{'prompt': '8,3:9,0', 'response': '', 'answer': '', 'id': [1], 'data_source': null}",
         "12 14 7 15 13 14 4 0 [1]");
  expect(&spec,
         "{'prompt': [{'role': 'user', 'content': '1'}, {'role': 'assistant', 'content': '2'}, {'role': "
         "'user', 'content': '3'}], 'response': '4'}",
         "5 6 7 0 [8] [1]");
  treadle_chat_close((treadle_chat *)(uintptr_t)spec.chat);
  spec.chat = NULL; /* then a prompt is a text */
  expect(&spec, "{'prompt': '8,', 'response': '3'}", "12 14 [7] [1]");
  close_text(&spec);
  spec = open_text(letters, "\"<end>\"", NULL);
  expect(&spec, "{'prompt': 'a', 'response': 'b'}",
         "9 0 [1] [8]"); /* what begins a text, and not what ends it */
  expect(&spec, "{'prompt': '', 'response': 'b'}", "9 [1] [8]");
  close_text(&spec);
}

static void messages(void **state) {
  (void)state;
  treadle_train_rows_spec spec = open_turns();
  static const char chat[] =
      "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'bc'}, {'role': "
      "'user', 'content': 'd'}, {'role': 'assistant', 'content': 'e'}, {'role': 'user', 'content': 'a'}], "
      "'source': 'x'}";
  expect(&spec, chat, "6 0 8 5 7 [1] [2] [8] 5 6 3 8 5 7 [4] [8]");
  close_text(&spec);
  /* an end token that the tokenizer does not name; and none */
  spec = open_text(letters, "null", NULL);
  char template[300] = "{% set end = '<end>' %}";
  strcat(template, turns);
  text_write(folder, "chat_template.jinja", template, strlen(template));
  treadle_chat *opened = NULL;
  assert_ok(treadle_chat_open(folder, &opened));
  spec.chat = opened;
  expect(&spec, "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]}",
         "6 0 8 5 7 [1] [8]");
  close_text(&spec);
  spec = open_text(letters, "\"<end>\"", turns);
  expect(&spec, "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]}",
         "6 0 5 7 [1] [5]");
  close_text(&spec);
}

/* Where a tokenizer changes the start of a text, a row has the tokens of the whole text; where a token lies across the border, those of
 * the parts. */
static void borders(void **state) {
  (void)state;
  treadle_train_rows_spec spec = open_text(
      "{'model': {'vocab': {'_': 0, 'a': 1, 'b': 2, 'c': 3, 'bc': 4, 'E': 5}, 'merges': ['b c']}, "
      "'normalizer': {'type': 'Prepend', 'prepend': '_'}}",
      "\"E\"", NULL);
  expect(&spec, "{'prompt': 'a', 'response': 'b'}", "0 1 [2] [5]");
  expect(&spec, "{'prompt': 'a', 'response': 'bc'}", "0 1 [4] [5]");
  expect(&spec, "{'prompt': 'ab', 'response': 'c'}", "0 1 2 [0] [3] [5]");
  close_text(&spec);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static void lists(void **state) {
  (void)state;
  treadle_train_rows_spec spec = open_turns();
  static const char *const forms[] = {
      "{'text': 'a'}\n{'ids': [1, 2], 'mask': [0, 1]}\n{'prompt': 'b', 'response': 'c'}",
      "[{'text': 'a'}, {'ids': [1, 2], 'mask': [0, 1]}, {'prompt': 'b', 'response': 'c'}]",
      (" \n[\n{'text'\n: 'a'}\n,\n{'ids': [1, 2], 'mask': [0, 1]} , {'prompt': 'b', 'response': "
       "'c'}\n]\r\n\t")};
  for (size_t i = 0; i < TEST_COUNT(forms); i++)
    expect(&spec, forms[i], "9 [0] [8]; 1 [2]; 6 1 8 5 7 [2] [8]");
  close_text(&spec);
}

/* Many rows, of which each is the one that was written. */
static void many(void **state) {
  (void)state;
  enum { ROWS = 20000, ROOM = ROWS * 40 };
  treadle_train_rows_spec spec = open_sequence();
  for (int list = 0; list < 2; list++) {
    char *text = malloc(ROOM);
    size_t at = 0;
    for (int i = 0; i < ROWS; i++)
      at += (size_t)snprintf(text + at, ROOM - at, "%s{\"prompt\": \"%05d\", \"response\": \"%d\"}%s",
                             list && !i ? "[" : "", i, i % 7,
                             !list          ? "\n"
                             : i + 1 < ROWS ? ",\n"
                                            : "]");
    treadle_batch *rows = NULL;
    assert_ok(treadle_train_rows_read(&spec, text, at, &rows));
    const tokens t = tokens_of(rows);
    assert_int_equal(treadle_batch_rows(rows), ROWS);
    for (int i = 0; i < ROWS; i++) {
      const int32_t *of_row = t.ids + t.offsets[i];
      int number = 0;
      assert_int_equal(t.offsets[i + 1] - t.offsets[i], 8);
      for (int digit = 0; digit < 5; digit++) number = number * 10 + of_row[digit] - 4;
      assert_int_equal(number, i);
      assert_int_equal(of_row[6], 4 + i % 7);
    }
    treadle_batch_destroy(rows);
    free(text);
  }
  close_text(&spec);
}

/* ---- Refusals ---------------------------------------------------------------------------------------- */

#define GOOD "{'ids': [1, 2], 'mask': [0, 1]}"

static const struct {
  const char *text, *part;
} bad[] = {
    {"", "it: has no rows"},
    {" \n\n", "it: has no rows"},
    {"[ ]", "it: has no rows"},
    {"ids", "it: line 1, column 1: '{' or '[' is expected, not 'i'"},
    {GOOD "\n\n{'ids'", "it: line 3, column 7"},
    {GOOD "\n7", "it: line 2"},
    {"[" GOOD ",\n7]", "it: item 1: line 2, column 1: '{' or '[' is expected, not '7'"},
    {"[" GOOD ", [1]]", "it: item 1: not an object"},
    {"[" GOOD "\n,", "it: item 1: line 2"},
    {"[" GOOD "\n,]", "it: item 1: line 2"},
    {"[" GOOD "\n\n" GOOD "]",
     "it: item 0: line 3: behind it stands neither a comma nor the end of the list"},
    {"[" GOOD, "it: item 0: line 1: behind it stands neither"},
    {"[" GOOD "]\n" GOOD, "it: line 2: something stands behind the list"},
    {"[" GOOD ", {'ids': [1, 2], 'mask': [1, 1]}]", "it: item 1: mask[0] must be 0"},
    {"[" GOOD ", {'ids': [1, 2],\n 'ids': [1]}]",
     "it: item 1: line 2, column 2: key 'ids' stands twice in one object"},
    {"{}", "line 1: must have ids and mask, text, prompt and response, or messages"},
    {GOOD "\n{'ids': [1, 2]}", "line 2: mask must be a list of 2 items"},
    {"{'ids': [1, 2], 'mask': [0, 1], 'masks': 3}", "line 1: 'masks' is not a key of a row with ids"},
    {"{'text': 'abc', 'answer': 'b'}", "'answer' is not a key of a row with text"},
    {"{'ids': [1, 2], 'mask': [0, 1], 'text': 'a'}", "has both ids and text"},
    {"{'prompt': 'a', 'messages': []}", "has both"},
    {"{'ids': [1, 2], 'mask': [0, 0]}", "line 1: no token of it counts"},
    {"{'ids': [1], 'mask': [0]}", "line 1: has 1 token; 2 are the least"},
    {"{'ids': [], 'mask': []}", "line 1"},
    {"{'text': ''}", "line 1: text is empty"},
    {"{'text': 7}", "line 1: text must be a text"},
    {"{'text': 'abcdeabcde'}", "line 1: has 12 tokens; a row may have 11"},
    {"{'prompt': 'a', 'answer': 'b'}", "line 1: has a prompt and no response"},
    {"{'prompt': 'a', 'response': null}", "line 1: response must be a text"},
    {"{'prompt': 7, 'response': 'a'}", "line 1: prompt must be a text or a list of messages"},
    {"{'prompt': [], 'response': 'a'}", "line 1: prompt is an empty list"},
    {"{'prompt': [{'content': 'a'}], 'response': 'a'}", "line 1: message 1 has no 'role'"},
    {"{'prompt': 'a', 'response': 'abcdeabcde'}", "line 1: has 16 tokens; a row may have 11"},
    {"{'messages': 'a'}", "line 1: messages must be a list of messages"},
    {"{'messages': []}", "line 1: messages must be a list of messages"},
    {"{'messages': ['a']}", "line 1: messages[0] has no role"},
    {"{'messages': [{'role': 'user', 'content': 'a'}]}", "line 1: no token of it counts"},
    {"{'messages': [{'role': 'assistant', 'content': 'a'}]}", "line 1: messages[0] is the assistant's"},
};

static void refusals(void **state) {
  (void)state;
  treadle_train_rows_spec spec = open_turns();
  treadle_batch *rows = NULL;
  spec.most_tokens = 11;
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    treadle_status status = read_text(&spec, bad[i].text, &rows);
    if (status != TREADLE_REFUSED || !strstr(treadle_error_message(), bad[i].part))
      fail_msg("%s\nstatus %d, message %s\nwanted %s", bad[i].text, (int)status, treadle_error_message(),
               bad[i].part);
    assert_null(rows);
  }
  spec.most_tokens = 0;
  expect(&spec, "{'text': 'abcdeabcde'}", "9 [0] [1] [2] [3] [4] [0] [1] [2] [3] [4] [8]");
  spec.most_tokens = -1;
  assert_refused("most_tokens is -1", read_text(&spec, GOOD, &rows));
  close_text(&spec);
}

/* What rows need and a model does not have. */
static void lacking(void **state) {
  (void)state;
  treadle_batch *rows = NULL;
  treadle_train_rows_spec spec = {.struct_size = sizeof spec, .what = "it"};
  assert_refused("it: line 1: a text needs a tokenizer", read_text(&spec, "{'text': 'a'}", &rows));
  assert_refused("it: line 1: a text needs a tokenizer",
                 read_text(&spec, "{'prompt': 'a', 'response': 'b'}", &rows));
  assert_refused(
      "it: line 1: messages need a chat template",
      read_text(&spec,
                "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]}",
                &rows));
  spec = open_text(letters, "null", NULL);
  assert_refused("it: line 1: the tokenizer has no end token (eos_token)",
                 read_text(&spec, "{'prompt': 'a', 'response': 'b'}", &rows));
  assert_refused(
      "it: line 1: messages need a chat template",
      read_text(&spec, "{'prompt': [{'role': 'user', 'content': 'a'}], 'response': 'b'}", &rows));
  close_text(&spec);
}

/* Templates whose rendering of a chat does not begin with that of its first messages. */
static void not_prefixes(void **state) {
  (void)state;
  static const char chat[] =
      "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}, {'role': "
      "'user', 'content': 'c'}, {'role': 'assistant', 'content': 'd'}]}";
  treadle_batch *rows = NULL;
  treadle_train_rows_spec spec = open_sequence(); /* S is for prompts alone */
  assert_refused(
      "it: line 1: what the chat template writes of the first 2 messages does not begin with what "
      "it writes of those before, up to where the assistant begins",
      read_text(&spec, chat, &rows));
  close_text(&spec);
  spec =
      open_text(letters, "\"<end>\"", /* answers before the last one are left out */
                "{% for m in messages %}<{{ m.role }}>{% if m.role == 'user' or loop.last %}{{ m.content "
                "}}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  assert_refused(
      "it: line 1: what the chat template writes of the first 3 messages does not begin with what "
      "it writes of those before, so",
      read_text(&spec, chat, &rows));
  close_text(&spec);
}

static treadle_status read_all(const treadle_train_rows_spec *spec) {
  treadle_batch *rows = NULL;
  treadle_status status = read_text(
      spec,
      "[{'text': 'a'}, {'prompt': 'a', 'response': 'b'}, {'messages': [{'role': 'user', 'content': "
      "'a'}, {'role': 'assistant', 'content': 'b'}]}, " GOOD "]",
      &rows);
  assert_true(status == TREADLE_OK ? rows != NULL : rows == NULL);
  treadle_batch_destroy(rows);
  return status;
}

static void survives_failing_allocations(void **state) {
  (void)state;
  treadle_train_rows_spec spec = open_turns();
  TEST_EACH_ALLOCATION(read_all(&spec));
  close_text(&spec);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(ids),
                                     TEST(texts),
                                     TEST(responses),
                                     TEST(messages),
                                     TEST(borders),
                                     TEST(lists),
                                     TEST(many),
                                     TEST(refusals),
                                     TEST(lacking),
                                     TEST(not_prefixes),
                                     TEST(survives_failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

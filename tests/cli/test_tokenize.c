/* `treadle tokenize` as a process: what it prints for texts, ids and files, and what it refuses. */
#include "cli/command.h"
#include "cli/engine_folder.h"

#include "test.h"
#include "token/text_files.h"

static const char json[] = "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\xc4\xa0\": 3, "
                           "\"\xc4\x80\": 4, \"\\\"\": 5, \"\xc3\x83\": 6, \"\xc2\xa9\": 7}, "
                           "\"merges\": [\"a b\"]}, \"added_tokens\": [{\"id\": 8, \"content\": \"<s>\", "
                           "\"special\": true}, {\"id\": 9, \"content\": \"<t>\"}], "
                           "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
                           "\"decoder\": {\"type\": \"ByteLevel\"}, "
                           "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                           "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": "
                           "\"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [8]}}}}";

static int setup(void **state) {
  (void)state;
  text_write(command_folder(), "tokenizer.json", json, sizeof json - 1);
  text_write(command_folder(), "tokenizer_config.json", "{\"eos_token\": \"<s>\"}", 20);
  return 0;
}

static void expect_out(const char *arguments, const char *out) {
  command_result result = command_run("tokenize --model %s %s", command_folder(), arguments);
  if (result.exit_status != 0 || strcmp(result.out, out) != 0)
    fail_msg("%s: status %d, wanted:\n%s\ngot:\n%s%s", arguments, result.exit_status, out, result.out,
             result.err);
  command_release(&result);
}

static void expect_refused(const char *arguments, const char *words) {
  command_result result = command_run("tokenize %s", arguments);
  command_expect(&result, 2, words, 1);
  if (*result.out) fail_msg("%s: printed '%s'", arguments, result.out);
  command_release(&result);
}

static void texts_and_ids(void **state) {
  (void)state;
  expect_out("--text 'ab <s>' --json", "{\"text\": \"ab <s>\", \"token_ids\": [8, 2, 3, 8]}\n");
  expect_out("--text 'ab <s>' --json --special off", "{\"text\": \"ab <s>\", \"token_ids\": [2, 3, 8]}\n");
  expect_out("--ids 8,2,9 --json", "{\"text\": \"<s>ab<t>\", \"token_ids\": [8, 2, 9]}\n");
  expect_out("--ids 8,2,9 --json --special=off", "{\"text\": \"ab<t>\", \"token_ids\": [8, 2, 9]}\n");
  expect_out("--ids 4,5,6 --json", "{\"text\": \"\\u0000\\\"\xef\xbf\xbd\", \"token_ids\": [4, 5, 6]}\n");
  expect_out("--text ab",
             "text    ab\ntokens  2\n\n       id  token\n        8  <s>  (eos, special)\n        2  ab\n");
  expect_out(
      "--ids 4,9",
      "text    \\x00...\ntokens  2\n\n       id  token\n        4  \xc4\x80\n        9  <t>  (added)\n");
}

static const char *write_lines(const char *text, size_t bytes) {
  static char path[200];
  text_write(command_folder(), "in.jsonl", text, bytes);
  snprintf(path, sizeof path, "--tokenizer %s --json --file %s/in.jsonl", command_folder(),
           command_folder());
  return path;
}

static void files(void **state) {
  (void)state;
  static const char lines[] =
      "{\"text\": \"a\\u0000b\"}\n{\"token_ids\": [6, 7]}\r\n{\"token_ids\": []}\n{\"text\": \"\"}";
  command_result result = command_run("tokenize %s", write_lines(lines, sizeof lines - 1));
  assert_int_equal(result.exit_status, 0);
  assert_string_equal(result.out,
                      "{\"text\": \"a\\u0000b\", \"token_ids\": [8, 0, 4, 1]}\n"
                      "{\"text\": \"\xc3\xa9\", \"token_ids\": [6, 7]}\n"
                      "{\"text\": \"\", \"token_ids\": []}\n{\"text\": \"\", \"token_ids\": [8]}\n");
  command_release(&result);
}

/* One bad line, behind good ones: nothing is printed. */
static void bad_lines(void **state) {
  (void)state;
  static const struct {
    const char *line, *words;
  } bad[] = {
      {"{\"text\": \"a\"", "in.jsonl: line 2, column"},
      {"[]", "line 2: is not an object"},
      {"", "line 2, column"},
      {"{\"texts\": \"a\"}", "line 2: there is no key 'texts'; did you mean 'text'?"},
      {"{\"text\": \"a\", \"id\": 1}", "line 2: there is no key 'id'"},
      {"{}", "line 2: needs either text, messages or token_ids"},
      {"{\"text\": \"a\", \"token_ids\": [1]}", "line 2: needs either"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "line 2, column"},
      {"{\"text\": 1}", "line 2: text is not a text"},
      {"{\"token_ids\": 1}", "line 2: token_ids is not a list"},
      {"{\"token_ids\": [1, \"a\"]}", "line 2: token_ids[1] is not an id"},
      {"{\"token_ids\": [1, -1]}", "line 2: token_ids[1] is not an id"},
      {"{\"token_ids\": [1, 4294967296]}", "line 2: token_ids[1] is not an id"},
      {"{\"token_ids\": [1, 10]}",
       "line 2: ids[1]: 10 is not an id of this tokenizer: ids are from 0 to 9"},
      {"{\"text\": \"\xff\"}", "line 2, column"},
  };
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    char lines[200];
    int length = snprintf(lines, sizeof lines, "{\"text\": \"a\"}\n%s\n{\"text\": \"b\"}\n", bad[i].line);
    expect_refused(write_lines(lines, (size_t)length), bad[i].words);
  }
  expect_refused(write_lines("", 0), "in.jsonl: is empty");
}

static void bad_arguments(void **state) {
  (void)state;
  char with[200];
  expect_refused("--text a", "--model DIR or --tokenizer FILE is missing");
  expect_refused("--model /nowhere --text a", "/nowhere: there is no such file or folder");
  snprintf(with, sizeof with, "--model %s", command_folder());
  expect_refused(with, "--text, --ids or --file is missing");
  snprintf(with, sizeof with, "--model %s --text a --ids 1", command_folder());
  expect_refused(with, "only one of --text, --ids and --file");
  snprintf(with, sizeof with, "--model %s --ids 1,,2", command_folder());
  expect_refused(with, "--ids: '' is not an id");
  snprintf(with, sizeof with, "--model %s --ids 1,x", command_folder());
  expect_refused(with, "--ids: 'x' is not an id");
  snprintf(with, sizeof with, "--model %s --ids -1", command_folder());
  expect_refused(with, "--ids: '-1' is not an id");
  snprintf(with, sizeof with, "--model %s --ids 99999999999999999999999999", command_folder());
  expect_refused(with, "is not an id: a whole number");
  snprintf(with, sizeof with, "--model %s --ids 77", command_folder());
  expect_refused(with, "77 is not an id of this tokenizer");
  snprintf(with, sizeof with, "--model %s --text '\xff'", command_folder());
  expect_refused(with, "the text is not UTF-8: byte 0");
  snprintf(with, sizeof with, "--model %s --file %s/none", command_folder(), command_folder());
  expect_refused(with, "cannot open");
  snprintf(with, sizeof with, "--model %s --file %s", command_folder(), command_folder());
  expect_refused(with, "is a folder");
}

/* A chat is what the model's template makes of messages: a user's text, or those of a line. */
static void chats(void **state) {
  (void)state;
  const char *model = engine_folder("qwen2-tied");
  char with[300], lines[600];
  static const char asked[] = "{\"text\": \"<s>user:a</s><s>assistant:\", \"token_ids\": [1, 88, 86, 72, "
                              "85, 29, 68, 2, 1, 68, 86, 86, 76, 86, 87, 68, 81, 87, 29]}\n",
                    told[] = "{\"text\": \"<s>u:!</s>\", \"token_ids\": [1, 88, 29, 4, 2]}\n";
  command_result result = command_run("tokenize --model %s --chat --text a --json", model);
  assert_int_equal(result.exit_status, 0);
  assert_string_equal(result.out, asked);
  command_release(&result);
  snprintf(lines, sizeof lines, "%s",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
           "{\"messages\": [{\"role\": \"u\", \"content\": \"!\"}], \"add_generation_prompt\": "
           "false}\n");
  text_write(command_folder(), "in.jsonl", lines, strlen(lines));
  for (int chat = 0; chat < 2; chat++) { /* messages are a chat in either case */
    result = command_run("tokenize --tokenizer %s/tokenizer.json --file %s/in.jsonl --json %s", model,
                         command_folder(), chat ? "--chat" : "");
    snprintf(lines, sizeof lines, "%s%s", asked, told);
    assert_int_equal(result.exit_status, 0);
    assert_string_equal(result.out, lines);
    command_release(&result);
  }
  text_write(command_folder(), "in.jsonl", "{\"text\": \"a\"}\n", 14);
  result = command_run("tokenize --model %s --file %s/in.jsonl --json --chat", model, command_folder());
  assert_string_equal(result.out, asked);
  command_release(&result);
  snprintf(with, sizeof with, "--model %s --chat --ids 1", model);
  expect_refused(with, "--chat goes with --text and --file");
  snprintf(with, sizeof with, "--model %s --chat --text a", command_folder());
  expect_refused(with, "chat template");
}

static void bad_chats(void **state) {
  (void)state;
  static const struct {
    const char *line, *words;
  } bad[] = {
      {"{\"messages\": []}", "line 2: messages must be a list with at least one message"},
      {"{\"messages\": 1}", "line 2: messages must be a list"},
      {"{\"messages\": [{\"role\": \"bad\"}]}", "no such role"},
      {"{\"messages\": [1]}", "line 2: "},
      {"{\"messages\": [{\"role\": \"u\"}], \"add_generation_prompt\": 1}",
       "line 2: add_generation_prompt must be true or false"},
      {"{\"text\": \"a\", \"add_generation_prompt\": true}",
       "line 2: add_generation_prompt goes with messages"},
      {"{\"text\": \"a\", \"messages\": [{\"role\": \"u\"}]}", "line 2: needs either text, messages or"},
      {"{\"token_ids\": [1]}", "line 2: --chat takes text and messages, not token_ids"},
  };
  const char *model = engine_folder("qwen2-tied");
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    char line[300], with[300];
    snprintf(line, sizeof line, "{\"text\": \"a\"}\n%s\n", bad[i].line);
    text_write(command_folder(), "in.jsonl", line, strlen(line));
    snprintf(with, sizeof with, "--model %s --chat --file %s/in.jsonl", model, command_folder());
    expect_refused(with, bad[i].words);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(texts_and_ids), cmocka_unit_test(files),
                                     cmocka_unit_test(bad_lines),     cmocka_unit_test(bad_arguments),
                                     cmocka_unit_test(chats),         cmocka_unit_test(bad_chats)};
  return cmocka_run_group_tests(tests, setup, command_teardown);
}

/* Prompts of a run: the forms that data come in, keys by name, what is too long; what is refused, by file and line; no memory. */
#include "test.h"

#include "rl/prompts.h"

typedef struct opened {
  char folder[64];
  treadle_tokenizer *tokenizer;
  treadle_rl_prompts_spec spec;
} opened;

static void open_all(opened *o) {
  static char path[200];
  *o = (opened){0};
  strcpy(o->folder, test_folder());
  assert_ok(treadle_tokenizer_open(TREADLE_SOURCE_DIR "/examples/sequence", &o->tokenizer));
  snprintf(path, sizeof path, "%s/gsm8k.jsonl", o->folder);
  static const treadle_rl_prompts_words words = {.prompt_key = "--prompts",
                                                 .answer_key = "--answers",
                                                 .too_long = "be brief",
                                                 .no_answer = "look elsewhere"};
  o->spec = (treadle_rl_prompts_spec){.path = path,
                                      .words = &words,
                                      .prompt_key = "prompt",
                                      .answer_key = "answer",
                                      .data_source_key = "data_source",
                                      .tokenizer = o->tokenizer,
                                      .vocabulary = 16,
                                      .most_tokens = 8,
                                      .need_answer = true};
}

static void close_all(opened *o) {
  treadle_tokenizer_close(o->tokenizer);
  test_remove(o->folder);
}

static treadle_status read_text(opened *o, const char *text, treadle_rl_prompts **prompts_p) {
  test_write(o->folder, "gsm8k.jsonl", text);
  return treadle_rl_prompts_read(&o->spec, prompts_p);
}

static treadle_rl_prompts *read_good(opened *o, const char *text, size_t wanted) {
  treadle_rl_prompts *prompts = NULL;
  size_t count = 0;
  assert_ok(read_text(o, text, &prompts));
  treadle_rl_prompts_items(prompts, &count);
  assert_int_equal(count, wanted);
  return prompts;
}

static void refuse(opened *o, const char *words, const char *text) {
  treadle_rl_prompts *prompts = (treadle_rl_prompts *)o;
  assert_refused(words, read_text(o, text, &prompts));
  assert_null(prompts);
}

static void test_forms(void **state) {
  (void)state;
  opened o;
  size_t count;
  open_all(&o);
  treadle_rl_prompts *prompts =
      read_good(&o,
                "{\"prompt\": \"1,2\", \"answer\": \"3\", \"data_source\": \"a\", \"other\": [1]}\n\n"
                "{\"prompt\": \"4\", \"answer\": 1000}\n"
                "{\"prompt_token_ids\": [3, 4, 5], \"answer\": 0.5}\n"
                "{\"prompt\": \"4\", \"reward_model\": {\"style\": \"rule\", \"ground_truth\": \"7\"}}\n",
                4);
  const treadle_rl_prompt *items = treadle_rl_prompts_items(prompts, &count);
  assert_string_equal(items[0].text, "1,2");
  assert_string_equal(items[0].answer, "3");
  assert_string_equal(items[0].data_source, "a");
  assert_int_equal(items[0].line, 1);
  assert_int_equal(items[1].line, 3);
  assert_int_equal(items[1].count, 1);
  assert_string_equal(items[1].answer, "1000");
  assert_string_equal(items[1].data_source, "gsm8k");
  assert_int_equal(items[2].count, 3);
  assert_int_equal(items[2].ids[1], 4);
  assert_string_equal(items[2].answer, "0.5");
  assert_string_equal(items[3].answer, "7");
  treadle_rl_prompts_destroy(prompts);

  o.spec.prompt_key = "question";
  o.spec.answer_key = "solution";
  prompts = read_good(
      &o, "[{\"question\": \"5\", \"solution\": \"6\"},\n {\"question\": \"7\", \"solution\": \"8\"}]", 2);
  items = treadle_rl_prompts_items(prompts, &count);
  assert_string_equal(items[1].text, "7");
  assert_string_equal(items[1].answer, "8");
  treadle_rl_prompts_destroy(prompts);
  close_all(&o);
}

/* Numbers are the shortest text that is read as the same number, so that 0.1 is what a model writes. */
static void test_numbers(void **state) {
  (void)state;
  static const char *const numbers[][2] = {{"72", "72"},
                                           {"-3", "-3"},
                                           {"72.0", "72"},
                                           {"0.1", "0.1"},
                                           {"1e21", "1e+21"},
                                           {"2.50", "2.5"},
                                           {"1e3", "1000"},
                                           {"-0.3", "-0.3"},
                                           {"1e-7", "1e-07"},
                                           {"0.1e1", "1"},
                                           {"3.14159", "3.14159"},
                                           {"0.30000000000000004", "0.30000000000000004"},
                                           {"9007199254740993", "9007199254740993"}};
  opened o;
  char text[200];
  size_t count;
  open_all(&o);
  for (size_t i = 0; i < TEST_COUNT(numbers); i++) {
    snprintf(text, sizeof text, "{\"prompt\": \"1\", \"answer\": %s}\n", numbers[i][0]);
    treadle_rl_prompts *prompts = read_good(&o, text, 1);
    assert_string_equal(treadle_rl_prompts_items(prompts, &count)[0].answer, numbers[i][1]);
    treadle_rl_prompts_destroy(prompts);
  }
  treadle_rl_prompts *prompts = read_good(
      &o, "{\"prompt\": \"1\", \"answer\": null, \"reward_model\": {\"ground_truth\": 0.1}}\n", 1);
  assert_string_equal(treadle_rl_prompts_items(prompts, &count)[0].answer, "0.1");
  treadle_rl_prompts_destroy(prompts);
  close_all(&o);
}

static void test_files(void **state) {
  (void)state;
  opened o;
  char path[400];
  size_t count;
  open_all(&o);
  test_write(o.folder, "b.json", "[{\"prompt\": \"2\", \"answer\": \"2\"}]");
  snprintf(path, sizeof path, "%s,%s/b.json", o.spec.path, o.folder);
  treadle_rl_prompts *one = read_good(&o, "{\"prompt\": \"1\", \"answer\": \"1\"}\n", 1);
  o.spec.path = path;
  treadle_rl_prompts *both = NULL;
  assert_ok(treadle_rl_prompts_read(&o.spec, &both));
  const treadle_rl_prompt *items = treadle_rl_prompts_items(both, &count);
  assert_int_equal(count, 2);
  assert_string_equal(items[0].data_source, "gsm8k");
  assert_string_equal(items[1].data_source, "b");
  assert_true(treadle_rl_prompts_digest(one) != treadle_rl_prompts_digest(both));
  treadle_rl_prompts *quoted = NULL; /* as verl's scripts have them */
  char list[500];
  snprintf(list, sizeof list, "['%.*s', '%s/b.json']", (int)(strchr(path, ',') - path), path, o.folder);
  o.spec.path = list;
  assert_ok(treadle_rl_prompts_read(&o.spec, &quoted));
  assert_true(treadle_rl_prompts_digest(quoted) == treadle_rl_prompts_digest(both));
  treadle_rl_prompts_destroy(quoted);
  treadle_rl_prompts_destroy(one);
  treadle_rl_prompts_destroy(both);
  close_all(&o);
}

/* A run goes on only with the prompts that it had: the digest sees tokens, answers and sources. */
static void test_digest(void **state) {
  (void)state;
  static const char *const texts[] = {"{\"prompt\": \"12\", \"answer\": \"3\", \"data_source\": \"a\"}\n",
                                      "{\"prompt\": \"13\", \"answer\": \"3\", \"data_source\": \"a\"}\n",
                                      "{\"prompt\": \"12\", \"answer\": \"4\", \"data_source\": \"a\"}\n",
                                      "{\"prompt\": \"12\", \"answer\": \"3\", \"data_source\": \"b\"}\n",
                                      ("{\"prompt\": \"1\", \"answer\": \"3\", \"data_source\": \"a\"}\n"
                                       "{\"prompt\": \"2\", \"answer\": \"3\", \"data_source\": \"a\"}\n")};
  uint64_t digests[TEST_COUNT(texts)];
  opened o;
  open_all(&o);
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    treadle_rl_prompts *prompts = NULL;
    assert_ok(read_text(&o, texts[i], &prompts));
    digests[i] = treadle_rl_prompts_digest(prompts);
    for (size_t j = 0; j < i; j++) assert_true(digests[i] != digests[j]);
    treadle_rl_prompts_destroy(prompts);
  }
  close_all(&o);
}

static void test_too_long(void **state) {
  (void)state;
  static const char text[] =
      "{\"prompt\": \"12345678\", \"answer\": \"1\"}\n{\"prompt\": \"123456789\", \"answer\": \"1\"}\n";
  opened o;
  open_all(&o);
  refuse(&o, "gsm8k.jsonl: line 2: the prompt has 9 tokens; at most 8 (be brief)", text);
  o.spec.leave_long_out = true;
  treadle_rl_prompts *prompts = read_good(&o, text, 1);
  assert_int_equal(treadle_rl_prompts_too_long(prompts), 1);
  assert_int_equal(treadle_rl_prompts_unanswered(prompts), 0);
  treadle_rl_prompts_destroy(prompts);
  refuse(&o, "all prompts are left out: 1 of more than 8 tokens, 0 without an answer",
         "{\"prompt\": \"123456789\", \"answer\": \"1\"}\n");
  close_all(&o);
}

static void test_no_answer(void **state) {
  (void)state;
  static const char text[] =
      "[{\"prompt\": \"1\", \"answer\": \"1\"}, {\"prompt\": \"2\", \"answer\": null},"
      " {\"prompt\": \"3\"}, {\"prompt\": \"4\", \"answer\": \"\"}]";
  opened o;
  size_t count;
  open_all(&o);
  refuse(&o, "gsm8k.jsonl: item 1: has no 'answer' (--answers); look elsewhere", text);
  o.spec.leave_unanswered_out = true;
  treadle_rl_prompts *prompts = read_good(&o, text, 2);
  assert_int_equal(treadle_rl_prompts_unanswered(prompts), 2);
  assert_int_equal(treadle_rl_prompts_too_long(prompts), 0);
  assert_string_equal(treadle_rl_prompts_items(prompts, &count)[1].text, "4");
  treadle_rl_prompts_destroy(prompts);
  refuse(&o, "all prompts are left out: 0 of more than 8 tokens, 1 without an answer",
         "{\"prompt\": \"1\"}\n");
  refuse(&o, "line 1: 'answer' must be", "{\"prompt\": \"1\", \"answer\": [1]}\n");
  o.spec.need_answer = false;
  treadle_rl_prompts_destroy(read_good(&o, text, 4));
  close_all(&o);
}

static void test_refused(void **state) {
  (void)state;
  opened o;
  open_all(&o);
  refuse(&o, "gsm8k.jsonl: has no prompts", "");
  refuse(&o, "line 2: has no 'prompt' (--prompts)",
         "{\"prompt\": \"1\", \"answer\": \"1\"}\n{\"question\": \"1\", \"answer\": \"1\"}\n");
  refuse(&o, "line 1: has no 'answer' (--answers)", "{\"prompt\": \"1\"}\n");
  refuse(&o, "line 1: has no 'answer'", "{\"prompt\": \"1\", \"answer\": null}\n");
  refuse(&o, "line 1: 'answer' must be", "{\"prompt\": \"1\", \"answer\": [1]}\n");
  refuse(&o, "line 1: 'prompt' must be", "{\"prompt\": 1, \"answer\": \"1\"}\n");
  refuse(&o, "line 1: 'prompt' has no tokens", "{\"prompt\": \"\", \"answer\": \"1\"}\n");
  refuse(&o, "line 1: 'data_source' must be",
         "{\"prompt\": \"1\", \"answer\": \"1\", \"data_source\": 3}\n");
  refuse(&o, "line 1", "{\"prompt_token_ids\": [16], \"answer\": \"1\"}\n");
  refuse(&o, "line 1", "{\"prompt_token_ids\": [1.5], \"answer\": \"1\"}\n");
  refuse(&o, "line 2", "{\"prompt\": \"1\", \"answer\": \"1\"}\n{\"prompt\": \n");
  refuse(&o, "gsm8k.jsonl", "[{\"prompt\": \"1\", \"answer\": \"1\"}, 3]");
  o.spec.need_answer = false;
  treadle_rl_prompts_destroy(
      read_good(&o, "{\"prompt\": \"1\"}\n{\"prompt\": \"1\", \"answer\": null}\n", 2));
  o.spec.path = "/nowhere/at.all";
  treadle_rl_prompts *prompts = NULL;
  assert_fails(TREADLE_SYSTEM, "/nowhere/at.all", treadle_rl_prompts_read(&o.spec, &prompts));
  close_all(&o);
}

static treadle_status read_once(opened *o) {
  treadle_rl_prompts *prompts = NULL;
  treadle_status status = treadle_rl_prompts_read(&o->spec, &prompts);
  treadle_rl_prompts_destroy(prompts);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  opened o;
  open_all(&o);
  test_write(o.folder, "gsm8k.jsonl",
             "{\"prompt\": \"1,2\", \"answer\": \"3\"}\n{\"prompt_token_ids\": [3, 4], \"answer\": 4}\n");
  TEST_EACH_ALLOCATION(read_once(&o));
  close_all(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms),    cmocka_unit_test(test_numbers),
                                     cmocka_unit_test(test_files),    cmocka_unit_test(test_digest),
                                     cmocka_unit_test(test_too_long), cmocka_unit_test(test_no_answer),
                                     cmocka_unit_test(test_refused),  cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* `treadle generate` as a process: requests in, answers out, text as it comes, each option, what is refused. */
/* ctest: label=mpi timeout=300 label=kernels */
#include "cli/command.h"
#include "cli/engine_folder.h"

#include "base/utf8.h"
#include "test.h"
#include "token/text_files.h"

#include <sys/wait.h>

static const char *model;

static int setup(void **state) {
  (void)state;
  model = engine_folder("qwen2-tied");
  return 0;
}

/* Runs it, which must work; the answers, a list. */
static json_t *generate(const char *options) {
  const char *out = command_path("answers.jsonl");
  char line[1 << 16];
  command_result result = command_run("generate --model %s --out %s %s", model, out, options);
  if (result.exit_status) fail_msg("%s: status %d\n%s", options, result.exit_status, result.err);
  assert_string_equal(result.out, "");
  command_release(&result);
  FILE *file = fopen(out, "r");
  json_t *list = json_array();
  while (fgets(line, sizeof line, file)) {
    json_t *answer = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (!answer) fail_msg("no JSON: %s", line);
    json_array_append_new(list, answer);
  }
  fclose(file);
  return list;
}

/* The same for lines of requests. */
static json_t *generate_lines(const char *lines, const char *options) {
  char all[600];
  snprintf(all, sizeof all, "--file %s %s", command_write("in.jsonl", lines), options);
  return generate(all);
}

static const char *text_of(const json_t *list, size_t answer, const char *key) {
  return json_string_value(json_object_get(json_array_get(list, answer), key));
}

static void expect_keys(json_t *object, const char *keys) {
  char found[500] = "";
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    strcat(found, *found ? " " : "");
    strcat(found, key);
  }
  assert_string_equal(found, keys);
}

static void expect_same(json_t *a, json_t *b, const char *what) {
  if (!json_equal(a, b)) fail_msg("%s: other answers:\n%s\n%s", what, json_dumps(a, 0), json_dumps(b, 0));
  json_decref(a);
  json_decref(b);
}

/* ---- Requests and answers --------------------------------------------------------------------------- */

static void test_answers(void **state) {
  (void)state;
  json_t *list =
      generate_lines("{\"prompt\": \"Hi\", \"id\": \"x\", \"n\": 2, \"max_tokens\": 3}\n\n"
                     "{\"prompt_token_ids\": [1, 43, 76], \"max_tokens\": 2, \"logprobs\": 3}\n"
                     "{\"messages\": [{\"role\": \"u\", \"content\": \"!\"}], \"max_tokens\": 1}\n",
                     "--ignore-eos");
  static const struct {
    const char *id;
    int index, tokens;
    const char *prompt;
  } wanted[] = {{"\"x\"", 0, 3, "[1,43,76]"},
                {"\"x\"", 1, 3, "[1,43,76]"},
                {"1", 0, 2, "[1,43,76]"},
                {"2", 0, 1, "[1,88,29,4,2,1,68,86,86,76,86,87,68,81,87,29]"}};
  assert_int_equal(json_array_size(list), TEST_COUNT(wanted));
  for (size_t i = 0; i < TEST_COUNT(wanted); i++) {
    json_t *answer = json_array_get(list, i);
    expect_keys(answer, "id index prompt_token_ids token_ids text logprobs top_logprobs finish_reason "
                        "stop_reason version");
    char *id = json_dumps(json_object_get(answer, "id"), JSON_ENCODE_ANY),
         *prompt = json_dumps(json_object_get(answer, "prompt_token_ids"), JSON_COMPACT);
    assert_string_equal(id, wanted[i].id);
    assert_string_equal(prompt, wanted[i].prompt);
    free(id);
    free(prompt);
    assert_int_equal(command_number(answer, "index"), wanted[i].index);
    assert_int_equal(json_array_size(json_object_get(answer, "token_ids")), wanted[i].tokens);
    assert_int_equal(json_array_size(json_object_get(answer, "logprobs")), wanted[i].tokens);
    assert_int_equal(json_array_size(json_object_get(answer, "top_logprobs")), i == 2 ? 2 : 0);
    assert_string_equal(text_of(list, i, "finish_reason"), "length");
  }
  json_decref(list);
}

/* With --chat, prompts of a file are messages of the user, as --prompt is. */
static void test_chat(void **state) {
  (void)state;
  static const char limits[] = "--max-new-tokens 4 --temperature 0 --ignore-eos";
  char options[200];
  json_t *messages = generate_lines("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", limits);
  snprintf(options, sizeof options, "--chat %s", limits);
  json_t *lines = generate_lines("{\"prompt\": \"a\"}\n", options);
  snprintf(options, sizeof options, "--chat --prompt a %s", limits);
  expect_same(generate(options), json_incref(messages), "--prompt --chat");
  expect_same(lines, messages, "--file --chat");
}

static void test_json(void **state) {
  (void)state;
  char arguments[300];
  command_write("in.jsonl", "{\"prompt\": \"Hello\", \"n\": 2}\n{\"prompt_token_ids\": [7]}\n");
  snprintf(arguments, sizeof arguments,
           "generate --model %s --file %s --max-new-tokens 5 --ignore-eos --threads 1", model,
           command_path("in.jsonl"));
  json_t *figures = command_json(0, 0, arguments);
  expect_keys(
      figures,
      "requests samples prompt_tokens new_tokens seconds tokens_per_second layout weights_source dtype "
      "exact kernels threads weights_bytes packed_bytes work_bytes kv_blocks "
      "kv_blocks_peak kv_blocks_leaked preemptions prefix_hit_tokens version digest");
  assert_int_equal(command_number(figures, "requests"), 2);
  assert_int_equal(command_number(figures, "samples"), 3);
  assert_int_equal(command_number(figures, "prompt_tokens"), 7);
  assert_int_equal(command_number(figures, "new_tokens"), 15);
  assert_int_equal(command_number(figures, "threads"), 1);
  assert_int_equal(command_number(figures, "kv_blocks_leaked"), 0);
  assert_true(command_number(figures, "weights_bytes") > 100000);
  assert_string_equal(json_string_value(json_object_get(figures, "layout")), "vllm");
  assert_string_equal(json_string_value(json_object_get(figures, "dtype")), "bf16");
  assert_true(json_is_true(json_object_get(figures, "exact")));
  json_decref(figures);
}

/* ---- Options ----------------------------------------------------------------------------------------- */

/* An option of sampling says what a key of a line says, and changes something. */
static void test_sampling_options(void **state) {
  (void)state;
  static const struct {
    const char *option, *key;
  } cases[] = {{"--max-new-tokens 5", "\"max_tokens\": 5"},
               {"--temperature 0.5", "\"temperature\": 0.5"},
               {"--top-k 2", "\"top_k\": 2"},
               {"--top-p .3", "\"top_p\": 0.3"},
               {"--min-p 0.2", "\"min_p\": 0.2"},
               {"--repetition-penalty 1.9", "\"repetition_penalty\": 1.9"},
               {"--presence-penalty 2", "\"presence_penalty\": 2"},
               {"--frequency-penalty 2", "\"frequency_penalty\": 2.0"},
               {"--n 2", "\"n\": 2"},
               {"--logprobs 2", "\"logprobs\": 2"},
               {"--stop @ --stop sq --stop zzz", "\"stop\": [\"@\", \"sq\", \"zzz\"]"},
               {"--stop-ids 6,35", "\"stop_token_ids\": [6, 35]"}};
  static const char plain[] = "--max-new-tokens 24 --ignore-eos";
  json_t *without = generate_lines("{\"prompt\": \"Hello\"}\n", plain);
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char line[200], options[200];
    snprintf(line, sizeof line, "{\"prompt\": \"Hello\", %s}\n", cases[i].key);
    snprintf(options, sizeof options, "%s %s", i ? plain : "--ignore-eos", cases[i].option);
    json_t *by_option = generate_lines("{\"prompt\": \"Hello\"}\n", options);
    json_t *by_key = generate_lines(line, plain);
    if (json_equal(by_option, without)) fail_msg("%s changes nothing", cases[i].option);
    expect_same(by_option, by_key, cases[i].option);
  }
  json_decref(without);
}

/* Found in the greedy text, so that they are reached: end tokens, and no end before min_tokens. */
static void test_ends(void **state) {
  (void)state;
  json_t *list = generate("--prompt Hello --temperature 0 --max-new-tokens 12 --ignore-eos");
  const json_t *ids = json_object_get(json_array_get(list, 0), "token_ids");
  char options[200];
  int end = (int)json_integer_value(json_array_get(ids, 4)), first = 0;
  while (json_integer_value(json_array_get(ids, (size_t)first)) != end) first++;
  snprintf(options, sizeof options, "--prompt Hello --temperature 0 --max-new-tokens 12 --stop-ids %d",
           end);
  json_t *stopped = generate(options);
  assert_int_equal(json_array_size(json_object_get(json_array_get(stopped, 0), "token_ids")), first + 1);
  assert_string_equal(text_of(stopped, 0, "finish_reason"), "stop");
  assert_int_equal(command_number(json_array_get(stopped, 0), "stop_reason"), end);
  strcat(options, " --min-new-tokens 7");
  json_t *longer = generate(options);
  assert_true(json_array_size(json_object_get(json_array_get(longer, 0), "token_ids")) > 6);
  /* As long as the sequence may be. */
  json_t *full = generate("--prompt a --max-new-tokens 9223372036854775807 --max-len 8 --ignore-eos");
  assert_int_equal(json_array_size(json_object_get(json_array_get(full, 0), "token_ids")), 6);
  json_decref(full);
  json_decref(list);
  json_decref(stopped);
  json_decref(longer);
}

static const char requests[] =
    "{\"prompt\": \"Hello, what is this?\", \"n\": 3}\n{\"prompt\": \"Hello, what\", \"seed\": 5}\n"
    "{\"prompt_token_ids\": [7, 8, 9, 10, 11]}\n";

/* How it is computed changes no bit. */
static void test_engine_options(void **state) {
  (void)state;
  static const char *const options[] = {"--max-batch 1",      "--max-batch 2",
                                        "--prefill-chunk 3",  "--block-tokens 32",
                                        "--block-tokens 5",   "--prefix-cache off",
                                        "--kv-memory 26KiB",  "--threads 1",
                                        "--threads 2",        "--layout sglang:tp=1",
                                        "--layout vllm:tp=1", "--exact on",
                                        "--logprobs-of raw",  "--seed 0",
                                        "--max-len 80",       "--block-tokens 4 --kv-memory 13KiB"};
  static const char plain[] = "--max-new-tokens 20 --ignore-eos";
  json_t *wanted = generate_lines(requests, plain);
  char all[200];
  for (size_t i = 0; i < TEST_COUNT(options); i++) {
    snprintf(all, sizeof all, "%s %s", plain, options[i]);
    expect_same(generate_lines(requests, all), json_incref(wanted), options[i]);
  }
  static const char *const others[] = {"--seed 1", "--logprobs-of scaled --temperature 0.7",
                                       "--layout vllm:tp=1,dtype=fp32", "--max-len 25"};
  for (size_t i = 0; i < TEST_COUNT(others); i++) {
    snprintf(all, sizeof all, "%s %s", plain, others[i]);
    json_t *other = generate_lines(requests, all);
    if (json_equal(other, wanted)) fail_msg("%s changes nothing", others[i]);
    json_decref(other);
  }
  json_decref(wanted);
}

/* What a product is done by is named; --exact off is said. */
static void test_kernels(void **state) {
  (void)state;
  char arguments[300];
  snprintf(arguments, sizeof arguments,
           "generate --model %s --prompt-ids 1,2 --max-new-tokens 2 --kernels plain --exact off", model);
  json_t *figures = command_json(0, 0, arguments);
  assert_string_equal(json_string_value(json_object_get(figures, "kernels")), "plain");
  assert_true(json_is_false(json_object_get(figures, "exact")));
  json_decref(figures);
}

/* ---- Text as it comes --------------------------------------------------------------------------------- */

/* The texts of all samples, one below the other, are what the answers have; how fast it was goes to standard error. */
static void check_stream(const char *options) {
  char all[300], wanted[1 << 14] = "";
  snprintf(all, sizeof all, "%s", options);
  json_t *list = generate(all);
  for (size_t i = 0; i < json_array_size(list); i++) {
    strcat(wanted, text_of(list, i, "text"));
    strcat(wanted, "\n");
  }
  command_result result = command_run("generate --model %s %s", model, options);
  assert_string_equal(result.out, wanted);
  command_expect(&result, 0, "tokens/s", 1);
  assert_true(treadle_utf8_is_valid(result.out));
  command_release(&result);
  json_decref(list);
}

static void test_stream(void **state) {
  (void)state;
  check_stream("--prompt Hello --max-new-tokens 60 --ignore-eos");
  check_stream("--prompt Hello --max-new-tokens 30 --ignore-eos --n 5 --max-batch 2");
  check_stream("--prompt Hello --max-new-tokens 60 --ignore-eos --stop 'qsa' --stop '8@g' --stop 'f,'");
  check_stream("--prompt Hello --chat --temperature 0 --max-new-tokens 9");
  /* Ids, and whoever asks for JSON, get answers. */
  command_result ids = command_run("generate --model %s --prompt-ids 1,2 --max-new-tokens 2", model);
  assert_int_equal(strncmp(ids.out, "{\"id\": 0, \"index\": 0, ", 20), 0);
  command_release(&ids);
}

/* ---- Ranks --------------------------------------------------------------------------------------------- */

static void test_ranks(void **state) {
  (void)state;
  json_t *wanted = generate_lines(requests, "--max-new-tokens 12 --ignore-eos");
  static const char *const layouts[] = {"vllm:tp=2", "vllm:pp=2", "vllm:tp=1"}; /* the last: two replicas */
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    command_result result =
        command_launch(2, "generate --model %s --file %s --layout %s --max-new-tokens 12 --ignore-eos",
                       model, command_path("in.jsonl"), layouts[i]);
    if (result.exit_status) fail_msg("%s: %s", layouts[i], result.err);
    json_t *list = json_array();
    for (char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n"))
      json_array_append_new(list, json_loads(line, 0, NULL));
    expect_same(list, json_incref(wanted), layouts[i]);
    command_release(&result);
  }
  json_decref(wanted);
}

static void test_ranks_stream(void **state) {
  (void)state;
  static const char words[] = "--prompt Hello --max-new-tokens 12 --ignore-eos --n 2";
  command_result one = command_run("generate --model %s %s", model, words);
  static const char *const layouts[] = {"vllm:tp=2", "vllm:tp=1"};
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    command_result two = command_launch(2, "generate --model %s %s --layout %s", model, words, layouts[i]);
    command_expect(&two, 0, "tokens/s", 1);
    assert_string_equal(two.out, one.out);
    command_release(&two);
  }
  command_release(&one);
}

/* ---- Refused ------------------------------------------------------------------------------------------ */

static void expect_refused(int ranks, const char *options, const char *words) {
  const char *out = command_path("never");
  unlink(out);
  command_result result =
      ranks ? command_launch(ranks, "generate --model %s --out %s %s", model, out, options)
            : command_run("generate --model %s --out %s %s", model, out, options);
  command_expect(&result, 2, words, 1);
  if (*result.out) fail_msg("printed '%s'", result.out);
  if (!access(out, F_OK)) fail_msg("%s: a file was written", words);
  command_release(&result);
}

static void test_bad_lines(void **state) {
  (void)state;
  static const struct {
    const char *line, *words;
  } cases[] = {
      {"{\"prompt\": \"a\"", "in.jsonl: line 2, column"},
      {"[]", "line 2: not an object"},
      {"{\"prompt\": \"\"}", "line 2: prompt is empty"},
      {"{\"prompt\": \"a\", \"best_of\": 1}", "line 2: 'best_of' is not a key"},
      {"{\"prompt\": \"a\", \"temperature\": -1}", "line 2: "},
      {"{\"prompt\": \"a\", \"stop\": [\"\"]}", "line 2: stop cannot contain an empty string"},
      {"{\"prompt_token_ids\": [203]}", "line 2: prompt_token_ids: 203 is not in the vocabulary"},
      {"{\"prompt\": \"a\", \"stop_token_ids\": [203]}", "line 2: stop_token_ids: 203 is not in the"},
      {"{\"messages\": [{\"role\": \"bad\"}]}", "no such role"},
      {"{\"prompt\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
       "line 2: prompt has 46 tokens; with a new one it must not be longer than 40"},
      {"{\"prompt\": \"aaaaaaaaaaaaaaaa\", \"max_tokens\": 30}",
       "line 2: 40 tokens are 3 blocks of the KV cache, which has 2: it takes 12288 bytes"},
  };
  char options[300];
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char lines[300];
    snprintf(lines, sizeof lines, "{\"prompt\": \"a\", \"max_tokens\": 2}\n%s\n", cases[i].line);
    snprintf(options, sizeof options, "--file %s --max-len 40 --kv-memory 8KiB",
             command_write("in.jsonl", lines));
    expect_refused(0, options, cases[i].words);
  }
  snprintf(options, sizeof options, "--file %s --layout vllm:tp=2", command_write("in.jsonl", "{}"));
  expect_refused(2, options, "line 1: has none of prompt, messages and prompt_token_ids"); /* said once */
}

static void test_bad_options(void **state) {
  (void)state;
  static const struct {
    const char *options, *words;
  } cases[] = {
      {"", "give one of --prompt, --prompt-ids and --file"},
      {"--prompt a --prompt-ids 1", "give one of"},
      {"--prompt-ids 1 --chat", "--chat goes with --prompt and --file"},
      {"--prompt-ids 1,x", "--prompt-ids: 'x' is not an id: a whole number from 0"},
      {"--prompt-ids 1]", "--prompt-ids: '1]' is not an id"},
      {"--prompt-ids 203", "prompt_token_ids: 203 is not in the vocabulary of 203 tokens"},
      {"--prompt a --stop-ids -1", "--stop-ids: '-1' is not an id"},
      {"--prompt a --stop ''", "--stop is empty; it needs a value"},
      {"--prompt \"$(printf '\\377')\"", "--prompt is not UTF-8"},
      {"--prompt a --stop \"$(printf '\\377')\"", "--stop is not UTF-8"},
      {"--prompt a --temperature nan", "--temperature is 'nan', and must be a number"},
      {"--prompt a --temperature 1e999", "--temperature is '1e999', and must be a number"},
      {"--prompt a --temperature -1", "temperature"},
      {"--prompt a --top-p 1.5", "top_p"},
      {"--prompt a --min-p x", "--min-p is 'x', and must be a number"},
      {"--prompt a --repetition-penalty 0", "repetition_penalty"},
      {"--prompt a --presence-penalty 3", "presence_penalty"},
      {"--prompt a --frequency-penalty -3", "frequency_penalty"},
      {"--prompt a --n 0", "--n is '0'"},
      {"--prompt a --logprobs 21", "logprobs"},
      {"--prompt a --max-new-tokens 0", "--max-new-tokens is '0'"},
      {"--prompt a --min-new-tokens 300", "min_tokens"},
      {"--prompt a --kernels none", "no kernels are named \"none\"; there are auto, plain"},
      {"--prompt a --layout fsdp", "fsdp"},
      {"--prompt a --layout vllm:tp=2", "'vllm:tp=2'"},
      {"--prompt a --layout megatron:tp=1", "generate takes layouts of vllm and sglang"},
      {"--prompt a --layout hf", "generate takes layouts of vllm and sglang"},
      {"--prompt a --threads 257", "--threads is '257'"},
      {"--prompt a --kv-memory 1KiB", "kv_memory 1024 is less than one block of 16 tokens"},
      {"--prompt a --tokenizer /nowhere.json", "/nowhere.json: there is no such file"},
      {"--prompt a --out x", "--out is given twice"},
      {"--file /nowhere", "/nowhere: cannot open"},
      {"--file /", "/: is a folder"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) expect_refused(0, cases[i].options, cases[i].words);
  command_result result = command_run("generate --model %s --prompt a --out %s", model, model);
  command_expect(&result, 2, "is a folder", 1);
  command_release(&result);
}

/* A full disk, in the middle of the text and of answers. */
static void test_full(void **state) {
  (void)state;
  static const char *const inputs[] = {"--prompt a", "--prompt-ids 4"};
  for (size_t i = 0; i < TEST_COUNT(inputs); i++) {
    char command[400];
    snprintf(command, sizeof command, "\"$TREADLE\" generate --model %s %s >/dev/full 2>%s", model,
             inputs[i], command_path("said"));
    int ended = system(command);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 1);
    snprintf(command, sizeof command, "grep -q 'could not be written\\|cannot be written' %s",
             command_path("said"));
    assert_int_equal(system(command), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_answers),   cmocka_unit_test(test_chat),
      cmocka_unit_test(test_json),      cmocka_unit_test(test_sampling_options),
      cmocka_unit_test(test_ends),      cmocka_unit_test(test_engine_options),
      cmocka_unit_test(test_kernels),   cmocka_unit_test(test_stream),
      cmocka_unit_test(test_ranks),     cmocka_unit_test(test_ranks_stream),
      cmocka_unit_test(test_bad_lines), cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_full),
  };
  return cmocka_run_group_tests(tests, setup, command_teardown);
}

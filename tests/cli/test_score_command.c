/* `treadle score` as a process: texts, messages and ids in, log-probabilities, the largest of them and logits out; what it refuses. */
/* ctest: label=mpi timeout=300 */
#include "cli/command.h"
#include "cli/engine_folder.h"

#include "io/safetensors.h"
#include "test.h"
#include "token/text_files.h"

#include <glob.h>
#include <math.h>

static const char *model;

static int setup(void **state) {
  (void)state;
  model = engine_folder("qwen2-tied");
  return 0;
}

static void write_lines(const char *text) { command_write("in.jsonl", text); }

/* Scores the lines; the answers, a list. */
static json_t *score(const char *lines, const char *options) {
  write_lines(lines);
  command_result result =
      command_run("score --model %s --file %s %s", model, command_path("in.jsonl"), options);
  if (result.exit_status) fail_msg("%s: status %d\n%s", options, result.exit_status, result.err);
  json_t *list = json_array();
  for (char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *answer = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (!answer) fail_msg("no JSON: %s", line);
    json_array_append_new(list, answer);
  }
  command_release(&result);
  return list;
}

static void expect_ids(const json_t *answer, const char *ids) {
  char *text = json_dumps(json_object_get(answer, "token_ids"), JSON_COMPACT);
  assert_string_equal(text, ids);
  free(text);
}

static void expect_keys(json_t *object, const char *keys) {
  char found[400] = "";
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    strcat(found, *found ? " " : "");
    strcat(found, key);
  }
  assert_string_equal(found, keys);
}

/* A text gets the tokenizer's special tokens, messages those of the template, without a place for an answer. */
static void test_texts(void **state) {
  (void)state;
  json_t *answers = score("{\"text\": \"Hi\", \"id\": \"t\"}\n"
                          "{\"messages\": [{\"role\": \"u\", \"content\": \"!\"}]}\n"
                          "{\"token_ids\": [1, 43, 76]}\n",
                          "");
  assert_int_equal(json_array_size(answers), 3);
  json_t *text = json_array_get(answers, 0), *chat = json_array_get(answers, 1),
         *ids = json_array_get(answers, 2);
  expect_keys(text, "id token_ids logprobs sum");
  expect_ids(text, "[1,43,76]");
  expect_ids(chat, "[1,88,29,4,2]");
  assert_string_equal(json_string_value(json_object_get(text, "id")), "t");
  assert_int_equal(json_integer_value(json_object_get(chat, "id")), 1);
  assert_true(json_equal(json_object_get(text, "logprobs"), json_object_get(ids, "logprobs")));
  const json_t *logprobs = json_object_get(chat, "logprobs");
  double sum = 0;
  assert_true(json_is_null(json_array_get(logprobs, 0)));
  for (size_t i = 1; i < json_array_size(logprobs); i++)
    sum += json_number_value(json_array_get(logprobs, i));
  assert_true(fabs(sum - command_number(chat, "sum")) < 1e-5);
  json_decref(answers);
}

/* Of each token but the first, the largest first. Where the best token is the one that is there, the numbers are the same. */
static void test_top(void **state) {
  (void)state;
  static const char lines[] = "{\"text\": \"Hello\"}\n{\"token_ids\": [5]}\n{\"token_ids\": [7, 8, 9]}\n";
  json_t *answers = score(lines, "--top 20 --prefill-chunk 2 --temperature 2");
  json_t *plain = score(lines, "--temperature 2");
  json_int_t best = -1;
  double logprob = 0;
  for (size_t a = 0; a < 3; a++) {
    json_t *answer = json_array_get(answers, a);
    const json_t *tops = json_object_get(answer, "top_logprobs"),
                 *logprobs = json_object_get(answer, "logprobs");
    expect_keys(answer, "id token_ids logprobs top_logprobs sum");
    assert_true(json_equal(logprobs, json_object_get(json_array_get(plain, a), "logprobs")));
    assert_int_equal(json_array_size(tops), json_array_size(logprobs));
    assert_true(json_is_null(json_array_get(tops, 0)));
    for (size_t i = 1; i < json_array_size(tops); i++) {
      const json_t *top = json_array_get(tops, i);
      double before = 0;
      assert_int_equal(json_array_size(top), 20);
      for (size_t k = 0; k < 20; k++, before = logprob) {
        assert_int_equal(json_array_size(json_array_get(top, k)), 2);
        logprob = json_number_value(json_array_get(json_array_get(top, k), 1));
        assert_true(logprob <= before);
      }
      best = json_integer_value(json_array_get(json_array_get(top, 0), 0));
      logprob = json_number_value(json_array_get(json_array_get(top, 0), 1));
    }
  }
  char again[80];
  snprintf(again, sizeof again, "{\"token_ids\": [7, 8, %d]}\n", (int)best);
  json_t *one = score(again, "--temperature 2");
  const json_t *logprobs = json_object_get(json_array_get(one, 0), "logprobs");
  assert_true(json_number_value(json_array_get(logprobs, 2)) == logprob);
  json_decref(one);
  json_decref(answers);
  json_decref(plain);
}

/* ln of the probability of a token, computed from its logits in double. */
static double logprob_of(const float *logits, json_int_t token) {
  double sum = 0;
  for (int i = 0; i < ENGINE_VOCABULARY; i++) sum += exp((double)logits[i] - (double)logits[token]);
  return -log(sum);
}

static void test_logits(void **state) {
  (void)state;
  char options[200];
  const char *path = command_path("logits.safetensors");
  treadle_checkpoint *file = NULL;
  snprintf(options, sizeof options, "--logits %s --prefill-chunk 2", path);
  json_t *answers =
      score("{\"text\": \"Hello, you\"}\n \n{\"token_ids\": [5]}\n{\"token_ids\": [7, 8, 9]}\n", options);
  assert_ok(treadle_checkpoint_open(path, &file));
  assert_int_equal(file->count, 3);
  static const char *const names[] = {"logits.0", "logits.2", "logits.3"}; /* the second line is empty */
  for (size_t a = 0; a < 3; a++) {
    const treadle_stored *logits = treadle_checkpoint_find(file, names[a]);
    const json_t *ids = json_object_get(json_array_get(answers, a), "token_ids"),
                 *logprobs = json_object_get(json_array_get(answers, a), "logprobs");
    assert_non_null(logits);
    assert_true(logits->dtype == TREADLE_FP32 && logits->ndim == 2);
    assert_int_equal(logits->shape[0], json_array_size(ids));
    assert_int_equal(logits->shape[1], ENGINE_VOCABULARY);
    for (size_t i = 1; i < json_array_size(ids); i++) {
      const float *row = (const float *)logits->data + (i - 1) * ENGINE_VOCABULARY;
      double wanted = logprob_of(row, json_integer_value(json_array_get(ids, i)));
      assert_true(fabs(wanted - json_number_value(json_array_get(logprobs, i))) < 1e-4);
    }
  }
  treadle_checkpoint_close(file);
  json_decref(answers);
}

static void expect_same_files(const char *a, const char *b) {
  char command[200];
  snprintf(command, sizeof command, "cmp %s %s", a, b);
  assert_int_equal(system(command), 0);
}

/* The ranks of a trainer's layout write the same file and the same answers. */
static void test_ranks(void **state) {
  (void)state;
  write_lines("{\"text\": \"Hello\"}\n{\"messages\": [{\"role\": \"u\", \"content\": \"!\"}]}\n");
  for (int ranks = 1; ranks <= 2; ranks++) {
    command_result result = command_launch(
        ranks, "score --model %s --file %s --layout megatron:tp=%d --top 3 --out %s --logits %s", model,
        command_path("in.jsonl"), ranks, command_path(ranks == 1 ? "out1" : "out2"),
        command_path(ranks == 1 ? "logits1" : "logits2"));
    if (result.exit_status) fail_msg("%d ranks: %s", ranks, result.err);
    assert_string_equal(result.out, "");
    command_release(&result);
  }
  expect_same_files(command_path("out1"), command_path("out2"));
  expect_same_files(command_path("logits1"), command_path("logits2"));
}

static void test_json(void **state) {
  (void)state;
  char arguments[200];
  write_lines("{\"text\": \"Hello\"}\n{\"token_ids\": [7]}\n");
  snprintf(arguments, sizeof arguments, "score --model %s --file %s", model, command_path("in.jsonl"));
  json_t *figures = command_json(0, 0, arguments);
  expect_keys(
      figures,
      "texts tokens nll perplexity seconds tokens_per_second layout weights_source dtype exact kernels "
      "checked different digest");
  assert_int_equal(command_number(figures, "texts"), 2);
  assert_int_equal(command_number(figures, "tokens"), 7);
  assert_string_equal(json_string_value(json_object_get(figures, "layout")), "hf");
  double nll = command_number(figures, "nll"), perplexity = command_number(figures, "perplexity");
  assert_true(nll > 0 && fabs(log(perplexity) - nll / 5) < 1e-6);
  json_decref(figures);
  write_lines("{\"token_ids\": [7]}\n"); /* nothing to predict */
  figures = command_json(0, 0, arguments);
  assert_true(json_is_null(json_object_get(figures, "perplexity")));
  json_decref(figures);
}

/* What it wrote is compared with what it computes; a bit that differs is a difference. */
static void test_check(void **state) {
  (void)state;
  char options[200];
  snprintf(options, sizeof options, "--top 2 --out %s", command_path("answers.jsonl"));
  json_decref(score("{\"text\": \"Hello\"}\n", options));
  command_result good =
      command_run("score --model %s --file %s --check", model, command_path("answers.jsonl"));
  command_expect(&good, 0, "checked 5 log-probabilities: 0 differ", 1);
  command_release(&good);
  command_result hot = command_run("score --model %s --file %s --check --temperature 1.5", model,
                                   command_path("answers.jsonl"));
  command_expect(&hot, 1, "checked 5 log-probabilities: 5 differ", 1);
  command_release(&hot);
}

static void expect_refused(const char *lines, const char *options, const char *words) {
  write_lines(lines);
  unlink(command_path("never"));
  unlink(command_path("never.safetensors"));
  command_result result =
      command_run("score --model %s --file %s --out %s --logits %s %s", model, command_path("in.jsonl"),
                  command_path("never"), command_path("never.safetensors"), options);
  command_expect(&result, 2, words, 1);
  if (*result.out) fail_msg("printed '%s'", result.out);
  if (!access(command_path("never"), F_OK) || !access(command_path("never.safetensors"), F_OK))
    fail_msg("%s: a file was written", words);
  command_release(&result);
}

static void test_refused(void **state) {
  (void)state;
  static const char good[] = "{\"text\": \"Hello\"}\n";
  static const struct {
    const char *line, *options, *words;
  } cases[] = {
      {"{\"text\": \"\"}", "", "in.jsonl: line 2: text is empty"},
      {"{\"text\": \"\xff\"}", "", "in.jsonl: line 2, column"},
      {"{\"messages\": []}", "", "line 2: messages is empty"},
      {"{\"messages\": [{\"role\": \"bad\"}]}", "", "line 2: "},
      {"{\"messages\": [{\"role\": \"bad\"}]}", "", "no such role"},
      {"{\"token_ids\": [203]}", "", "line 2: token_ids: 203 is not in the vocabulary of 203 tokens"},
      {"{\"token_ids\": [1, 2, 3, 4]}", "--max-len 3",
       "line 1: has 6 tokens; the engine takes 3"}, /* the first bad one */
      {"{\"token_ids\": [1, 2, 3, 4, 5, 6, 7, 8]}", "--max-len 7",
       "line 2: has 8 tokens; the engine takes 7"},
      {"{\"token_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}", "--block-tokens 4 --kv-memory 2KiB",
       "line 2: 10 tokens are 3 blocks of the KV cache, which has 2: it takes 3072 bytes"},
      {"{\"token_ids\": [1, 2]}", "--check", "line 1: there are no logprobs to compare with"},
      {"{\"token_ids\": [1, 2]}", "--top 21", "--top is '21', and must be a whole number from 0 to 20"},
      {"{\"token_ids\": [1, 2]}", "--top -1", "--top is '-1'"},
      {"{\"token_ids\": [1, 2]}", "--temperature 0", "--temperature is '0'"},
      {"{\"token_ids\": [1, 2]}", "--tokenizer /nowhere.json", "/nowhere.json: there is no such file"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char lines[300];
    snprintf(lines, sizeof lines, "%s%s\n", good, cases[i].line);
    expect_refused(lines, cases[i].options, cases[i].words);
  }
  command_result same = command_run("score --model %s --file %s --out %s --logits %s", model,
                                    command_path("in.jsonl"), command_path("never"), command_path("never"));
  command_expect(&same, 2, "--logits and --out are the same file", 1);
  command_release(&same);
}

/* A file that cannot be written is known before the engine is made. */
static void test_output_refused(void **state) {
  (void)state;
  write_lines("{\"text\": \"Hello\"}\n");
  for (int logits = 0; logits < 2; logits++) {
    command_result result =
        command_launch(2, "score --model %s --file %s --layout megatron:tp=2 --%s %s", model,
                       command_path("in.jsonl"), logits ? "logits" : "out", model);
    command_expect(&result, 2, "is a folder", 1);
    command_release(&result);
  }
}

/* Without a tokenizer there are ids alone; why is said. */
static void test_without_tokenizer(void **state) {
  (void)state;
  char folder[512];
  snprintf(folder, sizeof folder, "%s/tests/golden/models/qwen2-tied", TREADLE_SOURCE_DIR);
  write_lines("{\"token_ids\": [1, 2]}\n{\"text\": \"Hello\"}\n");
  command_result result = command_run("score --model %s --file %s", folder, command_path("in.jsonl"));
  command_expect(&result, 2, "in.jsonl: line 2: there is no tokenizer for its text", 1);
  command_expect(&result, 2, "neither tokenizer.json, nor vocab.json", 1);
  command_release(&result);
  command_result other = command_run("score --model %s --file %s --tokenizer %s --json", folder,
                                     command_path("in.jsonl"), model);
  command_expect(&other, 0, "logits.safetensors is not read", 1);
  command_release(&other);
  text_write(model, "tokenizer.json", "{}", 2);
  write_lines("{\"token_ids\": [1, 2]}\n");
  result = command_run("score --model %s --file %s --json", model, command_path("in.jsonl"));
  command_expect(&result, 0, "no tokenizer: ", 1);
  command_release(&result);
  model = engine_folder("qwen2-tied");
}

/* ---- Models of make-model --------------------------------------------------------------------------- */

static bool has_forward(const char *family) {
  static char text[1 << 16];
  FILE *file = fopen(family, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  return strstr(text, "\nforward:") != NULL;
}

/* Of each family that the engine computes, make-model makes a model that it computes: one of deepseek_v3 had more groups than experts allow. */
static void test_made_models(void **state) {
  (void)state;
  glob_t found = {0};
  int families = 0;
  write_lines("{\"token_ids\": [1, 2, 3]}\n");
  assert_int_equal(glob(TREADLE_SOURCE_DIR "/families/*.yaml", 0, NULL, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    char name[64];
    if (!has_forward(found.gl_pathv[i])) continue;
    assert_int_equal(sscanf(strrchr(found.gl_pathv[i], '/'), "/%63[a-z0-9_]", name), 1);
    command_result made =
        command_run("make-model %s/made-%s --family %s --layers 2 --hidden 128 --vocab 64",
                    command_folder(), name, name);
    command_expect(&made, 0, "", 0);
    command_release(&made);
    command_result scored = command_run("score --model %s/made-%s --file %s --json", command_folder(), name,
                                        command_path("in.jsonl"));
    if (scored.exit_status) fail_msg("%s: %s", name, scored.err);
    command_release(&scored);
    families++;
  }
  globfree(&found);
  assert_true(families >= 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_top),
      cmocka_unit_test(test_logits),
      cmocka_unit_test(test_ranks),
      cmocka_unit_test(test_json),
      cmocka_unit_test(test_check),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_output_refused),
      cmocka_unit_test(test_without_tokenizer),
      cmocka_unit_test(test_made_models),
  };
  return cmocka_run_group_tests(tests, setup, command_teardown);
}

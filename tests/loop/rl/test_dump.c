/* Dumped samples: what is written is read back, bit for bit; a line whose keys are spoiled, each in each way, is refused by file, line, key and
 * rule. */
#include "test.h"

#include "rl/dump.h"

#include "io/file.h"

#include <jansson.h>
#include <math.h>

enum { VOCABULARY = 100 };

static char folder[] = "/tmp/treadle-test-XXXXXX";
static char path[64]; /* FOLDER/1.jsonl */

static const char good[] = "{\"uid\": \"1-0-0\", \"prompt\": \"p\", \"completion\": \"c\", \"answer\": "
                           "\"a\", \"prompt_ids\": [1, 2], \"ids\": [3, 4], "
                           "\"rollout_log_probs\": [-1, -2], \"old_log_probs\": [-1, -2], "
                           "\"ref_log_probs\": [-1, -3], \"score\": 1, \"reward\": 0.75, "
                           "\"advantage\": 0.5, \"mini_batch\": 0, \"log_probs\": [-1, -2], \"entropies\": "
                           "[1, 2], \"advantages\": "
                           "[0.25, 0.75], \"kl_coef\": 0.1}";

static treadle_status read_lines(const char *first, const char *second) {
  treadle_rl_dumped dumped;
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "%s\n%s\n", first, second);
  assert_int_equal(fclose(file), 0);
  treadle_status status = treadle_rl_dump_read(path, VOCABULARY, &dumped);
  treadle_rl_dumped_release(&dumped);
  return status;
}

/* ---- Spoiled -------------------------------------------------------------------------------------------------- */

/* What a key may be. */
typedef enum kind { TEXT, IDS, SOME_IDS, LIST, LIST_OR_NULL, MORE, REAL, MORE_REAL, WHOLE, KINDS } kind;

static const struct {
  const char *key;
  kind kind;
} keys[] = {{"uid", TEXT},
            {"prompt", TEXT},
            {"completion", TEXT},
            {"answer", TEXT},
            {"prompt_ids", SOME_IDS},
            {"ids", IDS},
            {"rollout_log_probs", LIST},
            {"old_log_probs", LIST},
            {"ref_log_probs", LIST_OR_NULL},
            {"score", REAL},
            {"advantage", REAL},
            {"mini_batch", WHOLE},
            {"log_probs", MORE},
            {"entropies", MORE},
            {"advantages", MORE},
            {"reward", MORE_REAL},
            {"kl_coef", MORE_REAL}};

/* A value in place of the good one, NULL: the key goes; and for each kind the words of the refusal, NULL: it is taken. */
#define ALL_IDS(words) [IDS] = words, [SOME_IDS] = words
#define LISTS(words)   [LIST] = words, [LIST_OR_NULL] = words, [MORE] = words
#define REALS(words)   [REAL] = words, [MORE_REAL] = words
#define NO_TEXT        [TEXT] = "must be a text"
#define NO_NUMBER      REALS("must be a number"), [WHOLE] = "must be a whole number"
#define NO_LIST        ALL_IDS("must be a list of token ids"), LISTS("must be a list of 2 numbers")
/* clang-format off */
static const struct {
  const char *value, *words[KINDS];
} spoiled[] = {
    {NULL, {[TEXT] = "which must be a text", ALL_IDS("which must be token ids"), [LIST] = "which must be a list of numbers",
            [LIST_OR_NULL] = "which must be a list of numbers", [REAL] = "which must be a number", [WHOLE] = "which must be a whole number"}},
    {"null", {NO_TEXT, ALL_IDS("must be a list of token ids"), [LIST] = "must be a list of 2 numbers", NO_NUMBER}},
    {"\"x\"", {NO_LIST, NO_NUMBER}},
    {"true", {NO_TEXT, NO_LIST, NO_NUMBER}},
    {"{}", {NO_TEXT, NO_LIST, NO_NUMBER}},
    {"7", {NO_TEXT, NO_LIST}},
    {"0.5", {NO_TEXT, NO_LIST, [WHOLE] = "must be a whole number"}},
    {"-1", {NO_TEXT, NO_LIST, [WHOLE] = "is -1: 0 at least"}},
    {"[]", {NO_TEXT, NO_NUMBER, [SOME_IDS] = "is empty", LISTS("must be a list of 2 numbers")}},
    {"[1]", {NO_TEXT, NO_NUMBER, LISTS("must be a list of 2 numbers")}},
    {"[1, 2, 3]", {NO_TEXT, NO_NUMBER, LISTS("must be a list of 2 numbers")}},
    {"[1, null]", {NO_TEXT, NO_NUMBER, ALL_IDS("must be token ids, not null"), LISTS("[1] is not a number")}},
    {"[\"x\", 1]", {NO_TEXT, NO_NUMBER, ALL_IDS("must be token ids, not a text"), LISTS("[0] is not a number")}},
    {"[[1], 1]", {NO_TEXT, NO_NUMBER, ALL_IDS("must be token ids, not a list"), LISTS("[0] is not a number")}},
    {"[1, 1.5]", {NO_TEXT, NO_NUMBER, ALL_IDS("must be token ids, not a number with a fraction")}},
    {"[1, 1e39]", {NO_TEXT, NO_NUMBER, ALL_IDS("must be token ids"), LISTS("[1], 1e+39, is beyond what 32 bits hold")}},
    {"[1, -1]", {NO_TEXT, NO_NUMBER, ALL_IDS("-1 is not a token")}},
    {"[1, 100]", {NO_TEXT, NO_NUMBER, ALL_IDS("100 is not in the vocabulary of 100 tokens")}},
    {"[1, 4294967297]", {NO_TEXT, NO_NUMBER, ALL_IDS("4294967297 is not a token")}},
};
/* clang-format on */

/* The good line with one key of another value. */
static char *line_with(const char *key, const char *value) {
  json_t *object = json_loads(good, 0, NULL);
  assert_non_null(object);
  if (value)
    assert_int_equal(json_object_set_new(object, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
  else
    assert_int_equal(json_object_del(object, key), 0);
  char *line = json_dumps(object, 0);
  json_decref(object);
  assert_non_null(line);
  return line;
}

static void check_spoiled(size_t key, size_t how) {
  const char *words = spoiled[how].words[keys[key].kind];
  char *line = line_with(keys[key].key, spoiled[how].value), place[96];
  treadle_status status = read_lines(good, line);
  /* of another length than its lists, which are told */
  const bool lists = strcmp(keys[key].key, "ids") == 0 && spoiled[how].value && status;
  free(line);
  if (!words && !lists) {
    if (status) fail_msg("%s: %s: %s", keys[key].key, spoiled[how].value, treadle_error_message());
    return;
  }
  assert_int_equal(status, TREADLE_REFUSED);
  snprintf(place, sizeof place, "%s: line 2: ", path);
  assert_memory_equal(treadle_error_message(), place, strlen(place));
  if (!words) words = "rollout_log_probs";
  if (!strstr(treadle_error_message(), words) ||
      (words[0] != 'r' && !strstr(treadle_error_message(), keys[key].key)))
    fail_msg("%s, %s: wanted '%s', got '%s'", keys[key].key,
             spoiled[how].value ? spoiled[how].value : "missing", words, treadle_error_message());
}

static void test_spoiled_keys(void **state) {
  (void)state;
  assert_ok(read_lines(good, good));
  for (size_t key = 0; key < TEST_COUNT(keys); key++)
    for (size_t how = 0; how < TEST_COUNT(spoiled); how++) check_spoiled(key, how);
}

static void test_spoiled_lines(void **state) {
  (void)state;
  assert_refused("line 2, column", read_lines(good, "{\"uid\": "));
  assert_refused("line 2: not an object", read_lines(good, "[1]"));
  assert_refused("line 2: has no uid", read_lines(good, "{\"score\": NaN}"));
  assert_refused("line 2: has no uid", read_lines(good, "{\"score\": 1e400}"));
  assert_refused("line 2, column", read_lines(good, "{\"uid\": \"a\", \"uid\": \"b\"}"));
  assert_refused("line 2: has no uid, which must be a text", read_lines(good, "{}"));
  assert_refused("has no samples", read_lines("", ""));
  assert_fails(TREADLE_SYSTEM, "/nothing/1.jsonl",
               treadle_rl_dump_read("/nothing/1.jsonl", VOCABULARY, &(treadle_rl_dumped){0}));
}

/* ---- Written and read ----------------------------------------------------------------------------------------- */

static void same_floats(const float *a, const float *b, int64_t count) {
  assert_int_equal(a == NULL, b == NULL);
  if (a) assert_memory_equal(a, b, (size_t)count * sizeof *a);
}

static void test_round_trip(void **state) {
  (void)state;
  const int32_t prompt_ids[] = {1, 2, 3}, ids[] = {4, 99};
  const treadle_rl_prompt prompt = {
      .ids = prompt_ids, .count = 3, .text = "\"\n", .answer = "", .data_source = ""};
  const float values[][2] = {{-0.1F, -1e-30F}, {-1.0F / 3, -87.5F}, {-2, -0.0F}, {0.7F, 5e-8F}};
  const double advantages[] = {1.0 / 3, -1e-300};
  const int32_t kept_counts[] = {2, 1}, kept[] = {4, 7, 99};
  const treadle_rl_sample written[] = {{.uid = "2-0-0",
                                        .prompt = &prompt,
                                        .ids = ids,
                                        .count = 2,
                                        .completion = "\xff",
                                        .completion_bytes = 1,
                                        .rollout = values[0],
                                        .old = values[1],
                                        .ref = values[2],
                                        .updated = values[0],
                                        .entropies = values[3],
                                        .score = 0.1,
                                        .reward = -1e-9,
                                        .advantage = -1.0 / 3,
                                        .advantages = advantages,
                                        .kept_counts = kept_counts,
                                        .kept = kept,
                                        .kl_coef = 0.1,
                                        .mini_batch = 3},
                                       {.uid = "2-0-1",
                                        .prompt = &prompt,
                                        .ids = ids,
                                        .count = 0,
                                        .completion = "",
                                        .rollout = values[0],
                                        .old = values[0],
                                        .kl_coef = NAN}};
  treadle_rl_dumped dumped;
  assert_ok(treadle_rl_dump_write(folder, 1, written, 2));
  assert_ok(treadle_rl_dump_read(path, VOCABULARY, &dumped));
  assert_int_equal(dumped.items.count, 2);
  for (size_t i = 0; i < 2; i++) {
    const treadle_rl_sample *a = &written[i], *b = &dumped.items.items[i];
    assert_string_equal(a->uid, b->uid);
    assert_int_equal(b->prompt->count, 3);
    assert_memory_equal(b->prompt->ids, prompt_ids, sizeof prompt_ids);
    assert_int_equal(a->count, b->count);
    if (a->count) assert_memory_equal(a->ids, b->ids, sizeof ids);
    same_floats(a->rollout, b->rollout, a->count);
    same_floats(a->old, b->old, a->count);
    same_floats(a->ref, b->ref, a->count);
    same_floats(a->updated, b->updated, a->count);
    same_floats(a->entropies, b->entropies, a->count);
    assert_true(a->score == b->score && a->reward == b->reward && a->advantage == b->advantage &&
                a->mini_batch == b->mini_batch);
    assert_int_equal(a->advantages == NULL, b->advantages == NULL);
    assert_true(a->kl_coef == b->kl_coef || (isnan(a->kl_coef) && isnan(b->kl_coef)));
  }
  assert_memory_equal(dumped.items.items[0].advantages, advantages, sizeof advantages);
  assert_memory_equal(dumped.items.items[0].kept_counts, kept_counts, sizeof kept_counts);
  assert_memory_equal(dumped.items.items[0].kept, kept, sizeof kept);
  assert_null(dumped.items.items[1].kept_counts);
  treadle_rl_dumped_release(&dumped);
}

/* The good line's ids are two; of each a list of ids. */
static void test_kept(void **state) {
  (void)state;
  static const struct {
    const char *value, *words; /* words: NULL: it is taken */
  } values[] = {
      {"null", NULL},
      {"7", "kept must be null, or have 2 lists of token ids"},
      {"[]", "kept must be null, or have 2 lists of token ids"},
      {"[[1]]", "kept must be null, or have 2 lists of token ids"},
      {"[[1], 2]", "kept[1] must be a list of token ids, one at least"},
      {"[[], [1]]", "kept[0] must be a list of token ids, one at least"},
      {"[[\"x\"], [1]]", "kept[0]: item 0: ids ascend, from 0 to 99"},
      {"[[-1], [1]]", "kept[0]: item 0: ids ascend, from 0 to 99"},
      {"[[9, 9], [1]]", "kept[0]: item 1: ids ascend, from 0 to 99"},
      {"[[9, 100], [1]]", "kept[0]: item 1: ids ascend, from 0 to 99"},
      {"[[4294967297], [1]]", "kept[0]: item 0: ids ascend, from 0 to 99"},
      {"[[98], [1]]", "kept[0] has no "},
  };
  for (size_t i = 0; i < TEST_COUNT(values); i++) {
    char *line = line_with("kept", values[i].value);
    if (values[i].words)
      assert_refused(values[i].words, read_lines(good, line));
    else
      assert_ok(read_lines(good, line));
    free(line);
  }
}

static treadle_status read_released(void) {
  treadle_rl_dumped dumped;
  treadle_status status = treadle_rl_dump_read(path, VOCABULARY, &dumped);
  treadle_rl_dumped_release(&dumped);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  assert_ok(read_lines(good, good));
  TEST_EACH_ALLOCATION(read_released());
}

static int make_folder(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/1.jsonl", folder);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  return remove(path) || remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_spoiled_keys), cmocka_unit_test(test_spoiled_lines),
      cmocka_unit_test(test_round_trip), cmocka_unit_test(test_kept), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

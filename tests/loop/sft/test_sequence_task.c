/* The task of sequences: prompts and answers are verl's (tests/data/sequence/SOURCE.txt), rows follow from seed and noise alone, and files of
 * somebody else stay as they are. */
#include "test.h"

#include "treadle_loop.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

enum { PROMPTS = 900, TRAIN = 720, ROWS = 40000, VERL = 1000 };

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

static const char *path_of(const char *name) {
  static char path[600];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static treadle_status make(const char *to, double noise, uint64_t seed) {
  const treadle_sequence_options options = {.struct_size = sizeof options, .noise = noise, .seed = seed};
  treadle_sequence_figures figures = TREADLE_INIT(treadle_sequence_figures);
  treadle_status status = treadle_data_sequence(to, &options, &figures);
  assert_int_equal(figures.train, status ? 0 : TRAIN);
  assert_int_equal(figures.test, status ? 0 : PROMPTS - TRAIN);
  assert_int_equal(figures.sft, status ? 0 : ROWS);
  return status;
}

/* The lines of a file, a list. */
static json_t *read_lines(const char *to, const char *name) {
  char path[700], line[400];
  json_t *list = json_array();
  snprintf(path, sizeof path, "%s/%s", to, name);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(row);
    json_array_append_new(list, row);
  }
  fclose(file);
  return list;
}

static const char *text_of(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  assert_non_null(text);
  return text;
}

/* Prompts to answers, of a file; none is there twice. */
static void collect(json_t *to, const char *name) {
  json_t *rows = read_lines(folder, name), *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    assert_int_equal(json_object_size(row), 3);
    assert_string_equal(text_of(row, "data_source"), "sequence");
    assert_null(json_object_get(to, text_of(row, "prompt")));
    json_object_set(to, text_of(row, "prompt"), json_object_get(row, "answer"));
  }
  json_decref(rows);
}

static void as_verl(void **state) {
  (void)state;
  char line[100];
  json_t *ours = json_object(), *verls = json_object();
  assert_ok(make(folder, 0.3, 7));
  collect(ours, "train.jsonl");
  assert_int_equal(json_object_size(ours), TRAIN);
  collect(ours, "test.jsonl");
  assert_int_equal(json_object_size(ours), PROMPTS);
  FILE *file = fopen(TREADLE_SOURCE_DIR "/tests/data/sequence/verl.tsv", "r");
  assert_non_null(file);
  int lines = 0;
  for (; fgets(line, sizeof line, file); lines++) {
    char *prompt = strchr(line, '\t') + 1, *answer = strchr(prompt, '\t') + 1;
    answer[-1] = answer[strcspn(answer, "\n")] = 0;
    if (!json_object_get(ours, prompt)) fail_msg("verl's prompt %s is not there", prompt);
    assert_string_equal(text_of(ours, prompt), answer);
    json_object_set_new(verls, prompt, json_true());
  }
  fclose(file);
  assert_int_equal(lines, VERL);
  assert_int_equal(json_object_size(verls), PROMPTS); /* so each of ours is verl's */
  json_decref(ours);
  json_decref(verls);
}

/* Numbers of sft.jsonl that are other ones than in the answer, over all. */
static double changed(const char *to) {
  json_t *train = read_lines(to, "train.jsonl"), *rows = read_lines(to, "sft.jsonl"), *row, *answers;
  size_t i, numbers = 0, others = 0, used = 0;
  answers = json_object();
  json_array_foreach(train, i, row)
      json_object_set(answers, text_of(row, "prompt"), json_object_get(row, "answer"));
  assert_int_equal(json_array_size(rows), ROWS);
  json_array_foreach(rows, i, row) {
    const char *answer = text_of(answers, text_of(row, "prompt")), *response = text_of(row, "response");
    assert_int_equal(strlen(answer), strlen(response));
    for (size_t at = 0; answer[at]; at++) {
      assert_true(at % 2 ? response[at] == ',' : response[at] >= '0' && response[at] <= '9');
      numbers += at % 2 == 0;
      others += answer[at] != response[at];
    }
  }
  json_array_foreach(rows, i, row) used += json_object_del(answers, text_of(row, "prompt")) == 0;
  assert_int_equal(used, TRAIN); /* 55 rows a prompt: each is there */
  json_decref(train);
  json_decref(rows);
  json_decref(answers);
  return (double)others / (double)numbers;
}

static void noise(void **state) {
  (void)state;
  static const double share[] = {0, 0.3, 1};
  char to[600];
  for (size_t i = 0; i < TEST_COUNT(share); i++) {
    snprintf(to, sizeof to, "%s/%zu", folder, i);
    assert_ok(make(to, share[i], 3));
    double got = changed(to), wanted = share[i] * 0.9; /* one digit of ten is right by chance */
    if (fabs(got - wanted) > (share[i] > 0 ? 0.005 : 0)) fail_msg("noise %g: %g changed", share[i], got);
  }
}

static void expect_same(const char *a, const char *b, const char *name, bool same) {
  json_t *first = read_lines(a, name), *second = read_lines(b, name);
  if (json_equal(first, second) != same) fail_msg("%s is %s", name, same ? "another" : "the same");
  json_decref(first);
  json_decref(second);
}

static void seeds(void **state) {
  (void)state;
  char to[3][600];
  for (int i = 0; i < 3; i++) snprintf(to[i], sizeof to[i], "%s/%d", folder, i);
  assert_ok(make(to[0], 0.3, 1));
  assert_ok(make(to[1], 0.5, 1));
  assert_ok(make(to[2], 0.3, 2));
  expect_same(to[0], to[1], "train.jsonl", true);
  expect_same(to[0], to[1], "test.jsonl", true);
  expect_same(to[0], to[1], "sft.jsonl", false);
  expect_same(to[0], to[2], "train.jsonl", false);
  expect_same(to[0], to[2], "test.jsonl", false);
  expect_same(to[0], to[2], "sft.jsonl", false);
}

static void what_is_there(void **state) {
  (void)state;
  struct stat before, after;
  char to[600];
  assert_ok(make(folder, 0.3, 1));
  assert_int_equal(stat(path_of("sft.jsonl"), &before), 0);
  assert_ok(make(folder, 0.3, 1)); /* the same again */
  assert_int_equal(stat(path_of("sft.jsonl"), &after), 0);
  assert_int_equal(before.st_ino, after.st_ino);
  assert_refused("train.jsonl: is there, with other content", make(folder, 0.3, 2));
  assert_refused("sft.jsonl: is there, with other content", make(folder, 0.4, 1));
  assert_int_equal(unlink(path_of("test.jsonl")), 0);
  assert_ok(make(folder, 0.3, 1)); /* what was cut off goes on */
  assert_int_equal(stat(path_of("test.jsonl"), &after), 0);
  snprintf(to, sizeof to, "%s", path_of("train.jsonl"));
  assert_refused("train.jsonl: is a file", make(to, 0.3, 1));
  snprintf(to, sizeof to, "%s", path_of("not/there"));
  assert_fails(TREADLE_SYSTEM, "not/there", make(to, 0.3, 1));
  snprintf(to, sizeof to, "%s", path_of("other"));
  assert_int_equal(mkdir(to, 0700), 0);
  snprintf(to, sizeof to, "%s", path_of("other/test.jsonl"));
  assert_int_equal(mkdir(to, 0700), 0);
  snprintf(to, sizeof to, "%s", path_of("other"));
  assert_refused("test.jsonl", make(to, 0.3, 1));
  for (size_t i = 0; i < 3; i++) {
    static const double bad[] = {-0.1, 1.1, NAN};
    assert_refused("noise", make(folder, bad[i], 1));
  }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(as_verl), TEST(noise), TEST(seeds), TEST(what_is_there)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

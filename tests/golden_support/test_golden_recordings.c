/* The checkers of golden files themselves: a lie is a difference, what is not known is skipped or refused. Each case changes one thing in
 * a file that is equal. ctest: stage=gcc */
#include "golden_support/golden.h"
#include "test.h"

#define GOLDEN TREADLE_SOURCE_DIR "/tests/golden/"
#define MODEL  GOLDEN "models/qwen2-tied/"

typedef struct change {
  const char *file, *path; /* where: "cases.0.ids.0"; NULL: nowhere */
  const char *value;       /* JSON; NULL: the key is removed */
  int different, skipped;  /* -1: the file is refused */
} change;

/* The value that holds the last step of `path`, and that step. */
static json_t *holder_of(json_t *root, const char *path, const char **last_p) {
  char step[64];
  json_t *at = root;
  for (;;) {
    size_t length = strcspn(path, ".");
    *last_p = path;
    if (!path[length]) return at;
    snprintf(step, sizeof step, "%.*s", (int)length, path);
    at = json_is_array(at) ? json_array_get(at, strtoul(step, NULL, 10)) : json_object_get(at, step);
    path += length + 1;
  }
}

static void apply(json_t *root, const change *c) {
  const char *last;
  if (!c->path) return;
  json_t *holder = holder_of(root, c->path, &last);
  json_t *value = c->value ? json_loads(c->value, JSON_DECODE_ANY, NULL) : NULL;
  assert_non_null(holder);
  assert_true(!c->value || value);
  if (!value)
    assert_int_equal(json_object_del(holder, last), 0);
  else if (json_is_array(holder))
    assert_int_equal(json_array_set_new(holder, strtoul(last, NULL, 10), value), 0);
  else
    assert_int_equal(json_object_set_new(holder, last, value), 0);
}

static void link_to(const char *folder, const char *name) {
  char from[400], to[200];
  snprintf(from, sizeof from, MODEL "%s", name);
  snprintf(to, sizeof to, "%s/%s", folder, name);
  assert_int_equal(symlink(from, to), 0);
}

static void check(const char *folder, FILE *nowhere, const change *c) {
  char path[200], from[400];
  golden_counts plain, counts;
  snprintf(from, sizeof from, GOLDEN "%s", c->file);
  snprintf(path, sizeof path, "%s/expected.json", folder); /* its fields say what it is */
  json_t *root = golden_load(from);
  assert_non_null(root);
  assert_true(golden_check_file(from, &golden_library, nowhere, &plain));
  assert_int_equal(plain.different, 0);
  apply(root, c);
  assert_int_equal(json_dump_file(root, path, 0), 0);
  bool read = golden_check_file(path, &golden_library, nowhere, &counts);
  json_decref(root);
  if (read != (c->different >= 0))
    fail_msg("%s, %s: %s", c->file, c->path, read ? "it was read" : "it was not read");
  if (!read) return;
  if (counts.different != c->different || counts.skipped - plain.skipped != c->skipped)
    fail_msg("%s, %s: %d different and %d skipped, not %d and %d", c->file, c->path, counts.different,
             counts.skipped - plain.skipped, c->different, c->skipped);
}

static void finds_lies(void **state) {
  (void)state;
  static const change changes[] = {
      {"models/qwen2-tied/expected.json", NULL, NULL, 0, 0},
      {"models/qwen2-tied/expected.json", "prompts.1.token_ids.3", "1", 2, 0},
      {"models/qwen2-tied/expected.json", "prompts.0.logprobs.3", "-30", 1, 0},
      {"models/qwen2-tied/expected.json", "tolerance.fp32_max", "1e-9", 3, 0},
      {"models/qwen2-tied/expected.json", "tolerance.bf16_mean", "1e-5", 1, 0},
      {"models/qwen2-tied/expected.json", "tolerance.bf16_p999", "1e-3", 1, 0},
      {"models/qwen2-tied/expected.json", "tolerance.fp32_max", NULL, -1, 0},
      {"models/qwen2-tied/expected.json", "tolerance.fp16_max", "1", -1, 0},
      {"models/qwen2-tied/expected.json", "prompts.1.gap", NULL, 0, 2},
      {"models/qwen2-tied/expected.json", "prompts.1.banned", "[]", 0, 2},
      {"models/qwen2-tied/expected.json", "prompts", "[]", -1, 0},
      {"text/jinja.json", NULL, NULL, 0, 0},
      {"text/jinja.json", "cases.0.output", "\"no\"", 1, 0},
      {"text/jinja.json", "cases.0.output", NULL, 0, 1},
      {"text/jinja.json", "cases.0.flags", "[]", 0, 1},
      {"text/chat.json.gz", NULL, NULL, 0, 0},
      {"text/chat.json.gz", "templates.0.cases.0.output", "\"\"", 1, 0},
      {"text/chat.json.gz", "templates.0.cases.0.messages", "99", 0, 1},
      {"text/chat.json.gz", "templates.0.cases.0.mode", "\"fast\"", 0, 1},
      {"text/chat.json.gz", "now", NULL, -1, 0},
      {"text/sampling.json.gz", NULL, NULL, 0, 0},
      {"text/sampling.json.gz", "cases.0.probs.0", "0.5", 1, 0},
      {"text/sampling.json.gz", "cases.0.params.top_a", "0.5", 0, 1},
      {"text/sampling.json.gz", "cases.0.params.min_p", NULL, 0, 1},
      {"text/tokenizers.json.gz", "tokenizers.0.streams", NULL, 0, 1},
  };
  const char *folder = test_folder();
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  link_to(folder, "config.json");
  link_to(folder, "model.safetensors");
  link_to(folder, "logits.safetensors");
  for (size_t i = 0; i < TEST_COUNT(changes); i++) {
    /* Without the files of tokenizers all their cases are skipped already. */
    if (strstr(changes[i].file, "tokenizers") &&
        access(TREADLE_SOURCE_DIR "/../shared/data/minimind2-small/tokenizer.json", R_OK) != 0)
      continue;
    check(folder, nowhere, &changes[i]);
  }
  fclose(nowhere);
  test_remove(folder);
}

static void refuses_others(void **state) {
  (void)state;
  static const char *const texts[] = {"{\"cases\": [{\"questions\": 1}]}", "[]", "{", "{\"prompts\": []}"};
  const char *folder = test_folder();
  char path[200];
  golden_counts counts;
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  snprintf(path, sizeof path, "%s/jinja.json", folder);
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(texts[i], file);
    fclose(file);
    assert_false(golden_check_file(path, &golden_library, nowhere, &counts));
  }
  /* Gradients are for a library that trains. */
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs("{\"loss\": 1, \"grad_norm\": 2, \"tensors\": {}}", file);
  fclose(file);
  assert_true(golden_check_file(path, &golden_library, nowhere, &counts));
  assert_int_equal(counts.skipped, 1);
  fclose(nowhere);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_lies), cmocka_unit_test(refuses_others)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* src/core/family/written.c and src/core/io/yaml_write.c: every family, written as the one file that it comes to, gives the same layouts;
 * texts that YAML would see something else in come back. */
#include "test.h"

#include "io/yaml.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *folder;

static int make_folder(void **state) {
  (void)state;
  folder = test_folder();
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

/* Writes NAME.yaml of each family as it comes to, and gives the families of these files. */
static treadle_families *write_all(treadle_families *built_in, const char *families) {
  treadle_families *written;
  assert_int_equal(mkdir(families, 0777), 0);
  for (int32_t i = 0; i < treadle_families_count(built_in); i++) {
    treadle_family_info info = TREADLE_INIT(treadle_family_info);
    char path[400], *text;
    assert_ok(treadle_families_get(built_in, i, &info));
    assert_ok(treadle_families_expanded(built_in, i, &text));
    static const char *const words[] = {
        "\nextends:", "\nblocks:", "\nchanges:", "\nconditions:", "{place: ", "if: ", "as: vllm"};
    for (size_t w = 0; w < TEST_COUNT(words); w++)
      if (strstr(text, words[w])) fail_msg("%s comes to a file with %s", info.name, words[w]);
    snprintf(path, sizeof path, "%s/%s.yaml", families, info.name);
    assert_ok(treadle_output_write(path, text, strlen(text)));
    free(text);
  }
  assert_ok(treadle_families_open(families, &written));
  return written;
}

/* What a layout is, rank by rank, as text; or why it cannot be. */
static char *describe(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout;
  char *words = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&words, &length);
  assert_non_null(file);
  treadle_status status = treadle_layout_create(model, text, ranks, NULL, &layout);
  if (status) fprintf(file, "%s\n", treadle_error_message());
  for (int64_t rank = 0; !status && rank < ranks; rank++) {
    int32_t count = treadle_layout_storage_count(layout, rank);
    for (int32_t s = 0; s < count; s++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      treadle_run *runs;
      size_t run_count;
      assert_ok(treadle_layout_storage(layout, rank, s, &info));
      fprintf(file, "%d %s %d %d [", (int)rank, info.name, (int)info.chunk, (int)info.dtype);
      for (int d = 0; d < info.ndim; d++) fprintf(file, " %lld", (long long)info.shape[d]);
      fprintf(file, "]");
      assert_ok(treadle_layout_runs(layout, rank, s, &runs, &run_count));
      for (size_t r = 0; r < run_count && r < 64; r++)
        fprintf(file, " %d:%lld,%lld,%lld,%lld", (int)runs[r].tensor, (long long)runs[r].local_start,
                (long long)runs[r].start, (long long)runs[r].stride, (long long)runs[r].count);
      fprintf(file, " of %zu\n", run_count);
      free(runs);
    }
  }
  if (!status) treadle_layout_destroy(layout);
  assert_int_equal(fclose(file), 0);
  return words;
}

static void same_layouts(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t ranks;
  } layouts[] = {
      {"hf", 1},          {"megatron:tp=2,pp=2", 4}, {"vllm:tp=2", 2}, {"vllm:tp=2,dp=2,ep=on", 4},
      {"sglang:tp=2", 2}, {"sglang:tp=2,ep=2", 2},   {"fsdp:dp=3", 3}};
  char families[300];
  int made = 0;
  treadle_families *built_in, *written;
  snprintf(families, sizeof families, "%s/families", folder);
  assert_ok(treadle_families_open(NULL, &built_in));
  written = write_all(built_in, families);
  assert_int_equal(treadle_families_count(written), treadle_families_count(built_in));
  for (int32_t i = 0; i < treadle_families_count(built_in); i++) {
    treadle_family_info info = TREADLE_INIT(treadle_family_info);
    treadle_model_options options = {.struct_size = sizeof options, .families = families};
    treadle_model *model, *again;
    char path[400], *text, *twice;
    assert_ok(treadle_families_get(built_in, i, &info));
    snprintf(path, sizeof path, "%s/%s", folder, info.name);
    const treadle_make_options make = {.struct_size = sizeof make,
                                       .model_type = info.model_types[0],
                                       .layers = 4,
                                       .hidden = 128,
                                       .vocab = 96};
    assert_ok(treadle_make_model(path, &make, &model));
    assert_ok(treadle_model_open(path, &options, &again));
    for (size_t k = 0; k < TEST_COUNT(layouts); k++) {
      char *before = describe(model, layouts[k].text, layouts[k].ranks),
           *after = describe(again, layouts[k].text, layouts[k].ranks);
      if (strcmp(before, after) != 0)
        fail_msg("%s, %s:\n%s\n%s", info.name, layouts[k].text, before, after);
      made += strchr(before, '[') != NULL;
      free(before);
      free(after);
    }
    treadle_model_close(model);
    treadle_model_close(again);
    assert_ok(treadle_families_expanded(built_in, i, &text)); /* and it comes to itself */
    assert_ok(treadle_families_expanded(written, i, &twice));
    assert_string_equal(text, twice);
    free(text);
    free(twice);
  }
  assert_true(made > 5 * treadle_families_count(built_in));
  treadle_families_close(built_in);
  treadle_families_close(written);
}

/* ---- Texts ------------------------------------------------------------------------------------- */

static void assert_same(const treadle_yaml *a, const treadle_yaml *b) {
  assert_int_equal(a->type, b->type);
  assert_int_equal(a->count, b->count);
  if (a->type == TREADLE_YAML_SCALAR) assert_string_equal(a->text, b->text);
  for (size_t i = 0; a->type != TREADLE_YAML_SCALAR && i < a->count; i++) {
    if (a->type == TREADLE_YAML_MAP) assert_string_equal(a->keys[i], b->keys[i]);
    assert_same(a->items[i], b->items[i]);
  }
}

static void texts(void **state) {
  (void)state;
  static const char source[] =
      "a: \"\"\nb: [\"\", \"- x\", \"-\", \"--- \", \"...\", \"x: y\", \"x #y\", \"#\", \"{l}\", \"*.a\", "
      "\"&a\", \"!t\", \"|\", \"> \", \" x\", \"x \", \"a,b\", \"'\", \"say \\\"\\\\\\\"\", "
      "\"\\x01\\n\\t\\u2028\\x85\", "
      "\"\\u00e9\\U0001F600\", -1, a ?? b, 5 % 2, \"%x\", \"@x\", \"`\", \"?\", \"? a\", \"~\"]\n"
      "\"c: d\": {x: {}, y: []}\ndeep: [[{a: [1, {b: 2}]}], {c: d}]\nlines:\n  - {a: [{b: \"very "
      "long\"}]}\n  - plain\n"
      "map: {one: {a: b}, two: [c]}\n";
  treadle_arena arena = {0};
  const treadle_yaml *root, *again;
  assert_ok(treadle_yaml_parse("source", source, sizeof source - 1, &arena, &root));
  treadle_builder text = {0};
  root->items[1]->note = "of two\nlines";
  treadle_yaml_write(&text, root);
  assert_false(text.failed);
  assert_non_null(strstr(text.text, "\n# of two\n# lines\nb: ["));
  assert_ok(treadle_yaml_parse("written", text.text, text.length, &arena, &again));
  assert_same(root, again);
  for (char *line = text.text; *line; line += strcspn(line, "\n") + 1)
    assert_true(strcspn(line, "\n") <= 120);
  treadle_builder_release(&text);
  treadle_arena_release(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(same_layouts, make_folder, remove_folder),
      cmocka_unit_test(texts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

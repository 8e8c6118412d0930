/* Flat layouts against tests/golden: every case, and the checkers themselves, which must see numbers that
 * are changed in a file. */
#include "test.h"

#include "golden_support/golden.h"

static const char *path_of(const char *file) {
  static char path[512];
  snprintf(path, sizeof path, "%s/tests/golden/%s", TREADLE_SOURCE_DIR, file);
  return path;
}

static void every_case_agrees(void **state) {
  (void)state;
  static const struct {
    const char *file;
    int equal, refused;
  } rows[] = {{"fsdp1.json", 28, 0},
              {"fsdp2.json", 19, 1},
              {"dtensor.json", 53, 0},
              {"dist_optimizer_ranges.json.gz", 40, 0},
              {"dist_optimizer_ranges_te.json.gz", 27, 0}};
  golden_subject other = golden_library;
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    golden_counts counts;
    assert_true(golden_check_file(path_of(rows[i].file), &golden_library, stderr, &counts));
    assert_int_equal(counts.cases, rows[i].equal + rows[i].refused);
    assert_int_equal(counts.equal, rows[i].equal);
    assert_int_equal(counts.refused, rows[i].refused);
    assert_true(golden_check_file(path_of(rows[i].file), &other, stderr, &counts)); /* has nothing to say */
    assert_int_equal(counts.equal + counts.refused + counts.skipped + counts.different, 0);
  }
}

/* Adds 1 to the number at a path of keys and indices: "cases 3 ranks 0 runs 1 2". */
static void change(json_t *at, const char *path) {
  char words[128], *next = NULL;
  snprintf(words, sizeof words, "%s", path);
  for (char *word = strtok_r(words, " ", &next); word; word = strtok_r(NULL, " ", &next))
    at = json_is_array(at) ? json_array_get(at, strtoul(word, NULL, 10)) : json_object_get(at, word);
  if (!json_is_integer(at)) fail_msg("no number at %s", path);
  json_integer_set(at, json_integer_value(at) + 1);
}

static void changes_are_seen(void **state) {
  (void)state;
  static const struct {
    const char *file, *type, *path;
  } rows[] = {
      {"fsdp1.json", "fsdp1", "cases 0 ranks 1 0 content 1 3"},
      {"fsdp1.json", "fsdp1", "cases 0 ranks 1 0 content 1 2"}, /* the stored padding */
      {"fsdp1.json", "fsdp1", "cases 2 ranks 3 0 shard_tail_padding"},
      {"fsdp1.json", "fsdp1", "cases 5 ranks 0 0 shard_param_infos 0 4"},
      {"fsdp1.json", "fsdp1", "cases 5 units 2 numels_with_padding 1"},
      {"fsdp1.json", "fsdp1", "cases 23 units 1 unpadded_unsharded_numel"},
      {"fsdp2.json", "fsdp2", "cases 7 ranks 3 params 0 runs 0 1"},
      {"fsdp2.json", "fsdp2", "cases 7 ranks 3 params 0 storage_numel"},
      {"fsdp2.json", "fsdp2", "cases 0 ranks 3 params 0 local_shape 0"},
      {"dtensor.json", "dtensor", "cases 0 ranks 3 offset 0"},
      {"dtensor.json", "dtensor", "cases 20 ranks 3 shape 0"}, /* Partial */
      {"dtensor.json", "dtensor", "cases 16 ranks 1 runs 0 2"},
      {"dist_optimizer_ranges.json.gz", "dist_optimizer_ranges",
       "cases 5 ranks 4 chunks 0 buffers 0 params 2 2"},
      {"dist_optimizer_ranges.json.gz", "dist_optimizer_ranges",
       "cases 5 ranks 4 chunks 0 buffers 0 owned 1 4 1"},
      {"dist_optimizer_ranges.json.gz", "dist_optimizer_ranges",
       "cases 5 ranks 4 chunks 0 buffers 0 buckets 0 2"},
      {"dist_optimizer_ranges.json.gz", "dist_optimizer_ranges", "cases 27 numel_unpadded"},
      {"dist_optimizer_ranges_te.json.gz", "dist_optimizer_ranges_te",
       "cases 15 ranks 0 chunks 0 buffers 1 dp_size"},
  };
  const char *folder = test_folder();
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char path[128];
    golden_counts counts;
    json_t *root = golden_load(path_of(rows[i].file));
    assert_non_null(root);
    change(root, rows[i].path);
    snprintf(path, sizeof path, "%s/%s.json", folder, rows[i].type);
    assert_int_equal(json_dump_file(root, path, JSON_COMPACT), 0);
    json_decref(root);
    assert_true(golden_check_file(path, &golden_library, nowhere, &counts));
    if (counts.different != 1) fail_msg("%s, %s: %d seen", rows[i].file, rows[i].path, counts.different);
  }
  fclose(nowhere);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_case_agrees),
                                     cmocka_unit_test(changes_are_seen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The library against tests/golden and tests/golden_more: what Megatron, torch, vLLM and SGLang themselves did. Every case of every file
 * is equal or refused alike; build/golden_check says it file by file. And the checkers are told lies.
 * ctest: label=search timeout=1200 */
#include "test.h"

#include "golden_support/golden.h"

#include <glob.h>

static void every_file_agrees(void **state) {
  (void)state;
  static const char *const patterns[] = {TREADLE_SOURCE_DIR "/tests/golden/*.json",
                                         TREADLE_SOURCE_DIR "/tests/golden/*.json.gz",
                                         TREADLE_SOURCE_DIR "/tests/golden_more/*.json.gz"};
  glob_t found = {0};
  for (size_t i = 0; i < TEST_COUNT(patterns); i++)
    assert_int_equal(glob(patterns[i], i > 0 ? GLOB_APPEND : 0, NULL, &found), 0);
  assert_int_equal(found.gl_pathc, 30 + 13);
  int different = 0, skipped = 0; /* cases of tests/golden/COMING.txt are skipped, each with a line */
  for (size_t i = 0; i < found.gl_pathc; i++) {
    golden_counts counts;
    assert_true(golden_check_file(found.gl_pathv[i], &golden_library, stderr, &counts));
    print_message("%s: %d cases, %d equal, %d refused alike, %d skipped, %d different\n", found.gl_pathv[i],
                  counts.cases, counts.equal, counts.refused, counts.skipped, counts.different);
    assert_true(counts.cases > 0);
    different += counts.different;
    if (!strstr(found.gl_pathv[i], "_params_new")) skipped += counts.skipped;
  }
  globfree(&found);
  assert_int_equal(different, 0);
  assert_int_equal(skipped, 0);
}

/* Files may say what those of tests/golden do not: numbers of experts that no width is made for, sizes that are none. */
static void other_numbers(void **state) {
  (void)state;
  static const struct {
    const char *file, *cases;
    int equal, refused, different;
  } rows[] = {
      {"vllm_experts.json",
       "{\"kind\": \"placement\", \"experts\": 10, \"ep\": 5, \"strategy\": \"linear\","
       " \"ranks\": [[0,1],[2,3],[4,5],[6,7],[8,9]]},"
       "{\"kind\": \"placement\", \"experts\": 7, \"ep\": 7, \"strategy\": \"linear\","
       " \"ranks\": [[0],[1],[2],[3],[4],[5],[6]]}",
       2, 0, 0},
      {"megatron_layers.json",
       "{\"num_layers\": 8, \"pp\": 2, \"num_layers_in_last_pipeline_stage\": 0, \"error\": {\"class\": "
       "\"ValueError\"}},"
       "{\"num_layers\": 8, \"pp\": 2, \"num_layers_in_last_pipeline_stage\": -1, \"error\": {\"class\": "
       "\"ValueError\"}},"
       "{\"num_layers\": 8, \"pp\": 2, \"num_layers_in_first_pipeline_stage\": -3, \"error\": {\"class\": "
       "\"ValueError\"}},"
       "{\"num_layers\": 8, \"pp\": 2, \"num_layers_in_first_pipeline_stage\": 4, \"error\": {\"class\": "
       "\"ValueError\"}}",
       0, 3, 1},
  };
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const char *folder = test_folder();
    char path[512];
    golden_counts counts;
    snprintf(path, sizeof path, "%s/%s", folder, rows[i].file);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"package\": \"none\", \"cases\": [%s]}", rows[i].cases);
    fclose(file);
    assert_true(golden_check_file(path, &golden_library, i == 0 ? stderr : nowhere, &counts));
    assert_int_equal(counts.equal, rows[i].equal);
    assert_int_equal(counts.refused, rows[i].refused);
    assert_int_equal(counts.different, rows[i].different);
    test_remove(folder);
  }
  fclose(nowhere);
}

/* ---- The checkers see what is wrong: a library that errs in one way at a time -------------------- */

static enum {
  WRONG_TENSOR,
  WRONG_ADD,
  WRONG_DERIVED,
  WRONG_CHUNK,
  LOST_TENSOR,
  WRONG_EP,
  WRONG_MOE_TP
} wrong;

static bool wrong_runs(const void *layout, int64_t rank, int32_t number, treadle_run **runs_p,
                       size_t *count_p) {
  bool good = golden_library.runs(layout, rank, number, runs_p, count_p);
  for (size_t i = 0; i < *count_p; i++) {
    treadle_run *run = &(*runs_p)[i];
    if (wrong == WRONG_TENSOR && i + 1 == *count_p && run->tensor >= 0) run->tensor ^= 1;
    if (wrong == WRONG_ADD) run->add = 0;
  }
  return good;
}

static bool wrong_storage(const void *layout, int64_t rank, int32_t number, treadle_storage_info *info_p) {
  bool good = golden_library.storage(layout, rank, number, info_p);
  if (wrong == WRONG_DERIVED) info_p->derived = false;
  if (wrong == WRONG_CHUNK && number == 0) info_p->chunk++;
  return good;
}

static int32_t wrong_count(const void *layout, int64_t rank) {
  return golden_library.storage_count(layout, rank) - (wrong == LOST_TENSOR);
}

static bool wrong_coordinate(const void *layout, int64_t rank, const char *dimension, int64_t *index_p) {
  bool good = golden_library.coordinate(layout, rank, dimension, index_p);
  *index_p += (wrong == WRONG_EP && strcmp(dimension, "ep") == 0) ||
              (wrong == WRONG_MOE_TP && strcmp(dimension, "moe_tp") == 0);
  return good;
}

static void errors_are_seen(void **state) {
  (void)state;
  golden_subject liar = golden_library;
  liar.runs = wrong_runs;
  liar.storage = wrong_storage;
  liar.storage_count = wrong_count;
  liar.coordinate = wrong_coordinate;
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  static const struct {
    const char *file;
    int wrong, different; /* cases in which it matters: all that are not refused, where nothing is said */
  } rows[] = {{"megatron_hf_map_bridge.json.gz", WRONG_ADD, 4}, /* qwen3_next */
              {"megatron_params_te.json.gz", WRONG_ADD, 3},
              {"megatron_params_te.json.gz", WRONG_TENSOR, 46},
              {"megatron_params.json.gz", LOST_TENSOR, 40},
              {"vllm_params.json.gz", WRONG_DERIVED, 19}, /* DeepSeek */
              {"vllm_params_more.json.gz", WRONG_CHUNK, 18},
              {"vllm_params_mtp.json.gz", WRONG_TENSOR, 4},
              {"sglang_params_mtp.json.gz", WRONG_DERIVED, 4},
              {"sglang_params_more.json.gz", WRONG_TENSOR, 16},
              {"megatron_ranks.json", WRONG_EP, 41},
              {"vllm_ranks.json", WRONG_MOE_TP, 15},
              {"sglang_ranks.json", WRONG_MOE_TP, 17},
              {"vllm_experts.json", WRONG_TENSOR, 81},
              {"sglang_experts.json", WRONG_TENSOR, 14}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char path[512];
    golden_counts counts;
    wrong = rows[i].wrong;
    snprintf(path, sizeof path, "%s/tests/golden/%s", TREADLE_SOURCE_DIR, rows[i].file);
    assert_true(golden_check_file(path, &liar, nowhere, &counts));
    if (counts.different < rows[i].different)
      fail_msg("%s, error %d: %d seen", rows[i].file, (int)wrong, counts.different);
  }
  fclose(nowhere);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_file_agrees), cmocka_unit_test(other_numbers),
                                     cmocka_unit_test(errors_are_seen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

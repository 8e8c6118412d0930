/* The library against tests/golden: what Megatron, vLLM and SGLang themselves did. No case is different,
 * and no fewer than these are compared; build/golden_check says it file by file. */
#include "test.h"

#include "golden_support/golden.h"

#include <glob.h>

static void every_file_agrees(void **state) {
  (void)state;
  static const char *const patterns[] = {TREADLE_SOURCE_DIR "/tests/golden/*.json",
                                         TREADLE_SOURCE_DIR "/tests/golden/*.json.gz"};
  glob_t found = {0};
  for (size_t i = 0; i < TEST_COUNT(patterns); i++)
    assert_int_equal(glob(patterns[i], i > 0 ? GLOB_APPEND : 0, NULL, &found), 0);
  assert_int_equal(found.gl_pathc, 28);
  golden_counts all = {0};
  for (size_t i = 0; i < found.gl_pathc; i++) {
    golden_counts counts;
    assert_true(golden_check_file(found.gl_pathv[i], &golden_library, stderr, &counts));
    print_message("%s: %d cases, %d equal, %d refused alike, %d skipped, %d different\n", found.gl_pathv[i],
                  counts.cases, counts.equal, counts.refused, counts.skipped, counts.different);
    all.cases += counts.cases;
    all.equal += counts.equal;
    all.refused += counts.refused;
    all.different += counts.different;
  }
  globfree(&found);
  assert_int_equal(all.different, 0);
  assert_true(all.equal >= 1304);
  assert_true(all.refused >= 77);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_file_agrees)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

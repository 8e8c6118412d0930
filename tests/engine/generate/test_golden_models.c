/* Tiny models of each family, in fp32 and bf16: the logits are those of transformers within each model's tolerances, and greedy tokens
 * the same wherever the recorded gap is larger (tests/golden/models/SOURCE.txt). More models, and real ones, lie in ../shared, where
 * that is. */
/* ctest: stage=gcc timeout=300 */
#include "test.h"

#include "golden_support/golden.h"

#include <glob.h>

/* How many files are compared; those of `later` families are skipped. */
static int check_all(const char *pattern) {
  glob_t found = {0};
  int files = 0;
  if (glob(pattern, 0, NULL, &found) != 0) printf("%s: nothing is there: skipped\n", pattern);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    golden_counts counts;
    bool later = strstr(found.gl_pathv[i], "/later-") != NULL;
    assert_true(golden_check_file(found.gl_pathv[i], &golden_library, stderr, &counts));
    printf("%s: %d cases, %d equal, %d skipped, %d different\n", found.gl_pathv[i], counts.cases,
           counts.equal, counts.skipped, counts.different);
    assert_true(counts.cases > 0);
    assert_int_equal(counts.different, 0);
    assert_int_equal(counts.skipped, later ? counts.cases : 0);
    files++;
  }
  globfree(&found);
  return files;
}

static void test_models(void **state) {
  (void)state;
  assert_true(check_all(TREADLE_SOURCE_DIR "/tests/golden/models/*/expected.json") >= 5);
  check_all(TREADLE_SOURCE_DIR "/../shared/data/golden/models/*/expected.json");
}

static void test_real_models(void **state) {
  (void)state;
  if (TEST_SANITIZED) skip(); /* minutes */
  check_all(TREADLE_SOURCE_DIR "/../shared/data/golden/text/real_models.json");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_real_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

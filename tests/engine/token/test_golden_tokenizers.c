/* tests/golden/text/tokenizers.json.gz: what transformers, tokenizers and llama2.c gave for 150 texts and six tokenizers. */
#include "golden_support/golden.h"
#include "test.h"

enum { LEAST_CASES = 6 * 150 };

static void all_equal(void **state) {
  (void)state;
  golden_counts counts;
  assert_true(golden_check_file(TREADLE_SOURCE_DIR "/tests/golden/text/tokenizers.json.gz", &golden_library,
                                stderr, &counts));
  assert_int_equal(counts.different, 0);
  assert_in_range(counts.cases, LEAST_CASES, INT32_MAX);
  assert_int_equal(counts.equal + counts.skipped, counts.cases);
  if (counts.skipped) {
    printf("%d of %d cases are skipped: files of tokenizers are not in ../shared/data\n", counts.skipped,
           counts.cases);
    skip();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_equal)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

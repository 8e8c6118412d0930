/* What is left of rows of logits, and its probabilities, as vLLM's rules have it (tests/golden/text). */
#include "golden_support/golden.h"
#include "test.h"

static void test_all_vectors(void **state) {
  (void)state;
  golden_counts counts;
  assert_true(golden_check_file(TREADLE_SOURCE_DIR "/tests/golden/text/sampling.json.gz", &golden_library,
                                stderr, &counts));
  assert_int_equal(counts.cases, 129);
  assert_int_equal(counts.equal, 129);
  assert_int_equal(counts.different, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_vectors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

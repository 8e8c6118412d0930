/* src/engine/jinja/ and src/engine/chat/, against what Jinja2 and transformers did (tests/golden/text). */
#include "test.h"

#include "golden_support/golden.h"

static void renders_as_jinja(void **state) {
  (void)state;
  golden_counts counts;
  assert_true(golden_check_file(TREADLE_SOURCE_DIR "/tests/golden/text/jinja.json", &golden_library, stderr,
                                &counts));
  assert_int_equal(counts.different, 0);
  assert_int_equal(counts.equal, 86);
  assert_int_equal(counts.refused, 24);
}

static void renders_as_transformers(void **state) {
  (void)state;
  golden_counts counts;
  assert_true(golden_check_file(TREADLE_SOURCE_DIR "/tests/golden/text/chat.json.gz", &golden_library,
                                stderr, &counts));
  assert_int_equal(counts.different, 0);
  assert_int_equal(counts.equal, 529);
  assert_int_equal(counts.refused, 74);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(renders_as_jinja),
                                     cmocka_unit_test(renders_as_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

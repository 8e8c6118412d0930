/* Exchanges and rings among threads: sums have the bits of one rank however the leaves are divided; columns, slots and rows arrive as
 * they were written. Run under TSan too.  ctest: label=threads */
#include "nn/exchanges.h"
#include "test.h"

static const int sizes[] = {1, 2, 3, 4, 6, 8, 16};

static void test_sums(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(60); seed++)
    ranks_as_threads(sizes[seed % TEST_COUNT(sizes)], 60, seed % 4 ? seed : 0, exchanges_sum, &seed);
}

static void test_columns_and_slots(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(40); seed++)
    ranks_as_threads(sizes[seed % TEST_COUNT(sizes)], 60, seed % 3 ? seed : 0, exchanges_mix, &seed);
}

static void test_rings(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(20); seed++)
    ranks_as_threads(2 + (int)(seed % 7), 60, seed % 3 ? seed : 0, exchanges_pass, NULL);
  for (uint64_t seed = 0; seed < 3; seed++) ranks_as_threads(2, 60, seed, exchanges_stream, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_columns_and_slots),
      cmocka_unit_test(test_rings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* src/core/carry/words.c: the outcome of an epoch. Run under TSan too.  ctest: label=threads timeout=900 */
#include "carry/words.h"
#include "group/ranks.h"
#include "test.h"

/* Exactly one outcome, whoever is first. */
static int decide(treadle_group *group, void *context) {
  int *committed = context;
  for (uint64_t epoch = 1; epoch <= 100; epoch++) {
    RANK_OK(treadle_group_barrier(group));
    treadle_outcome_open(group, epoch);
    bool fails = epoch % 3 == 0 && (uint64_t)group->rank == epoch % 4;
    if (fails) treadle_fail(TREADLE_DIFFERENT, "epoch %d is bad", (int)epoch);
    bool mine = treadle_outcome_settle(group, epoch, fails ? TREADLE_FAILED : TREADLE_COMMITTED);
    treadle_status status = treadle_outcome_check(group, epoch);
    RANK_TRUE(mine == (fails == (status != TREADLE_OK)));
    if (status != TREADLE_OK) RANK_TRUE(strstr(treadle_error_message(), "is bad"));
    committed[group->rank * 128 + (int)epoch] = status == TREADLE_OK;
    RANK_OK(treadle_group_barrier(group));
    for (int rank = 0; rank < group->size; rank++)
      RANK_TRUE(committed[rank * 128 + (int)epoch] == (status == TREADLE_OK));
  }
  return 0;
}

static void test_outcome(void **state) {
  (void)state;
  static int committed[4 * 128];
  ranks_as_threads(4, 30, 9, decide, committed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_outcome)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

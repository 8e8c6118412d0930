/* Clocks of ranks, which are threads here and have one clock: rank 0 tells its time between a rank's question and the answer, whoever comes late.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "run/trace.h"

#include <math.h>

enum { RANKS = 3, TRIPS = 20 };

static int travel(treadle_group *group, void *context) {
  treadle_trace_trip trips[TRIPS];
  double shortest = INFINITY;
  (void)context;
  RANK_OK(treadle_trace_travel(group, trips, TRIPS));
  for (int i = 0; i < TRIPS; i++) {
    RANK_TRUE(trips[i].asked <= trips[i].told && trips[i].told <= trips[i].heard);
    RANK_TRUE(i == 0 || trips[i - 1].heard <= trips[i].asked);
    shortest = fmin(shortest, trips[i].heard - trips[i].asked);
  }
  RANK_TRUE(fabs(treadle_trace_offset(trips, TRIPS)) <= shortest / 2);
  return 0;
}

static void test_travel(void **state) {
  (void)state;
  ranks_as_threads(RANKS, 30, 0, travel, NULL);
  for (uint64_t delays = 1; delays <= 5; delays++) ranks_as_threads(RANKS, 30, delays, travel, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_travel)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

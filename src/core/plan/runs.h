/* Runs: bytes of an op that lie together both in a window and in the message that comes from it, or goes to it. A message is dense, and
 * has its elements in their order; runs are in that order, too.
 *
 * Pure functions. */
#ifndef TREADLE_PLAN_RUNS_H
#define TREADLE_PLAN_RUNS_H

#include "plan/plan.h"

typedef struct treadle_runs {
  int64_t bytes, count; /* of each; how many */
  int64_t window;       /* where the first one lies */
  int ndim;
  int64_t size[TREADLE_MAX_AXES],
      stride[TREADLE_MAX_AXES]; /* of the window, by runs; the last one is the fastest */
} treadle_runs;

/* Of an op between a window and a message; `writes`: the window. False: its values change on the way. */
bool treadle_runs_of(const treadle_op *op, bool writes, treadle_runs *runs);
/* Where run number `i` begins. */
int64_t treadle_runs_at(const treadle_runs *runs, int64_t i);

#endif

/* Where a run of training begins: anew, or from one of its checkpoints. The same for supervised training and reinforcement learning. */
#ifndef TREADLE_RUN_RUN_START_H
#define TREADLE_RUN_RUN_START_H

#include "run/observe.h"
#include "treadle_loop.h"

enum { TREADLE_RUN_FROM = 1024 };

typedef struct treadle_run_start {
  const char *run,
      *place; /* the folder of its checkpoints; the key that names it, and where that is given */
  treadle_start resume;
  const char *from, *families; /* as treadle_sft_options has them */
  treadle_observer observer;   /* rank 0 tells it */
} treadle_run_start;

/* The checkpoint that the run goes on from; "": it begins anew. Refused: a run that has checkpoints, and nobody said that it goes on; a folder
 * that is not a whole checkpoint. */
treadle_status treadle_run_start_find(const treadle_run_start *start, char from[TREADLE_RUN_FROM]);
/* Is it as it was saved? Refused where not; one that says nothing of itself passes with a line. Collective; group: NULL is one rank. */
treadle_status treadle_run_start_check(const treadle_run_start *start, treadle_group *group,
                                       const char *from);

#endif

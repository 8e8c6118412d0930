/* Who worked when (run/trace.h), in a run: loop_trace.c. */
#ifndef TREADLE_RL_TRACE_H
#define TREADLE_RL_TRACE_H

#include "rl/crew.h"
#include "rl/workers.h"

/* From now on each rank records the methods that it runs, until its workers are released. started: when the run did, by the clock of rank 0. Collective among
 * `whole`. */
treadle_status treadle_rl_trace_open(treadle_rl_workers *workers, const treadle_rl_crew *whole,
                                     double started);

/* A step, by the clock of rank 0. */
typedef struct treadle_rl_span {
  int64_t step;
  double begin, end;
} treadle_rl_span;
/* Rank 0: what all ranks have recorded since the last time becomes lines of the file. *idle_p: seconds of the step in which ranks ran no method, the mean
 * over ranks. */
treadle_status treadle_rl_trace_collect(treadle_rl_workers *workers, treadle_trace_file *file,
                                        const treadle_rl_span *span, double *idle_p);

/* Tells the person who runs it how many calls had no room, if there are any. */
void treadle_rl_trace_tell(const treadle_rl_crew *crew, const treadle_trace_file *file);

/* The method of the workers. */
treadle_status treadle_rl_take_trace(void *worker, treadle_message *in, treadle_message *out);

#endif

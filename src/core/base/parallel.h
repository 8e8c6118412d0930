/* A loop whose steps are taken by several threads. */
#ifndef TREADLE_BASE_PARALLEL_H
#define TREADLE_BASE_PARALLEL_H

#include "base/status.h"

#include <stdint.h>

/* Step `index` of a loop; steps do not touch what others write. */
typedef treadle_status (*treadle_loop_step)(void *context, int32_t index);

/* Takes steps 0 to count - 1, this thread and others beside it: one for each processor that the process may use, 16 at
 * most. No step begins after one has failed. The failure of the lowest index is the result, so that it is the same each
 * time, and its message is this thread's. told: called between this thread's steps with how many have begun, and ends the
 * loop where it fails; may be NULL. */
treadle_status treadle_parallel(int32_t count, treadle_loop_step step, void *context,
                                treadle_status (*told)(void *context, int32_t begun));

#endif

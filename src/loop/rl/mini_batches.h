/* In which order the samples of a step are taken, mini batch by mini batch. */
#ifndef TREADLE_RL_MINI_BATCHES_H
#define TREADLE_RL_MINI_BATCHES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* places [count]: as they are, or in an order that follows from seed, step and epoch. */
treadle_status treadle_rl_mini_order(size_t count, bool shuffles, uint64_t seed, int64_t step,
                                     int64_t epoch, int64_t *places);

#endif

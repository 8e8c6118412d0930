/* Pools of a run: which ranks may be one. */
#ifndef TREADLE_RL_POOLS_H
#define TREADLE_RL_POOLS_H

#include "rl/crew.h"
#include "run/config.h"
#include "treadle_control.h"

/* Where all ranks work together. Refused: one pool of resource_pools with another number of slots than the run has ranks, or whose counts do not fit on their
 * nodes. Of one pool in another project's keys, another number of ranks is a warning. Local. */
treadle_status treadle_rl_check_pools(const treadle_train_config *config, const treadle_rl_crew *crew);

#endif

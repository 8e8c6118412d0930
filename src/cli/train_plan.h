/* What treadle train --plan says, and how it is printed. */
#ifndef TREADLE_CLI_TRAIN_PLAN_H
#define TREADLE_CLI_TRAIN_PLAN_H

#include "cli/cli.h"

#include "treadle_control.h"

typedef struct treadle_train_plan {
  const treadle_actor_memory *by_rank; /* [ranks] of a controller that is apart: nothing */
  int64_t ranks;
  size_t kept, peak; /* kept: bytes of ids that tokens were drawn from, in each rank's host memory */
  bool fits;
} treadle_train_plan;

/* How many ranks a plan is for, where --ranks does not say. */
treadle_status treadle_train_plan_ranks(const treadle_train_config *config, int64_t *ranks_p);
/* Prints it, with the bytes of each pool's roles. */
treadle_status treadle_train_plan_print(const treadle_train_plan *plan, const treadle_train_config *config,
                                        const treadle_rl_options *options, bool json);

#endif

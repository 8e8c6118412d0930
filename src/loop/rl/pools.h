/* Pools of a run: which ranks may be one. */
#ifndef TREADLE_RL_POOLS_H
#define TREADLE_RL_POOLS_H

#include "rl/crew.h"
#include "run/config.h"
#include "treadle_control.h"

/* Refused: several pools, which no run has yet; one pool of resource_pools with another number of slots than the run has ranks, or whose counts do
 * not fit on their nodes. Of one pool in another project's keys, another number of ranks is a warning. Local. */
treadle_status treadle_rl_check_pools(const treadle_train_config *config, const treadle_rl_crew *crew);

/* One pool among others: how many ranks work in each role of the run, wherever they are, and what this pool has of them. */
typedef struct treadle_rl_pool_plan {
  int64_t policy_ranks, critic_ranks, reward_ranks, reference_ranks;
  bool critic_apart, reward_apart; /* the critic, the reward model is in another pool */
  bool reference_alone; /* this pool has the reference, and nothing else; else it has the policy */
} treadle_rl_pool_plan;

/* plan.c: treadle_rl_foresee() of the ranks of that pool. */
treadle_status treadle_rl_foresee_pool(const treadle_train_config *config, const treadle_rl_pool_plan *pool,
                                       const treadle_rl_options *options, treadle_actor_memory *by_rank);

#endif

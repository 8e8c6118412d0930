/* What the run trains: the policy, or the critic. */
#ifndef TREADLE_RL_ROLE_H
#define TREADLE_RL_ROLE_H

#include "rl/bounds.h"
#include "rl/task.h"

typedef struct treadle_rl_role {
  const treadle_model *model;
  const treadle_layout *layout;       /* that it trains in */
  const treadle_config_actor *config; /* actor_config, or what the critic has in its place */
} treadle_rl_role;

/* loop_role.c: the options of its trainer, on `ranks` ranks. */
treadle_status treadle_rl_trainer_options(const treadle_rl_role *role, const treadle_rl_task *task,
                                          const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                          int ranks, treadle_trainer_options *to);
/* How its rows go through the layers. */
treadle_forward_options treadle_rl_forward_of(const treadle_config_actor *config,
                                              const treadle_train_settings *settings,
                                              const treadle_rl_bounds *bounds, bool entropies);

#endif

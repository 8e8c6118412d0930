/* What the run has models for: the policy, and roles beside it, a critic and a reward model. */
#ifndef TREADLE_RL_ROLE_H
#define TREADLE_RL_ROLE_H

#include "control/tenant.h"
#include "rl/bounds.h"
#include "rl/task.h"

typedef struct treadle_rl_role {
  const treadle_model *model;
  const treadle_layout *layout;       /* of its trainer */
  const treadle_config_actor *config; /* actor_config, or what the role has in its place */
} treadle_rl_role;

/* loop_role.c: the options of its trainer, on `ranks` ranks. */
treadle_status treadle_rl_trainer_options(const treadle_rl_role *role, const treadle_rl_task *task,
                                          const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                          int ranks, treadle_trainer_options *to);
/* How its rows go through the layers. */
treadle_forward_options treadle_rl_forward_of(const treadle_config_actor *config,
                                              const treadle_train_settings *settings,
                                              const treadle_rl_bounds *bounds, bool entropies);

/* ---- loop_role_beside.c: of a critic or a reward model ---- */

/* Refused: another vocabulary than that of the policy, whose tokens it reads. */
treadle_status treadle_rl_check_vocabulary(const treadle_model *model, const treadle_model *policy);
/* All but what leaves the device. */
treadle_tenant_options treadle_rl_role_options(const treadle_rl_role *role, const treadle_rl_task *task,
                                               const treadle_trainer_options *trainer);
/* What it takes, by rank; the caller frees. */
treadle_status treadle_rl_role_foresee(const treadle_layout *layout, const treadle_tenant_options *options,
                                       treadle_tenant_memory **all_p);
/* Adds it to what ranks hold. */
void treadle_rl_role_add(treadle_actor_memory *by_rank, const treadle_tenant_memory *all, int64_t ranks);
/* The most that it has at rest on any rank. */
size_t treadle_rl_role_resting(const treadle_tenant_memory *all, int64_t ranks);

#endif

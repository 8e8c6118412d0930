/* What the run has models for: the policy, and roles beside it: a critic, a reward model, a reference with an engine of its own. */
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
                                          treadle_trainer_options *to);
/* How its rows go through the layers. */
treadle_forward_options treadle_rl_forward_of(const treadle_config_actor *config,
                                              const treadle_train_settings *settings,
                                              const treadle_rl_bounds *bounds, bool entropies);

/* ---- loop_role_beside.c: of a role that is a tenant (control/tenant.h) ---- */

/* The role as a run opens it. */
typedef struct treadle_rl_tenant {
  treadle_rl_role role; /* without a layout: the run does not have it */
  const char *name;     /* what messages call it */
  int key;              /* of its model, which refusals name; -1: none */
  bool trains;          /* else it goes forward only */
  bool offload_param, offload_grad, offload_optimizer;
} treadle_rl_tenant;

/* Refused: another vocabulary than that of the policy, whose tokens it reads. */
treadle_status treadle_rl_check_vocabulary(const treadle_model *model, const treadle_model *policy);
/* A refusal begins with the place of the key; -1: it stays as it is. */
treadle_status treadle_rl_say_key(const treadle_rl_task *task, int key, treadle_status status);
/* On `ranks` ranks, as the keys of `part` say. */
treadle_status treadle_rl_tenant_layout(const treadle_rl_tenant *tenant, const treadle_rl_task *task,
                                        treadle_train_part part, int ranks, treadle_layout **layout_p);
/* What it is created with, good while `trainer` is. Refused of one that goes forward only: a model with too few positions. */
treadle_status treadle_rl_tenant_options(const treadle_rl_tenant *tenant, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         treadle_trainer_options *trainer, treadle_tenant_options *to);
/* Adds it to what ranks hold, by_rank [ranks of its layout]. */
treadle_status treadle_rl_tenant_foresee(const treadle_rl_tenant *tenant, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         treadle_actor_memory *by_rank);
/* The most bytes that it has at rest on any rank. */
treadle_status treadle_rl_tenant_resting(const treadle_rl_tenant *tenant, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         size_t *bytes_p);

#endif

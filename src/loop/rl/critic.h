/* The critic of a run: its model, its role on each rank, and its part of a step. */
#ifndef TREADLE_RL_CRITIC_H
#define TREADLE_RL_CRITIC_H

#include "control/critic.h"
#include "rl/ledger.h"
#include "rl/models.h"
#include "rl/role.h"
#include "rl/workers.h"
#include "run/schedule.h"

/* Of a run without one, all NULL. */
typedef struct treadle_rl_critic {
  char path[PATH_MAX]; /* of its model */
  treadle_model *model;
  treadle_layout *layout;
  treadle_critic *role;
  treadle_lr_schedule schedule;
} treadle_rl_critic;

/* ---- loop_critic_open.c ---- */

/* Its model and its layout, where the run has one; what a person should know of them. Local. */
treadle_status treadle_rl_critic_open(treadle_rl_critic *critic, const treadle_rl_task *task,
                                      treadle_rl_crew *crew, const treadle_rl_models *models);
/* Its role, at rest, with its weights: those of the checkpoint `from` or, where that is "", of its model. Made before the policy's worker, which
 * takes its memory later. Nothing is done without a critic, nor by the next two. Collective. */
treadle_status treadle_rl_critic_create(treadle_rl_critic *critic, const treadle_rl_task *task,
                                        const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                        const treadle_rl_crew *crew, const char *from);
void treadle_rl_critic_close(treadle_rl_critic *critic);

/* What it adds to what ranks hold, by_rank [ranks]. */
treadle_status treadle_rl_critic_foresee(const treadle_rl_critic *critic, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         treadle_actor_memory *by_rank);
/* The most bytes that it has at rest on any rank, which the policy does not have. */
treadle_status treadle_rl_critic_resting(const treadle_rl_critic *critic, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         size_t *bytes_p);

/* ---- loop_critic.c; rank 0 ---- */

/* Is the policy left as it is in this step, from 1 on, while the critic learns alone? */
static inline bool treadle_rl_warms_up(const treadle_train_settings *s, int64_t step) {
  return treadle_train_has_critic(s) && step < s->critic.warmup;
}

/* The values of all tokens of the batch. Nothing is done without a critic. */
treadle_status treadle_rl_find_values(treadle_rl_workers *workers, const treadle_train_settings *settings,
                                      treadle_rl_batch *batch, size_t from);
/* All mini batches, and their figures. *skipped_p becomes true where a step of the optimizer did nothing. */
typedef struct treadle_rl_critic_update {
  const treadle_train_settings *settings;
  const treadle_lr_schedule *schedule;
  treadle_rl_workers *workers;
  treadle_rl_batch *batch;
  treadle_rl_state *state;
  treadle_rl_ledger *ledger;
} treadle_rl_critic_update;
treadle_status treadle_rl_update_critic(const treadle_rl_critic_update *update, bool *skipped_p);
/* How much of the returns the values explain: 1 - the variance of what they differ by / that of the returns. */
double treadle_rl_explained_variance(const double *returns, const float *values, size_t count);

#endif

/* The reward model of a run: its model, its role on each rank, and its part of a step. */
#ifndef TREADLE_RL_REWARD_MODEL_H
#define TREADLE_RL_REWARD_MODEL_H

#include "control/reward_model.h"
#include "rl/models.h"
#include "rl/role.h"
#include "rl/workers.h"

/* Of a run without one, all NULL. */
typedef struct treadle_rl_reward_model {
  treadle_model *model;
  treadle_layout *layout;
  treadle_tenant *role;
} treadle_rl_reward_model;

/* ---- loop_reward_model_open.c ---- */

/* Its model and its layout, where the run has one. Local. */
treadle_status treadle_rl_reward_model_open(treadle_rl_reward_model *reward_model,
                                            const treadle_rl_task *task, treadle_rl_crew *crew,
                                            const treadle_rl_models *models);
/* Its role, at rest, with the weights of its model. Made before the policy's worker, which takes its memory later. Nothing is done without a
 * reward model, nor by the next two. Refused: a model with too few positions. Collective. */
treadle_status treadle_rl_reward_model_create(treadle_rl_reward_model *reward_model,
                                              const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                              const treadle_run_text *text, const treadle_rl_crew *crew);
void treadle_rl_reward_model_close(treadle_rl_reward_model *reward_model);

/* What it adds to what ranks hold, by_rank [ranks]. */
treadle_status treadle_rl_reward_model_foresee(const treadle_rl_reward_model *reward_model,
                                               const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                               const treadle_run_text *text, treadle_actor_memory *by_rank);
/* The most bytes that it has at rest on any rank, which the policy does not have. */
treadle_status treadle_rl_reward_model_resting(const treadle_rl_reward_model *reward_model,
                                               const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                               const treadle_run_text *text, size_t *bytes_p);

/* ---- loop_worker_reward.c; worker is the run ---- */

treadle_status treadle_rl_compute_rm_score(void *worker, treadle_message *in, treadle_message *out);

/* ---- loop_reward_model.c; rank 0 ---- */

/* model_score of the samples from `from` on: what the model finds at the last token of each, prompt and answer. All ranks' policies go to mode
 * FORWARD for it. Nothing is done without a reward model. */
treadle_status treadle_rl_find_rm_scores(treadle_rl_workers *workers,
                                         const treadle_train_settings *settings, treadle_rl_batch *batch,
                                         size_t from);

#endif

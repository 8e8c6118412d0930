/* The reward model of a run, opened: its model with a score head, its layout, its role on each rank; and what it holds there. */
#include "rl/reward_model.h"

#include "base/alloc.h"
#include "layout/layout.h"
#include "model/model.h"
#include "model/notes.h"
#include "pass/transformer.h"

static treadle_status say_reward(const treadle_rl_task *task, treadle_status status) {
  return treadle_refused_at(TREADLE_RL_PLACE(task, reward.scored.model), status);
}

static void warn(void *context, const char *line) { treadle_rl_warn(context, line); }

/* Scores of weights that are made up would teach nothing. */
static treadle_status check_weights(const treadle_model *model, const char *path) {
  treadle_status status;
  TRY(treadle_model_need_weights(model));
  if (treadle_model_weights(model) == TREADLE_WEIGHTS_RANDOM)
    REFUSE("%s is a config.json, without weights: name the folder that has them", path);
out:
  return status;
}

static treadle_status open_model(treadle_rl_reward_model *m, const treadle_rl_task *task,
                                 treadle_rl_crew *crew, const treadle_rl_models *models) {
  const char *path = task->settings->reward.scored.model;
  const treadle_model_options options = {
      .struct_size = sizeof options, .families = task->options->families, .head = TREADLE_HEAD_SCORE};
  treadle_status status;
  TRY(treadle_model_open(path, &options, &m->model));
  treadle_model_tell(m->model, warn, crew);
  if (!task->plans) TRY(check_weights(m->model, path));
  TRY(treadle_rl_check_vocabulary(m->model, models->model));
out:
  return status;
}

treadle_status treadle_rl_reward_model_open(treadle_rl_reward_model *m, const treadle_rl_task *task,
                                            treadle_rl_crew *crew, const treadle_rl_models *models) {
  char text[1024];
  treadle_status status = TREADLE_OK;
  if (!treadle_train_has_reward_model(task->settings)) return TREADLE_OK;
  TRY(say_reward(task, open_model(m, task, crew, models)));
  TRY(treadle_train_config_layout(task->config, TREADLE_PART_REWARD, m->model->layers, crew->reward_ranks,
                                  text, sizeof text));
  TRY(say_reward(task, treadle_layout_create(m->model, text, crew->reward_ranks, NULL, &m->layout)));
out:
  return status;
}

/* Of prompts and answers, as long as they can be. */
static treadle_status check_lengths(const treadle_model *model, const treadle_rl_bounds *bounds) {
  const long long all = bounds->prompt_most + bounds->response_most;
  treadle_transformer *d = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(model, &d));
  if (d->most_positions && all > d->most_positions)
    status = treadle_fail(TREADLE_REFUSED,
                          "prompts of %lld and responses of %lld tokens are %lld together, and the reward "
                          "model takes %lld (max_position_embeddings)",
                          (long long)bounds->prompt_most, (long long)bounds->response_most, all,
                          (long long)d->most_positions);
out:
  treadle_transformer_destroy(d);
  return status;
}

/* Good while `trainer` is. */
static treadle_status find_options(const treadle_rl_reward_model *m, const treadle_rl_task *task,
                                   const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                   treadle_trainer_options *trainer, treadle_tenant_options *to) {
  const treadle_rl_role role = {m->model, m->layout, &task->settings->reward.scored};
  treadle_status status;
  TRY(say_reward(task, check_lengths(m->model, bounds)));
  TRY(treadle_rl_trainer_options(&role, task, bounds, text, (int)m->layout->ranks, trainer));
  trainer->forward_only = true;
  trainer->optimizer = trainer->distributed_optimizer = trainer->recompute = false;
  trainer->companions = NULL;
  *to = treadle_rl_role_options(&role, task, trainer);
  to->offload_param = to->offload_grad = to->offload_optimizer = task->settings->reward.offload_param;
out:
  return status;
}

/* ---- Its role --------------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_reward_model_create(treadle_rl_reward_model *m, const treadle_rl_task *task,
                                              const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                              const treadle_rl_crew *crew) {
  treadle_trainer_options trainer;
  treadle_tenant_options options;
  treadle_status status;
  if (!m->layout) return TREADLE_OK;
  treadle_rl_doing(crew, "the reward model");
  TRY(treadle_rl_agree(crew, find_options(m, task, bounds, text, &trainer, &options)));
  TRY(treadle_reward_model_create(crew->group, m->layout, &options, &m->role));
  TRY(treadle_tenant_load(m->role));
  TRY(treadle_rl_agree(crew, treadle_tenant_rest(m->role)));
out:
  return status;
}

void treadle_rl_reward_model_close(treadle_rl_reward_model *m) {
  treadle_tenant_destroy(m->role);
  treadle_layout_destroy(m->layout);
  treadle_model_close(m->model);
}

/* ---- What it holds ---------------------------------------------------------------------------------------------- */

/* By rank, for the caller to free. */
static treadle_status find_memory(const treadle_rl_reward_model *m, const treadle_rl_task *task,
                                  const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                  treadle_tenant_memory **all_p) {
  treadle_trainer_options trainer;
  treadle_tenant_options options;
  treadle_status status;
  TRY(find_options(m, task, bounds, text, &trainer, &options));
  TRY(treadle_rl_role_foresee(m->layout, &options, all_p));
out:
  return status;
}

treadle_status treadle_rl_reward_model_foresee(const treadle_rl_reward_model *m,
                                               const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                               const treadle_run_text *text,
                                               treadle_actor_memory *by_rank) {
  treadle_tenant_memory *all = NULL;
  treadle_status status = TREADLE_OK;
  if (m->layout) status = find_memory(m, task, bounds, text, &all);
  if (m->layout && !status) treadle_rl_role_add(by_rank, all, m->layout->ranks);
  treadle_free(all);
  return status;
}

treadle_status treadle_rl_reward_model_resting(const treadle_rl_reward_model *m,
                                               const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                               const treadle_run_text *text, size_t *bytes_p) {
  treadle_tenant_memory *all = NULL;
  treadle_status status = TREADLE_OK;
  if (m->layout) status = find_memory(m, task, bounds, text, &all);
  *bytes_p = m->layout && !status ? treadle_rl_role_resting(all, m->layout->ranks) : 0;
  treadle_free(all);
  return status;
}

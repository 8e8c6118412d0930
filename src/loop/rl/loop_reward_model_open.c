/* The reward model of a run, opened: its model with a score head, its layout, its role on each rank; and what it holds there. */
#include "rl/reward_model.h"

#include "layout/layout.h"
#include "model/model.h"
#include "model/notes.h"

static treadle_rl_tenant tenant_of(const treadle_rl_reward_model *m, const treadle_rl_task *task) {
  const treadle_config_reward *config = &task->settings->reward;
  return (treadle_rl_tenant){.role = {m->model, m->layout, &config->scored},
                             .name = "reward model",
                             .key = TREADLE_KEY_OF(reward.scored.model),
                             .offload_param = config->offload_param,
                             .offload_grad = config->offload_param,
                             .offload_optimizer = config->offload_param};
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
  treadle_status status = TREADLE_OK;
  if (!treadle_train_has_reward_model(task->settings)) return TREADLE_OK;
  TRY(treadle_rl_say_key(task, TREADLE_KEY_OF(reward.scored.model), open_model(m, task, crew, models)));
  const treadle_rl_tenant tenant = tenant_of(m, task);
  TRY(treadle_rl_tenant_layout(&tenant, task, TREADLE_PART_REWARD, crew->reward_ranks, &m->layout));
out:
  return status;
}

/* ---- Its role --------------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_reward_model_create(treadle_rl_reward_model *m, const treadle_rl_task *task,
                                              const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                              const treadle_rl_crew *crew) {
  treadle_trainer_options trainer;
  treadle_tenant_options options;
  const treadle_rl_tenant tenant = tenant_of(m, task);
  treadle_status status;
  if (!m->layout) return TREADLE_OK;
  treadle_rl_doing(crew, "the reward model");
  TRY(treadle_rl_agree(crew, treadle_rl_tenant_options(&tenant, task, bounds, text, &trainer, &options)));
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

treadle_status treadle_rl_reward_model_foresee(const treadle_rl_reward_model *m,
                                               const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                               const treadle_run_text *text,
                                               treadle_actor_memory *by_rank) {
  const treadle_rl_tenant tenant = tenant_of(m, task);
  return treadle_rl_tenant_foresee(&tenant, task, bounds, text, by_rank);
}

treadle_status treadle_rl_reward_model_resting(const treadle_rl_reward_model *m,
                                               const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                               const treadle_run_text *text, size_t *bytes_p) {
  const treadle_rl_tenant tenant = tenant_of(m, task);
  return treadle_rl_tenant_resting(&tenant, task, bounds, text, bytes_p);
}

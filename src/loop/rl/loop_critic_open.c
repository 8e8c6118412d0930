/* The critic of a run, opened: its model with a score head, its layout, its role on each rank; and what it holds there. */
#include "rl/critic.h"

#include "layout/layout.h"
#include "model/model.h"
#include "model/notes.h"
#include "run/dropout.h"

#include <stdio.h>
#include <string.h>

static treadle_rl_tenant tenant_of(const treadle_rl_critic *c, const treadle_rl_task *task) {
  const treadle_config_critic *config = &task->settings->critic;
  return (treadle_rl_tenant){.role = {c->model, c->layout, &config->trained},
                             .name = "critic",
                             .key = TREADLE_KEY_OF(critic.trained.model),
                             .trains = true,
                             .offload_param = config->offload_param,
                             .offload_grad = config->offload_grad,
                             .offload_optimizer = config->offload_optimizer};
}

static void warn(void *context, const char *line) { treadle_rl_warn(context, line); }

static treadle_status open_model(treadle_rl_critic *c, const treadle_rl_task *task, treadle_rl_crew *crew,
                                 const treadle_rl_models *models) {
  const treadle_train_settings *s = task->settings;
  const bool own = s->critic.trained.model && s->critic.trained.model != s->actor.model;
  treadle_model_options options = {.struct_size = sizeof options,
                                   .families = task->options->families,
                                   .weights =
                                       own ? TREADLE_WEIGHTS_NONE : (treadle_weights)s->actor.weights,
                                   .head = TREADLE_HEAD_SCORE,
                                   .score_zeros = true};
  treadle_status status;
  snprintf(c->path, sizeof c->path, "%s", own ? s->critic.trained.model : models->path);
  TRY(treadle_model_open(c->path, &options, &c->model));
  treadle_model_tell(c->model, warn, crew);
  TRY(treadle_train_tell_dropout(c->model, warn, crew));
  if (!task->plans) TRY(treadle_model_need_weights(c->model));
  TRY(treadle_rl_check_vocabulary(c->model, models->model));
  if (!own)
    treadle_rl_note(crew, "the critic begins with the model of the policy, %s (%s)", c->path,
                    TREADLE_RL_PLACE(task, critic.trained.model));
out:
  return status;
}

treadle_status treadle_rl_critic_open(treadle_rl_critic *c, const treadle_rl_task *task,
                                      treadle_rl_crew *crew, const treadle_rl_models *models) {
  const treadle_train_settings *s = task->settings;
  treadle_status status = TREADLE_OK;
  if (!treadle_train_has_critic(s)) return TREADLE_OK;
  TRY(treadle_rl_say_key(task, TREADLE_KEY_OF(critic.trained.model), open_model(c, task, crew, models)));
  const treadle_rl_tenant tenant = tenant_of(c, task);
  TRY(treadle_rl_tenant_layout(&tenant, task, TREADLE_PART_CRITIC, crew->critic_ranks, &c->layout));
  c->schedule = (treadle_lr_schedule){.style = (treadle_lr_style)s->critic.trained.lr_decay_style,
                                      .lr = s->critic.trained.lr,
                                      .min_lr = s->critic.trained.min_lr,
                                      .warmup_fraction = s->critic.trained.lr_warmup_fraction,
                                      .steps = treadle_rl_optimizer_steps(s)};
out:
  return status;
}

/* ---- Its role --------------------------------------------------------------------------------------------------- */

static treadle_status fill(const treadle_rl_critic *c, const treadle_rl_task *task, const char *from) {
  char folder[PATH_MAX + 8];
  if (from[0]) {
    snprintf(folder, sizeof folder, "%s/critic", from);
    return treadle_critic_resume(c->role, folder);
  }
  return treadle_model_weights(c->model) == TREADLE_WEIGHTS_RANDOM
             ? treadle_critic_randomise(c->role, (uint64_t)task->settings->training.seed)
             : treadle_critic_load(c->role);
}

treadle_status treadle_rl_critic_create(treadle_rl_critic *c, const treadle_rl_task *task,
                                        const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                        const treadle_rl_crew *crew, const char *from) {
  treadle_trainer_options trainer;
  treadle_critic_options options;
  const treadle_rl_tenant tenant = tenant_of(c, task);
  char line[PATH_MAX + 100];
  treadle_status status;
  if (!c->layout) return TREADLE_OK;
  treadle_rl_doing(crew, "the critic");
  TRY(treadle_rl_agree(crew, treadle_rl_tenant_options(&tenant, task, bounds, text, &trainer, &options)));
  TRY(treadle_critic_create(crew->group, c->layout, &options, &c->role));
  if (!from[0] && treadle_model_weights(c->model) == TREADLE_WEIGHTS_RANDOM) {
    snprintf(line, sizeof line, "critic: " TREADLE_MADE_UP, c->path);
    treadle_rl_warn(crew, line);
  }
  TRY(fill(c, task, from));
  TRY(treadle_rl_agree(crew, treadle_critic_rest(c->role)));
out:
  return status;
}

void treadle_rl_critic_close(treadle_rl_critic *c) {
  treadle_critic_destroy(c->role);
  treadle_layout_destroy(c->layout);
  treadle_model_close(c->model);
}

/* ---- What it holds ---------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_critic_foresee(const treadle_rl_critic *c, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         treadle_actor_memory *by_rank) {
  const treadle_rl_tenant tenant = tenant_of(c, task);
  return treadle_rl_tenant_foresee(&tenant, task, bounds, text, by_rank);
}

treadle_status treadle_rl_critic_resting(const treadle_rl_critic *c, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         size_t *bytes_p) {
  const treadle_rl_tenant tenant = tenant_of(c, task);
  return treadle_rl_tenant_resting(&tenant, task, bounds, text, bytes_p);
}

/* The critic of a run, opened: its model with a score head, its layout, its role on each rank; and what it holds there. */
#include "rl/critic.h"

#include "base/alloc.h"
#include "base/larger.h"
#include "layout/layout.h"
#include "model/model.h"
#include "model/notes.h"
#include "pass/transformer.h"
#include "run/dropout.h"

#include <stdio.h>
#include <string.h>

static treadle_status say_critic(const treadle_rl_task *task, treadle_status status) {
  return treadle_refused_at(TREADLE_RL_PLACE(task, critic.trained.model), status);
}

static void warn(void *context, const char *line) { treadle_rl_warn(context, line); }

/* It reads the tokens of the policy. */
static treadle_status check_vocabulary(const treadle_model *critic, const treadle_model *policy) {
  treadle_transformer *a = NULL, *b = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(critic, &a));
  TRY(treadle_transformer_create(policy, &b));
  if (a->vocabulary != b->vocabulary)
    status = treadle_fail(TREADLE_REFUSED, "its vocabulary has %lld ids, and that of the policy %lld",
                          (long long)a->vocabulary, (long long)b->vocabulary);
out:
  treadle_transformer_destroy(a);
  treadle_transformer_destroy(b);
  return status;
}

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
  TRY(check_vocabulary(c->model, models->model));
  if (!own)
    treadle_rl_note(crew, "the critic begins with the model of the policy, %s (%s)", c->path,
                    TREADLE_RL_PLACE(task, critic.trained.model));
out:
  return status;
}

treadle_status treadle_rl_critic_open(treadle_rl_critic *c, const treadle_rl_task *task,
                                      treadle_rl_crew *crew, const treadle_rl_models *models) {
  const treadle_train_settings *s = task->settings;
  char text[1024];
  treadle_status status = TREADLE_OK;
  if (!treadle_train_has_critic(s)) return TREADLE_OK;
  TRY(say_critic(task, open_model(c, task, crew, models)));
  TRY(treadle_train_config_layout(task->config, TREADLE_PART_CRITIC, c->model->layers, crew->critic_ranks,
                                  text, sizeof text));
  TRY(say_critic(task, treadle_layout_create(c->model, text, crew->critic_ranks, NULL, &c->layout)));
  c->schedule = (treadle_lr_schedule){.style = (treadle_lr_style)s->critic.trained.lr_decay_style,
                                      .lr = s->critic.trained.lr,
                                      .min_lr = s->critic.trained.min_lr,
                                      .warmup_fraction = s->critic.trained.lr_warmup_fraction,
                                      .steps = treadle_rl_optimizer_steps(s)};
out:
  return status;
}

/* Good while `trainer` is. */
static treadle_status find_options(const treadle_rl_critic *c, const treadle_rl_task *task,
                                   const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                   treadle_trainer_options *trainer, treadle_critic_options *to) {
  const treadle_config_critic *config = &task->settings->critic;
  const treadle_rl_role role = {c->model, c->layout, &config->trained};
  treadle_status status;
  TRY(treadle_rl_trainer_options(&role, task, bounds, text, (int)c->layout->ranks, trainer));
  *to = (treadle_critic_options){.trainer = trainer,
                                 .offload_param = config->offload_param,
                                 .offload_grad = config->offload_grad,
                                 .offload_optimizer = config->offload_optimizer,
                                 .page_bytes = treadle_rl_page_bytes(c->model),
                                 .timeout_seconds = 600,
                                 .open = task->options->open_train,
                                 .context = task->options->train_context};
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
  char line[PATH_MAX + 100];
  treadle_status status;
  if (!c->layout) return TREADLE_OK;
  treadle_rl_doing(crew, "the critic");
  TRY(treadle_rl_agree(crew, find_options(c, task, bounds, text, &trainer, &options)));
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

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

/* Its calls come while the policy is in mode FORWARD. */
static void add(treadle_actor_memory *m, const treadle_critic_memory *critic) {
  const size_t rest = sum_of(critic->rest);
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    m->with_critic[c] = m->by_mode[TREADLE_FORWARD][c] + critic->train[c];
    for (int mode = TREADLE_TRAIN; mode <= TREADLE_FORWARD; mode++)
      if (mode != TREADLE_LOST) m->by_mode[mode][c] += critic->rest[c];
    if (m->with_reference[TREADLE_REFERENCE]) m->with_reference[c] += critic->rest[c];
  }
  m->peak_bytes = treadle_larger_size(m->peak_bytes + rest, sum_of(m->with_critic));
  m->least_bytes = treadle_larger_size(m->least_bytes + rest, sum_of(m->with_critic));
}

/* By rank; the caller frees. */
static treadle_status foresee(const treadle_rl_critic *c, const treadle_rl_task *task,
                              const treadle_rl_bounds *bounds, const treadle_run_text *text,
                              treadle_critic_memory **all_p) {
  treadle_trainer_options trainer;
  treadle_critic_options options;
  treadle_status status;
  *all_p = treadle_alloc_array((size_t)c->layout->ranks, sizeof(**all_p));
  if (!*all_p)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks",
                        (long long)c->layout->ranks);
  TRY(find_options(c, task, bounds, text, &trainer, &options));
  TRY(treadle_critic_foresee(c->layout, &options, *all_p));
out:
  return status;
}

treadle_status treadle_rl_critic_foresee(const treadle_rl_critic *c, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         treadle_actor_memory *by_rank) {
  treadle_critic_memory *all = NULL;
  treadle_status status;
  if (!c->layout) return TREADLE_OK;
  TRY(foresee(c, task, bounds, text, &all));
  for (int64_t rank = 0; rank < c->layout->ranks; rank++) add(&by_rank[rank], &all[rank]);
out:
  treadle_free(all);
  return status;
}

treadle_status treadle_rl_critic_resting(const treadle_rl_critic *c, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         size_t *bytes_p) {
  treadle_critic_memory *all = NULL;
  treadle_status status;
  *bytes_p = 0;
  if (!c->layout) return TREADLE_OK;
  TRY(foresee(c, task, bounds, text, &all));
  for (int64_t rank = 0; rank < c->layout->ranks; rank++)
    *bytes_p = treadle_larger_size(*bytes_p, sum_of(all[rank].rest));
out:
  treadle_free(all);
  return status;
}

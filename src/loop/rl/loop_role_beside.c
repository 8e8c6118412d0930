/* What tenants have alike, a critic, a reward model and a reference of its own: whose tokens they read, their layouts, what they are created with, and
 * what they hold beside the policy. */
#include "rl/role.h"

#include "base/alloc.h"
#include "base/larger.h"
#include "layout/layout.h"
#include "pass/transformer.h"
#include "rl/models.h"

#include <string.h>

treadle_status treadle_rl_check_vocabulary(const treadle_model *model, const treadle_model *policy) {
  treadle_transformer *a = NULL, *b = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(model, &a));
  TRY(treadle_transformer_create(policy, &b));
  if (a->vocabulary != b->vocabulary)
    status = treadle_fail(TREADLE_REFUSED, "its vocabulary has %lld ids, and that of the policy %lld",
                          (long long)a->vocabulary, (long long)b->vocabulary);
out:
  treadle_transformer_destroy(a);
  treadle_transformer_destroy(b);
  return status;
}

treadle_status treadle_rl_say_key(const treadle_rl_task *task, int key, treadle_status status) {
  return key < 0 ? status : treadle_refused_at(treadle_train_config_place(task->config, key), status);
}

treadle_status treadle_rl_tenant_layout(const treadle_rl_tenant *t, const treadle_rl_task *task,
                                        treadle_train_part part, int ranks, treadle_layout **layout_p) {
  const treadle_model *model = t->role.model;
  char text[1024];
  treadle_status status;
  TRY(treadle_train_config_layout(task->config, part, model->layers, ranks, text, sizeof text));
  TRY(treadle_rl_say_key(task, t->key, treadle_layout_create(model, text, ranks, NULL, layout_p)));
out:
  return status;
}

/* Of prompts and answers, as long as they can be. */
static treadle_status check_lengths(const treadle_rl_tenant *t, const treadle_rl_bounds *bounds) {
  const long long all = bounds->prompt_most + bounds->response_most;
  treadle_transformer *d = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(t->role.model, &d));
  if (d->most_positions && all > d->most_positions)
    status =
        treadle_fail(TREADLE_REFUSED,
                     "prompts of %lld and responses of %lld tokens are %lld together, and the %s takes "
                     "%lld (max_position_embeddings)",
                     (long long)bounds->prompt_most, (long long)bounds->response_most, all, t->name,
                     (long long)d->most_positions);
out:
  treadle_transformer_destroy(d);
  return status;
}

treadle_status treadle_rl_tenant_options(const treadle_rl_tenant *t, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         treadle_trainer_options *trainer, treadle_tenant_options *to) {
  treadle_status status = TREADLE_OK;
  if (!t->trains) TRY(treadle_rl_say_key(task, t->key, check_lengths(t, bounds)));
  TRY(treadle_rl_trainer_options(&t->role, task, bounds, text, trainer));
  trainer->aux_loss_coeff = trainer->z_loss_coeff = trainer->expert_bias_rate = 0; /* the policy's alone */
  trainer->freeze_routers = false;
  if (!t->trains) {
    trainer->forward_only = true;
    trainer->optimizer = trainer->distributed_optimizer = trainer->recompute = false;
    trainer->companions = NULL;
  }
  *to = (treadle_tenant_options){.trainer = trainer,
                                 .offload_param = t->offload_param,
                                 .offload_grad = t->offload_grad,
                                 .offload_optimizer = t->offload_optimizer,
                                 .page_bytes = treadle_rl_page_bytes(t->role.model),
                                 .timeout_seconds = 600,
                                 .open = task->options->open_train,
                                 .context = task->options->train_context};
out:
  return status;
}

/* ---- What it holds ---------------------------------------------------------------------------------------------- */

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

/* By rank, for the caller to free. */
static treadle_status find_memory(const treadle_rl_tenant *t, const treadle_rl_task *task,
                                  const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                  treadle_tenant_memory **all_p) {
  treadle_trainer_options trainer;
  treadle_tenant_options options;
  treadle_tenant_memory *all = *all_p = treadle_alloc_array((size_t)t->role.layout->ranks, sizeof *all);
  treadle_status status;
  if (!all)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks",
                        (long long)t->role.layout->ranks);
  TRY(treadle_rl_tenant_options(t, task, bounds, text, &trainer, &options));
  TRY(treadle_tenant_foresee(t->role.layout, &options, all));
out:
  return status;
}

/* Its calls come while the policy is in mode FORWARD, and another role at rest. */
static void add(treadle_actor_memory *m, const treadle_tenant_memory *role) {
  const size_t rest = sum_of(role->rest);
  const bool has_other = sum_of(m->with_critic) > 0;
  size_t called[TREADLE_CLASSES];
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    called[c] = m->by_mode[TREADLE_FORWARD][c] + role->train[c];
    for (int mode = TREADLE_TRAIN; mode <= TREADLE_FORWARD; mode++)
      if (mode != TREADLE_LOST) m->by_mode[mode][c] += role->rest[c];
    if (m->with_reference[TREADLE_REFERENCE]) m->with_reference[c] += role->rest[c];
    if (has_other) m->with_critic[c] += role->rest[c];
  }
  if (sum_of(called) > sum_of(m->with_critic)) memcpy(m->with_critic, called, sizeof called);
  m->peak_bytes = treadle_larger_size(m->peak_bytes + rest, sum_of(called));
  m->least_bytes = treadle_larger_size(m->least_bytes + rest, sum_of(called));
}

treadle_status treadle_rl_tenant_foresee(const treadle_rl_tenant *t, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         treadle_actor_memory *by_rank) {
  treadle_tenant_memory *all = NULL;
  treadle_status status;
  if (!t->role.layout) return TREADLE_OK;
  TRY(find_memory(t, task, bounds, text, &all));
  for (int64_t rank = 0; rank < t->role.layout->ranks; rank++) add(&by_rank[rank], &all[rank]);
out:
  treadle_free(all);
  return status;
}

treadle_status treadle_rl_tenant_resting(const treadle_rl_tenant *t, const treadle_rl_task *task,
                                         const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                         size_t *bytes_p) {
  treadle_tenant_memory *all = NULL;
  treadle_status status;
  *bytes_p = 0;
  if (!t->role.layout) return TREADLE_OK;
  TRY(find_memory(t, task, bounds, text, &all));
  for (int64_t rank = 0; rank < t->role.layout->ranks; rank++)
    *bytes_p = treadle_larger_size(*bytes_p, sum_of(all[rank].rest));
out:
  treadle_free(all);
  return status;
}

/* The reference of a run that has a pool of its own, opened: its model, its layout, its role on each rank; and what it holds there. */
#include "rl/reference.h"

#include "layout/layout.h"
#include "model/model.h"

static int key_of(const treadle_rl_task *task) {
  return task->settings->rl.kl.ref_model ? TREADLE_KEY_OF(rl.kl.ref_model) : -1;
}

static treadle_rl_tenant tenant_of(const treadle_rl_reference *r, const treadle_rl_task *task) {
  const treadle_config_reference *config = &task->settings->reference;
  return (treadle_rl_tenant){.role = {r->model, r->layout, &config->frozen},
                             .name = "reference",
                             .key = key_of(task),
                             .offload_param = config->offload_param,
                             .offload_grad = config->offload_param,
                             .offload_optimizer = config->offload_param};
}

/* One without files is the policy as it began, with the policy's values: a model of another shape has no such values. */
static treadle_status find_model(const treadle_rl_models *models, const treadle_model **model_p) {
  const treadle_model *own = models->reference_model;
  const bool is_policy = !own || treadle_model_weights(own) == TREADLE_WEIGHTS_RANDOM;
  *model_p = is_policy ? models->model : own;
  if (own && is_policy && treadle_model_bytes(own) != treadle_model_bytes(models->model))
    return treadle_fail(TREADLE_REFUSED,
                        "the reference of %s has %lld bytes of weights, the policy of %s %lld: without "
                        "files it has the policy's, and they must be models of one shape",
                        own->path, (long long)treadle_model_bytes(own), models->model->path,
                        (long long)treadle_model_bytes(models->model));
  return is_policy ? TREADLE_OK : treadle_rl_check_vocabulary(own, models->model);
}

treadle_status treadle_rl_reference_open(treadle_rl_reference *r, const treadle_rl_task *task,
                                         const treadle_rl_crew *crew, const treadle_rl_models *models) {
  treadle_status status = TREADLE_OK;
  if (!task->config->has_reference_apart) return TREADLE_OK;
  TRY(treadle_rl_say_key(task, key_of(task), find_model(models, &r->model)));
  const treadle_rl_tenant tenant = tenant_of(r, task);
  treadle_layout_destroy(r->layout);
  r->layout = NULL;
  TRY(treadle_rl_tenant_layout(&tenant, task, TREADLE_PART_REFERENCE, crew->reference_ranks, &r->layout));
out:
  return status;
}

treadle_status treadle_rl_reference_check(const treadle_rl_reference *r, const treadle_rl_task *task) {
  return r->layout ? treadle_rl_say_key(task, key_of(task), treadle_model_need_weights(r->model))
                   : TREADLE_OK;
}

/* ---- Its role --------------------------------------------------------------------------------------------------- */

static treadle_status fill(const treadle_rl_reference *r, const treadle_rl_task *task) {
  const treadle_status status =
      treadle_model_weights(r->model) == TREADLE_WEIGHTS_RANDOM
          ? treadle_tenant_randomise(r->role, (uint64_t)task->settings->training.seed)
          : treadle_tenant_load(r->role);
  return status ? treadle_fail_in(status, "the reference: ") : TREADLE_OK;
}

treadle_status treadle_rl_reference_create(treadle_rl_reference *r, const treadle_rl_task *task,
                                           const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                           const treadle_rl_crew *crew) {
  const treadle_rl_tenant tenant = tenant_of(r, task);
  treadle_trainer_options trainer;
  treadle_tenant_options options;
  treadle_status status;
  if (!r->layout) return TREADLE_OK;
  treadle_rl_doing(crew, "the reference");
  TRY(treadle_rl_agree(crew, treadle_rl_tenant_options(&tenant, task, bounds, text, &trainer, &options)));
  TRY(treadle_reference_create(crew->group, r->layout, &options, &r->role));
  TRY(fill(r, task));
  TRY(treadle_rl_agree(crew, treadle_tenant_rest(r->role)));
out:
  return status;
}

void treadle_rl_reference_close(treadle_rl_reference *r) {
  treadle_tenant_destroy(r->role);
  treadle_layout_destroy(r->layout);
}

/* ---- What it holds ---------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_reference_foresee(const treadle_rl_reference *r, const treadle_rl_task *task,
                                            const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                            treadle_actor_memory *by_rank) {
  const treadle_rl_tenant tenant = tenant_of(r, task);
  return treadle_rl_tenant_foresee(&tenant, task, bounds, text, by_rank);
}

#include "control/critic.h"

#include "base/status.h"

static treadle_status check_engine(const treadle_train_engine *e) {
  const char *lacks = !e->values   ? "values"
                      : !e->update ? "update"
                      : !e->save   ? "save"
                      : !e->resume ? "resume"
                      : !e->close  ? "close"
                                   : NULL;
  if (lacks)
    return treadle_fail(TREADLE_REFUSED, "the train engine's table lacks %s, which a critic needs", lacks);
  return TREADLE_OK;
}

treadle_status treadle_critic_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_critic_options *options, treadle_critic **critic_p) {
  treadle_critic_options o = *options;
  o.name = "critic";
  o.type = TREADLE_TENANT_CRITIC;
  o.check = check_engine;
  return treadle_tenant_create(group, layout, &o, critic_p);
}

/* ---- Weights ---------------------------------------------------------------------------------------------- */

treadle_status treadle_critic_resume(treadle_critic *c, const char *folder) {
  treadle_status status;
  TRY(treadle_tenant_need(c, TREADLE_TRAIN));
  TRY(treadle_tenant_filled(c, c->train.resume(c->train.engine, folder)));
out:
  return status;
}

treadle_status treadle_critic_save(treadle_critic *c, const char *folder) {
  treadle_status status;
  TRY(treadle_tenant_need(c, TREADLE_TRAIN));
  TRY(treadle_tenant_agree(c, c->train.save(c->train.engine, folder)));
out:
  return status;
}

/* ---- Its calls -------------------------------------------------------------------------------------------- */

treadle_status treadle_critic_compute_values(treadle_critic *c, const treadle_batch *batch,
                                             const treadle_forward_options *forward, treadle_batch *out) {
  treadle_status status;
  TRY(treadle_tenant_need(c,
                          treadle_switch_mode(c->sw) == TREADLE_TRAIN ? TREADLE_TRAIN : TREADLE_FORWARD));
  TRY(treadle_tenant_agree(c, c->train.values(c->train.engine, batch, forward, out)));
out:
  return status;
}

treadle_status treadle_critic_update(treadle_critic *c, const treadle_batch *batch,
                                     const treadle_forward_options *forward,
                                     const treadle_loss_options *loss, const treadle_optimizer_step *step,
                                     treadle_batch *out, treadle_optimizer_figures *figures_p) {
  treadle_status status;
  TRY(treadle_tenant_need(c, TREADLE_TRAIN));
  TRY(treadle_tenant_agree(c,
                           c->train.update(c->train.engine, batch, forward, loss, step, out, figures_p)));
out:
  return status;
}

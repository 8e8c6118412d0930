#include "control/reward_model.h"

#include "base/status.h"

static treadle_status check_engine(const treadle_train_engine *e) {
  const char *lacks = !e->scores ? "scores" : !e->close ? "close" : NULL;
  if (lacks)
    return treadle_fail(TREADLE_REFUSED, "the train engine's table lacks %s, which a reward model needs",
                        lacks);
  return TREADLE_OK;
}

treadle_status treadle_reward_model_create(treadle_group *group, const treadle_layout *layout,
                                           const treadle_tenant_options *options,
                                           treadle_tenant **tenant_p) {
  treadle_tenant_options o = *options;
  o.name = "reward model";
  o.type = TREADLE_TENANT_REWARD_MODEL;
  o.check = check_engine;
  return treadle_tenant_create(group, layout, &o, tenant_p);
}

treadle_status treadle_reward_model_compute_scores(treadle_tenant *r, const treadle_batch *batch,
                                                   const treadle_forward_options *forward,
                                                   treadle_batch *out) {
  treadle_status status;
  TRY(treadle_tenant_need(r, TREADLE_FORWARD));
  TRY(treadle_tenant_agree(r, r->train.scores(r->train.engine, batch, forward, out)));
out:
  return status;
}

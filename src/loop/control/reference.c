#include "control/reference.h"

#include "base/status.h"

static treadle_status check_engine(const treadle_train_engine *e) {
  const char *lacks = !e->load        ? "load"
                      : !e->randomise ? "randomise"
                      : !e->logprobs  ? "logprobs"
                      : !e->close     ? "close"
                                      : NULL;
  if (lacks)
    return treadle_fail(TREADLE_REFUSED, "the train engine's table lacks %s, which a reference needs",
                        lacks);
  return TREADLE_OK;
}

treadle_status treadle_reference_create(treadle_group *group, const treadle_layout *layout,
                                        const treadle_tenant_options *options, treadle_tenant **tenant_p) {
  treadle_tenant_options o = *options;
  o.name = "reference";
  o.type = TREADLE_TENANT_REFERENCE;
  o.check = check_engine;
  return treadle_tenant_create(group, layout, &o, tenant_p);
}

treadle_status treadle_reference_compute_log_prob(treadle_tenant *r, const treadle_batch *batch,
                                                  const treadle_forward_options *forward,
                                                  treadle_batch *out) {
  treadle_status status;
  TRY(treadle_tenant_need(r, TREADLE_FORWARD));
  TRY(treadle_tenant_agree(r, r->train.logprobs(r->train.engine, batch, forward, NULL, out)));
out:
  return status;
}

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
                                           const treadle_resident_options *options,
                                           treadle_resident **resident_p) {
  treadle_resident_options o = *options;
  o.name = "reward model";
  o.type = TREADLE_RESIDENT_REWARD_MODEL;
  o.check = check_engine;
  return treadle_resident_create(group, layout, &o, resident_p);
}

treadle_status treadle_reward_model_compute_scores(treadle_resident *r, const treadle_batch *batch,
                                                   const treadle_forward_options *forward,
                                                   treadle_batch *out) {
  treadle_status status;
  TRY(treadle_resident_need(r, TREADLE_FORWARD));
  TRY(treadle_resident_agree(r, r->train.scores(r->train.engine, batch, forward, out)));
out:
  return status;
}

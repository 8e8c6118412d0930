/* The method of a reference with an engine of its own; where the actor has the reference, it is in loop_worker.c. */
#include "rl/loop.h"

#include "rl/taken.h"

static treadle_forward_options forward_of(const treadle_train_settings *s, const treadle_rl_bounds *bounds,
                                          bool entropies) {
  return treadle_rl_forward_of(&s->reference.frozen, s, bounds, entropies);
}

/* The device has nothing of it when it is back, unless its weights stay. */
treadle_status treadle_rl_compute_ref_log_prob(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_rl_rows_share t = {0};
  int64_t entropies = 0;
  treadle_status status = treadle_message_int(in, "entropies", &entropies);
  t.forward = forward_of(rl->task.settings, &rl->bounds, entropies != 0);
  if (!status) status = treadle_rl_take_rows(&rl->workers.group, in, &t);
  TRY(treadle_rl_agree(&rl->crew, status));
  if (rl->reference.role)
    status = treadle_reference_compute_log_prob(rl->reference.role, t.share.mine, &t.forward, t.out);
  if (!status && rl->reference.role) status = treadle_tenant_rest(rl->reference.role);
  TRY(treadle_rl_settle_beside(rl, status));
  treadle_rl_put_rows_share(out, &t);
out:
  treadle_rl_rows_share_release(&t);
  return status;
}

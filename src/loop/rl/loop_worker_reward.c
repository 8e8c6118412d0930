/* The method of the reward model, beside those of the policy (loop_worker.c) and of the critic. */
#include "rl/loop.h"

#include "rl/role.h"
#include "rl/taken.h"

static treadle_forward_options forward_of(const treadle_train_settings *s,
                                          const treadle_rl_bounds *bounds) {
  return treadle_rl_forward_of(&s->reward.scored, s, bounds, false);
}

/* The policy, if it is on these ranks, has generated, and makes room first; the device has nothing of the reward model when it is back. */
treadle_status treadle_rl_compute_rm_score(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_rl_rows_share t = {.forward = forward_of(rl->task.settings, &rl->bounds)};
  treadle_status status;
  TRY(treadle_rl_agree(&rl->crew, treadle_rl_take_rows(&rl->workers.group, in, &t)));
  if (rl->actor) TRY(treadle_actor_enter(rl->actor, TREADLE_FORWARD));
  if (rl->actor) TRY(treadle_actor_exit(rl->actor, TREADLE_FORWARD));
  if (rl->reward_model.role)
    status = treadle_reward_model_compute_scores(rl->reward_model.role, t.share.mine, &t.forward, t.out);
  if (!status && rl->reward_model.role) status = treadle_tenant_rest(rl->reward_model.role);
  TRY(treadle_rl_settle_beside(rl, status));
  treadle_rl_put_rows_share(out, &t);
out:
  treadle_rl_rows_share_release(&t);
  return status;
}

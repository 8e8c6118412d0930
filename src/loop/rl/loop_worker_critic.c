/* The methods of the critic, beside those of the policy (loop_worker.c). */
#include "rl/loop.h"

#include "rl/role.h"
#include "rl/taken.h"

static treadle_forward_options forward_of(const treadle_train_settings *s,
                                          const treadle_rl_bounds *bounds) {
  return treadle_rl_forward_of(&s->critic.trained, s, bounds, false);
}

treadle_status treadle_rl_compute_values(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_rl_rows_share t = {.forward = forward_of(rl->task.settings, &rl->bounds)};
  treadle_status status;
  TRY(treadle_rl_agree(&rl->crew, treadle_rl_take_rows(&rl->workers.group, in, &t)));
  if (rl->critic.role)
    status = treadle_critic_compute_values(rl->critic.role, t.share.mine, &t.forward, t.out);
  TRY(treadle_rl_settle_beside(rl, status));
  treadle_rl_put_rows_share(out, &t);
out:
  treadle_rl_rows_share_release(&t);
  return status;
}

treadle_status treadle_rl_update_critic_rows(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  const treadle_config_critic *config = &rl->task.settings->critic;
  treadle_rl_rows_share t = {.forward = forward_of(rl->task.settings, &rl->bounds)};
  const treadle_loss_options loss = {
      .struct_size = sizeof loss, .name = "value", .clip_value = config->cliprange_value};
  treadle_optimizer_step step = {.struct_size = sizeof step,
                                 .weight_decay = config->trained.weight_decay,
                                 .clip_grad = config->trained.clip_grad};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_status status = treadle_message_real(in, "lr", &step.lr);
  if (!status) status = treadle_rl_take_rows(&rl->workers.group, in, &t);
  TRY(treadle_rl_agree(&rl->crew, status));
  if (rl->critic.role)
    status = treadle_critic_update(rl->critic.role, t.share.mine, &t.forward, &loss, &step, NULL, &figures);
  TRY(treadle_rl_settle_beside(rl, status));
  treadle_message_put_bytes(out, &figures, sizeof figures);
out:
  treadle_rl_rows_share_release(&t);
  return status;
}

treadle_status treadle_rl_rest_critic(void *worker, treadle_message *in, treadle_message *out) {
  const treadle_rl *rl = worker;
  (void)in;
  (void)out;
  return rl->critic.role ? treadle_critic_rest(rl->critic.role) : TREADLE_OK;
}

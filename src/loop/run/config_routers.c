/* Routers of models with experts: what their keys say together, and to a model. */
#include "run/config.h"

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))

double treadle_train_config_aux_loss(const treadle_train_settings *s) {
  return s->training.moe_router_load_balancing_type == TREADLE_BALANCING_NONE
             ? 0
             : s->training.moe_aux_loss_coeff;
}

bool treadle_train_config_by_sequence(const treadle_train_settings *s) {
  return s->training.moe_router_load_balancing_type == TREADLE_BALANCING_SEQ_AUX_LOSS;
}

double treadle_train_config_bias_rate(const treadle_train_settings *s) {
  return s->training.moe_router_enable_expert_bias ? s->training.moe_router_bias_update_rate : 0;
}

/* What trains routers; NULL: no key does. */
static const char *place_of_training(const treadle_train_config *config) {
  const treadle_config_training *t = &config->settings.training;
  return treadle_train_config_aux_loss(&config->settings) > 0 ? PLACE(training.moe_aux_loss_coeff)
         : t->moe_z_loss_coeff > 0                            ? PLACE(training.moe_z_loss_coeff)
         : treadle_train_config_bias_rate(&config->settings) > 0
             ? PLACE(training.moe_router_enable_expert_bias)
             : NULL;
}

treadle_status treadle_train_config_settle_routers(treadle_train_config *config) {
  const treadle_config_training *t = &config->settings.training;
  const bool none = t->moe_router_load_balancing_type == TREADLE_BALANCING_NONE;
  const char *trains = place_of_training(config);
  if (none && t->moe_aux_loss_coeff > 0) /* a coefficient of a loss that is not there would go unseen */
    REFUSE("%s: %s is %g, and %s is none; say aux_loss", config->file, PLACE(training.moe_aux_loss_coeff),
           t->moe_aux_loss_coeff, PLACE(training.moe_router_load_balancing_type));
  if (config->settings.actor.lora_rank && trains)
    REFUSE("%s: %s is %lld, with %s: routers are of the base, which adapters leave as it is", config->file,
           PLACE(actor.lora_rank), (long long)config->settings.actor.lora_rank, trains);
  const char *context = treadle_train_config_by_sequence(&config->settings) && t->moe_aux_loss_coeff > 0
                            ? treadle_train_config_place_of_context(config)
                            : NULL;
  if (context)
    REFUSE("%s: %s is seq_aux_loss, with %s: a rank needs all tokens of a row; say aux_loss", config->file,
           PLACE(training.moe_router_load_balancing_type), context);
  if (config->settings.actor.router_replay == TREADLE_REPLAY_R2 && config->settings.actor.exact)
    REFUSE("%s: %s is R2, and %s is true: updates of exact mode choose experts by themselves; say exact: "
           "false",
           config->file, PLACE(actor.router_replay), PLACE(actor.exact));
  if (!none && t->moe_aux_loss_coeff == 0)
    return treadle_train_config_warn_of(config, PLACE(training.moe_router_load_balancing_type),
                                        "has no effect while moe_aux_loss_coeff is 0");
  return TREADLE_OK;
}

treadle_status treadle_train_config_check_routers(const treadle_train_config *config,
                                                  const treadle_config_routers *of) {
  const treadle_config_training *t = &config->settings.training;
  const char *of_routers =
      t->freeze_moe_router ? PLACE(training.freeze_moe_router) : place_of_training(config);
  if (!of->experts && of_routers)
    REFUSE("%s: the model of %s has no experts, and this key is of their routers", of_routers, of->model);
  if (treadle_train_config_bias_rate(&config->settings) > 0 && !of->have_biases)
    REFUSE("%s: the routers of %s have no biases", PLACE(training.moe_router_enable_expert_bias),
           of->model);
  return TREADLE_OK;
}

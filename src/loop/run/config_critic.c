/* A critic: which runs have one, and what it has from the actor. Without one, its keys are known names without effect. What verl's critic says
 * of a thing that the actor has alone must be the actor's value. */
#include "run/config_given.h"
#include "run/config_role.h"
#include "run/others.h"

#include "base/utf8.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

/* ---- What a file says ------------------------------------------------------------------------------------- */

treadle_status treadle_critic_look(treadle_config_reader *reader) {
  static const char *const names[] = {"rl_config.adv_estimator", "rl_config.adv-estimator",
                                      "algorithm.adv_estimator"};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char name[64];
    const char *text;
    snprintf(name, sizeof name, "${oc.select:%s,null}", names[i]);
    TRY(treadle_train_expand(&reader->names, names[i], NULL, name, &text));
    reader->has_critic = reader->has_critic || strcmp(text, "gae") == 0;
  }
out:
  return status;
}

/* Of a path of a critic's, MindSpeed-RL's or verl's, the actor's. */
static bool find_twin(const char *path, char twin[TREADLE_TRAIN_PATH]) {
  static const struct {
    const char *critic, *actor;
  } places[] = {{"critic_config.", "actor_config."},
                {"critic.model.fsdp_config.", "actor_rollout_ref.actor.fsdp_config."},
                {"critic.model.", "actor_rollout_ref.model."},
                {"critic.", "actor_rollout_ref.actor."}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *rest = path + strlen(places[i].critic);
    if (!treadle_text_starts(path, places[i].critic) || strlen(path) + 24 >= TREADLE_TRAIN_PATH) continue;
    snprintf(twin, TREADLE_TRAIN_PATH, "%s%s", places[i].actor, rest);
    return true;
  }
  return false;
}

/* A key of a critic's that treadle has not. */
static treadle_status place_other(treadle_config_reader *reader, const treadle_given_value *given,
                                  bool *taken_p) {
  const treadle_train_limit *limit;
  char twin[TREADLE_TRAIN_PATH];
  int key;
  bool on = true;
  if (strcmp(given->path, "critic.enable") == 0) {
    *taken_p = true;
    if (given->text && treadle_yaml_truth(given->text, &on) && !on)
      REFUSE("%s is false, and adv_estimator is gae, which needs a critic",
             treadle_given_head(reader, given));
    return TREADLE_OK;
  }
  if (!given->text || !find_twin(given->path, twin)) return TREADLE_OK;
  *taken_p = true;
  if ((limit = treadle_train_limit_find(given->path, TREADLE_RUN_RL)) ||
      (limit = treadle_train_limit_find(twin, TREADLE_RUN_RL)))
    return treadle_given_check_limit(reader, given, limit);
  if ((key = treadle_train_key_find(twin, TREADLE_RUN_RL)) >= 0)
    return treadle_config_role_check_twin(reader, given, twin, key, "a critic");
  if (treadle_text_starts(given->path, "critic_config.") &&
      treadle_train_known_key(twin, TREADLE_RUN_RL, &limit) == TREADLE_KNOWN_NOT)
    return treadle_given_refuse(reader, given);
  treadle_given_ignore(reader, given);
  return TREADLE_OK;
}

treadle_status treadle_critic_place(treadle_config_reader *reader, const treadle_given_value *given,
                                    int key, bool *taken_p) {
  static const treadle_train_limit no_warmup = {"trainer.critic_warmup", {"0"}, NULL};
  const bool is_critics = key >= 0 && treadle_train_keys[key].critic;
  *taken_p = false;
  if (reader->has_critic) return key < 0 ? place_other(reader, given, taken_p) : TREADLE_OK;
  if (!is_critics && strcmp(given->path, "critic_config") != 0) return TREADLE_OK;
  *taken_p = true;
  if (strcmp(given->path, no_warmup.path) == 0) return treadle_given_check_limit(reader, given, &no_warmup);
  treadle_given_ignore(reader, given);
  return TREADLE_OK;
}

/* ---- What it has from the actor ------------------------------------------------------------------------------ */

static void settle_model(const treadle_config_role *role) {
  treadle_train_config *config = role->config;
  treadle_train_settings *s = &config->settings;
  s->critic.trained.weights = s->actor.weights;
  s->critic.trained.exact = s->actor.exact;
  s->critic.trained.adam_eps = s->actor.adam_eps;
  if (!GIVEN(critic.trained.model)) treadle_config_role_inherit(role, KEY(critic.trained.model));
}

static treadle_status settle_optimizer(const treadle_config_role *role) {
  treadle_train_config *config = role->config;
  const int keys[] = {KEY(critic.trained.lr_decay_style), KEY(critic.trained.lr_warmup_fraction),
                      KEY(critic.trained.weight_decay),   KEY(critic.trained.adam_beta1),
                      KEY(critic.trained.adam_beta2),     KEY(critic.trained.clip_grad)};
  const treadle_config_actor *critic = &config->settings.critic.trained;
  treadle_config_role_inherit_all(role, keys, sizeof keys / sizeof *keys);
  if (critic->min_lr > critic->lr)
    REFUSE("%s: %s is %g, more than %s, which is %g", config->file, PLACE(critic.trained.min_lr),
           critic->min_lr, PLACE(critic.trained.lr), critic->lr);
  return TREADLE_OK;
}

/* The parameters go last: what is derived from them has no use without them. */
static treadle_status check_offload(const treadle_train_config *config) {
  const treadle_config_critic *critic = &config->settings.critic;
  const char *stays = !critic->offload_grad        ? PLACE(critic.offload_grad)
                      : !critic->offload_optimizer ? PLACE(critic.offload_optimizer)
                                                   : NULL;
  if (critic->offload_param && stays)
    REFUSE("%s: %s is false, and %s true: gradients and optimizer state stay on the device with the "
           "parameters alone",
           config->file, stays, PLACE(critic.offload_param));
  return TREADLE_OK;
}

treadle_status treadle_train_config_settle_critic(treadle_train_config *config) {
  treadle_status status;
  const treadle_config_role role = {config, offsetof(treadle_train_settings, critic.trained), true};
  if (!treadle_train_has_critic(&config->settings)) return TREADLE_OK;
  settle_model(&role);
  TRY(treadle_config_role_settle_micro_batch(&role));
  TRY(settle_optimizer(&role));
  TRY(treadle_config_role_settle_layout(&role));
  TRY(check_offload(config));
out:
  return status;
}

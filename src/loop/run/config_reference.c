/* A reference: what it has from the actor where it has a pool of its own. In the policy's pool it shares the actor's engine, and its keys but for the
 * model are without effect, as they all are where no KL is used. */
#include "run/config_given.h"
#include "run/config_role.h"

#include "base/text.h"

#include <string.h>

/* ---- What a file says ------------------------------------------------------------------------------------- */

treadle_status treadle_reference_place(treadle_config_reader *reader, const treadle_given_value *given,
                                       int key, bool *taken_p) {
  static const char *const shared[] = {"bf16", "tokenizer_name_or_path", "exact", "weights",
                                       "load", "offload_policy",         NULL};
  *taken_p = false;
  if (key >= 0 || !treadle_text_starts(given->path, "ref_config.")) return TREADLE_OK;
  return treadle_config_role_place_forward(reader, given, "a reference", shared, taken_p);
}

/* ---- What it has from the actor ------------------------------------------------------------------------------ */

static treadle_status warn_of_keys(treadle_train_config *config) {
  const bool used = config->settings.rl.kl.in_loss || config->settings.rl.kl.in_reward;
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++)
    if (treadle_train_keys[i].reference && treadle_train_config_is_given(config, i))
      TRY(treadle_train_config_warn_of(
          config, treadle_train_config_place(config, i),
          used ? "has no effect: the reference is in the policy's pool, and has its layout"
               : "has no effect without use_kl_loss or use_kl_in_reward"));
out:
  return status;
}

treadle_status treadle_train_config_settle_reference(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  treadle_config_actor *frozen = &s->reference.frozen;
  const treadle_config_role role = {config, offsetof(treadle_train_settings, reference.frozen), false};
  treadle_status status;
  if (!config->has_reference_apart) return warn_of_keys(config);
  frozen->exact = s->actor.exact;
  TRY(treadle_config_role_settle_micro_batch(&role));
  TRY(treadle_config_role_settle_layout(&role));
  frozen->offload_policy = s->actor.offload_policy && frozen->strategy == TREADLE_STRATEGY_FSDP2;
out:
  return status;
}

/* A reward model: which runs have one, and what it has from the actor. Without one, its keys are known names without effect. */
#include "run/config_given.h"
#include "run/config_role.h"
#include "run/others.h"

#include "base/utf8.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))

/* ---- What a file says ------------------------------------------------------------------------------------- */

/* Of verl and RLinf: is there a reward model? */
static const char *const switches[] = {"reward_model.enable", "reward.reward_model.enable",
                                       "reward.use_reward_model"};
enum { SWITCHES = sizeof switches / sizeof *switches };

static treadle_status find_text(treadle_config_reader *reader, const char *path, const char **text_p) {
  char name[64];
  snprintf(name, sizeof name, "${oc.select:%s,null}", path);
  return treadle_train_expand(&reader->names, path, NULL, name, text_p);
}

treadle_status treadle_reward_look(treadle_config_reader *reader) {
  const char *text;
  bool on;
  treadle_status status;
  TRY(find_text(reader, "reward_config.model", &text));
  reader->config->has_reward_model = !treadle_train_is_null(text);
  for (int i = 0; i < SWITCHES; i++) {
    TRY(find_text(reader, switches[i], &text));
    on = false;
    reader->config->has_reward_model =
        reader->config->has_reward_model || (treadle_yaml_truth(text, &on) && on);
  }
out:
  return status;
}

/* Some switch says that there is one; another may not deny it. */
static treadle_status place_switch(treadle_config_reader *reader, const treadle_given_value *given,
                                   bool *taken_p) {
  bool on = true;
  *taken_p = true;
  if (given->text && treadle_yaml_truth(given->text, &on) && !on)
    REFUSE("%s is false, and reward_config.model, or another key, says that there is a reward model",
           treadle_given_head(reader, given));
  return TREADLE_OK;
}

treadle_status treadle_reward_place(treadle_config_reader *reader, const treadle_given_value *given,
                                    int key, bool *taken_p) {
  static const char *const shared[] = {"bf16", "tokenizer_name_or_path", "exact", NULL};
  static const treadle_train_limit same_ids = {
      "reward_model.model.input_tokenizer",
      {NULL},
      "the reward model reads the ids of the policy, whose vocabulary it must have"};
  *taken_p = false;
  if (!reader->config->has_reward_model) {
    if (!(key >= 0 && treadle_train_keys[key].reward) && strcmp(given->path, "reward_config") != 0)
      return TREADLE_OK;
    *taken_p = true;
    treadle_given_ignore(reader, given);
    return TREADLE_OK;
  }
  for (int i = 0; i < SWITCHES; i++)
    if (strcmp(given->path, switches[i]) == 0) return place_switch(reader, given, taken_p);
  if (strcmp(given->path, same_ids.path) == 0) {
    *taken_p = true;
    return treadle_given_check_limit(reader, given, &same_ids);
  }
  if (key < 0 && treadle_text_starts(given->path, "reward_config."))
    return treadle_config_role_place_forward(reader, given, "a reward model", shared, taken_p);
  return TREADLE_OK;
}

/* ---- What it has from the actor ------------------------------------------------------------------------------ */

treadle_status treadle_train_config_settle_reward(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  const treadle_config_role role = {config, offsetof(treadle_train_settings, reward.scored), false};
  treadle_status status;
  if (config->has_reward_model && !s->reward.scored.model)
    REFUSE("%s: there is to be a reward model, and reward_config.model does not say which", config->file);
  if (!treadle_train_has_reward_model(s)) return TREADLE_OK;
  s->reward.scored.exact = s->actor.exact;
  TRY(treadle_config_role_settle_micro_batch(&role));
  TRY(treadle_config_role_settle_layout(&role));
out:
  return status;
}

/* What the weights of a run begin with: RLinf's keys for a checkpoint of Megatron, which is there (checkpoint_load_path), or made of the
 * model once (use_hf_ckpt). */
#include "run/config.h"

#include "base/argument.h"
#include "base/utf8.h"
#include "treadle_loop.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

/* Are they the same but for slashes at the end? */
static bool same_path(const char *a, const char *b) {
  size_t x = strlen(a), y = strlen(b);
  while (x > 1 && a[x - 1] == '/') x--;
  while (y > 1 && b[y - 1] == '/') y--;
  return x == y && strncmp(a, b, x) == 0;
}

/* The run's model is what is converted: one of the two names is enough. */
static treadle_status settle_model(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  if (!s->hf_model_path) {
    s->hf_model_path = s->model;
    treadle_train_config_follow(config, KEY(hf_model_path), "as actor_config.model");
  } else if (!s->model) {
    s->model = s->hf_model_path;
    config->sources[KEY(model)] = config->sources[KEY(hf_model_path)];
  } else if (!same_path(s->model, s->hf_model_path)) {
    char model[256];
    snprintf(model, sizeof model, "%s", treadle_text_shown(s->model));
    REFUSE("%s: %s is '%s', and %s '%s': the model that is converted is the one that is trained",
           config->file, PLACE(hf_model_path), treadle_text_shown(s->hf_model_path), PLACE(model), model);
  }
  return TREADLE_OK;
}

treadle_status treadle_train_config_settle_start(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  treadle_status status = TREADLE_OK;
  if (s->use_hf_ckpt && s->checkpoint_load_path)
    REFUSE("%s: %s and %s exclude each other: one converts the model, the other has it converted",
           config->file, PLACE(use_hf_ckpt), PLACE(checkpoint_load_path));
  if (s->use_hf_ckpt && !s->converted_path)
    REFUSE("%s: %s needs megatron.ckpt_convertor.save_path, the folder of what is converted", config->file,
           PLACE(use_hf_ckpt));
  if (s->weights == TREADLE_WEIGHTS_RANDOM && (s->use_hf_ckpt || s->checkpoint_load_path))
    REFUSE("%s: %s and %s exclude each other: weights that are made up are not read", config->file,
           PLACE(weights), s->use_hf_ckpt ? PLACE(use_hf_ckpt) : PLACE(checkpoint_load_path));
  if (s->use_hf_ckpt) TRY(settle_model(config));
  if (s->resume_mode == TREADLE_RESUME_MODE_PATH && !s->resume_from_path)
    REFUSE("%s: %s needs rl_config.resume_from_path, the folder global_step_K", config->file,
           PLACE(resume_mode));
  if (!s->converted_tp) {
    s->converted_tp = s->tensor_model_parallel_size;
    treadle_train_config_follow(config, KEY(converted_tp), "as actor_config");
  }
  if (!s->converted_pp) {
    s->converted_pp = s->pipeline_model_parallel_size;
    treadle_train_config_follow(config, KEY(converted_pp), "as actor_config");
  }
out:
  return status;
}

treadle_start treadle_rl_config_start(const treadle_train_config *config, const char **from_p) {
  static const treadle_start starts[] = {[TREADLE_RESUME_MODE_DISABLE] = TREADLE_RESUME_NEVER,
                                         [TREADLE_RESUME_MODE_AUTO] = TREADLE_RESUME_AUTO,
                                         [TREADLE_RESUME_MODE_PATH] = TREADLE_RESUME_FROM};
  TREADLE_NEED_OR(config, TREADLE_RESUME_NEVER);
  TREADLE_NEED_OR(from_p, TREADLE_RESUME_NEVER);
  const treadle_train_settings *s = &config->settings;
  *from_p = s->resume_mode == TREADLE_RESUME_MODE_PATH ? s->resume_from_path : NULL;
  return starts[s->resume_mode];
}

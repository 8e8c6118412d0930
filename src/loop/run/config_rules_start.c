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
  treadle_config_convertor *convertor = &config->settings.megatron.ckpt_convertor;
  treadle_config_actor *actor = &config->settings.actor;
  if (!convertor->hf_model_path) {
    convertor->hf_model_path = actor->model;
    treadle_train_config_follow(config, KEY(megatron.ckpt_convertor.hf_model_path),
                                "as actor_config.model");
  } else if (!actor->model) {
    actor->model = convertor->hf_model_path;
    config->sources[KEY(actor.model)] = config->sources[KEY(megatron.ckpt_convertor.hf_model_path)];
  } else if (!same_path(actor->model, convertor->hf_model_path)) {
    char model[256];
    snprintf(model, sizeof model, "%s", treadle_text_shown(actor->model));
    REFUSE("%s: %s is '%s', and %s '%s': the model that is converted is the one that is trained",
           config->file, PLACE(megatron.ckpt_convertor.hf_model_path),
           treadle_text_shown(convertor->hf_model_path), PLACE(actor.model), model);
  }
  return TREADLE_OK;
}

treadle_status treadle_train_config_settle_start(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  treadle_config_convertor *convertor = &config->settings.megatron.ckpt_convertor;
  const treadle_config_megatron *megatron = &config->settings.megatron;
  treadle_status status = TREADLE_OK;
  if (megatron->use_hf_ckpt && megatron->checkpoint_load_path)
    REFUSE("%s: %s and %s exclude each other: one converts the model, the other has it converted",
           config->file, PLACE(megatron.use_hf_ckpt), PLACE(megatron.checkpoint_load_path));
  if (megatron->use_hf_ckpt && !convertor->save_path)
    REFUSE("%s: %s needs megatron.ckpt_convertor.save_path, the folder of what is converted", config->file,
           PLACE(megatron.use_hf_ckpt));
  if (s->actor.weights == TREADLE_WEIGHTS_RANDOM &&
      (megatron->use_hf_ckpt || megatron->checkpoint_load_path))
    REFUSE("%s: %s and %s exclude each other: weights that are made up are not read", config->file,
           PLACE(actor.weights),
           megatron->use_hf_ckpt ? PLACE(megatron.use_hf_ckpt) : PLACE(megatron.checkpoint_load_path));
  if (megatron->use_hf_ckpt) TRY(settle_model(config));
  if (s->rl.resume_mode == TREADLE_RESUME_MODE_PATH && !s->rl.resume_from_path)
    REFUSE("%s: %s needs rl_config.resume_from_path, the folder global_step_K", config->file,
           PLACE(rl.resume_mode));
  if (!convertor->tensor_model_parallel_size) {
    convertor->tensor_model_parallel_size = s->actor.tensor_model_parallel_size;
    treadle_train_config_follow(config, KEY(megatron.ckpt_convertor.tensor_model_parallel_size),
                                "as actor_config");
  }
  if (!convertor->pipeline_model_parallel_size) {
    convertor->pipeline_model_parallel_size = s->actor.pipeline_model_parallel_size;
    treadle_train_config_follow(config, KEY(megatron.ckpt_convertor.pipeline_model_parallel_size),
                                "as actor_config");
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
  *from_p = s->rl.resume_mode == TREADLE_RESUME_MODE_PATH ? s->rl.resume_from_path : NULL;
  return starts[s->rl.resume_mode];
}

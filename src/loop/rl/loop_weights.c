/* Where the weights of a run come from: a checkpoint of the run, the model's files, a checkpoint of Megatron (loop_convert.c), or nowhere, where it
 * was said that they are made up. */
#include "rl/loop.h"

#include "model/model.h"

#include <stdio.h>

/* Values that no file has: of a policy that does not go on from a checkpoint, and of a reference, which is the policy as it began. */
treadle_status treadle_rl_check_weights(const treadle_rl_models *models, const treadle_rl_crew *crew,
                                        const char *from) {
  const bool needs = !from[0] || (models->reference && !models->reference_model);
  treadle_status status = TREADLE_OK;
  if (needs) TRY(treadle_model_need_weights(models->model));
  if (!from[0] && treadle_model_weights(models->model) == TREADLE_WEIGHTS_RANDOM) {
    char line[PATH_MAX + 100];
    snprintf(line, sizeof line, TREADLE_MADE_UP, models->path);
    treadle_rl_warn(crew, line);
  }
out:
  return status;
}

treadle_weights treadle_rl_weights(const treadle_rl_models *models, const char *from) {
  return from[0] ? TREADLE_WEIGHTS_FILES : treadle_model_weights(models->model);
}

static bool is_random(const treadle_model *model) {
  return treadle_model_weights(model) == TREADLE_WEIGHTS_RANDOM;
}

treadle_status treadle_rl_fill_weights(treadle_actor *policy, const treadle_rl_models *models,
                                       const char *from, int64_t seed) {
  char actor[PATH_MAX + 8];
  treadle_status status;
  const bool random = is_random(models->model),
             copies = models->reference && is_random(models->reference->model);
  if (!random && !from[0]) TRY(treadle_actor_load(policy));
  if (random && (!from[0] || copies)) TRY(treadle_actor_randomise(policy, (uint64_t)seed));
  if (models->reference) TRY(treadle_actor_load_reference(policy));
  if (from[0]) {
    snprintf(actor, sizeof actor, "%s/actor", from);
    TRY(treadle_actor_resume(policy, actor));
  }
out:
  return status;
}

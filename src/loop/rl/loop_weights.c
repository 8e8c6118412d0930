/* Where the weights of a run come from: a checkpoint of the run, the model's files, a checkpoint of Megatron (loop_convert.c), or nowhere, where it
 * was said that they are made up. */
#include "rl/loop.h"

#include "model/model.h"

#include <stdio.h>

/* Values that no file has: of a policy that does not go on from a checkpoint, and of a reference, which is the policy as it began. */
treadle_status treadle_rl_check_weights(const treadle_rl *rl) {
  const bool needs = !rl->from[0] || (rl->reference && !rl->reference_model);
  treadle_status status = TREADLE_OK;
  if (needs) TRY(treadle_model_need_weights(rl->model));
  if (!rl->from[0] && treadle_model_weights(rl->model) == TREADLE_WEIGHTS_RANDOM) {
    char line[PATH_MAX + 100];
    snprintf(line, sizeof line, TREADLE_MADE_UP, rl->model_path);
    treadle_rl_warn(rl, line);
  }
out:
  return status;
}

treadle_weights treadle_rl_weights(const treadle_rl *rl) {
  return rl->from[0] ? TREADLE_WEIGHTS_FILES : treadle_model_weights(rl->model);
}

static bool is_random(const treadle_model *model) {
  return treadle_model_weights(model) == TREADLE_WEIGHTS_RANDOM;
}

treadle_status treadle_rl_fill_weights(treadle_rl *rl) {
  char actor[PATH_MAX + 8];
  treadle_status status;
  treadle_rl_doing(rl, "the weights");
  bool random = is_random(rl->model), copies = rl->reference && is_random(rl->reference->model);
  if (!random && !rl->from[0]) TRY(treadle_actor_load(rl->actor));
  if (random && (!rl->from[0] || copies))
    TRY(treadle_actor_randomise(rl->actor, (uint64_t)rl->settings->training.seed));
  if (rl->reference) TRY(treadle_actor_load_reference(rl->actor));
  if (rl->from[0]) {
    snprintf(actor, sizeof actor, "%s/actor", rl->from);
    TRY(treadle_actor_resume(rl->actor, actor));
  }
out:
  return status;
}

/* What the trainer scores of a sample, with other bits than the generator's: the linker puts the function below in the actor's place (tests/tests.cmake).
 * In fast mode the two may have the same bits, or not, as processor and layout have it; build/planted_other_bits, the command with this file, has
 * others, always. Of three log-probabilities one is a little higher, and one lower. */
#include "train/gradients.h"
#include "treadle_loop.h"

treadle_status __real_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_train_batch *batch,
                                                     const treadle_policy *policy, float *logprobs,
                                                     float *entropies);
treadle_status __wrap_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_train_batch *batch,
                                                     const treadle_policy *policy, float *logprobs,
                                                     float *entropies);

treadle_status __wrap_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_train_batch *batch,
                                                     const treadle_policy *policy, float *logprobs,
                                                     float *entropies) {
  treadle_status status = __real_treadle_actor_compute_log_prob(actor, batch, policy, logprobs, entropies);
  static const float others[] = {0.001f, 0, -0.001f};
  size_t counted = 0;
  if (status) return status;
  for (size_t row = 0; row < batch->count; row++)
    counted += (size_t)treadle_train_counted(&batch->rows[row]);
  for (size_t t = 0; t < counted; t++) logprobs[t] += others[t % 3];
  return TREADLE_OK;
}

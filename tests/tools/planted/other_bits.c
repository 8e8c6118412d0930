/* What the trainer scores of a sample, with other bits than the generator's: the linker puts the function below in the actor's place (tests/tests.cmake).
 * In fast mode the two may have the same bits, or not, as processor and layout have it; build/planted_other_bits, the command with this file, has
 * others, always. Of three log-probabilities one is a little higher, and one lower. */
#include "treadle_loop.h"

treadle_status __real_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                     const treadle_forward_options *forward,
                                                     treadle_batch *out);
treadle_status __wrap_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                     const treadle_forward_options *forward,
                                                     treadle_batch *out);

treadle_status __wrap_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                     const treadle_forward_options *forward,
                                                     treadle_batch *out) {
  static const float others[] = {0.001f, 0, -0.001f};
  treadle_column found = TREADLE_INIT(treadle_column);
  treadle_status status = __real_treadle_actor_compute_log_prob(actor, batch, forward, out);
  if (status || !treadle_batch_has(out, "log_probs")) return status; /* another rank has found them */
  status = treadle_batch_column(out, "log_probs", &found);
  if (status) return status;
  float *logprobs = (float *)found.data + found.offsets[0];
  const int64_t count = found.offsets[treadle_batch_rows(out)] - found.offsets[0];
  for (int64_t t = 0; t < count; t++) logprobs[t] += others[t % 3];
  return TREADLE_OK;
}

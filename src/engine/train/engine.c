/* The built-in trainer as an engine that trains. */
#include "treadle_builtin.h"

#include "base/argument.h"
#include "base/sized.h"

#include <stddef.h>

static treadle_status load(void *engine) { return treadle_trainer_load(engine); }

static treadle_status randomise(void *engine, uint64_t seed) {
  return treadle_trainer_randomise(engine, seed);
}

static treadle_status gradients(void *engine, const treadle_train_batch *batch, treadle_loss *loss_p) {
  return treadle_trainer_gradients(engine, batch, loss_p);
}

static treadle_status loss(void *engine, const treadle_train_batch *batch, treadle_loss *loss_p) {
  return treadle_trainer_loss(engine, batch, loss_p);
}

static treadle_status step(void *engine, const treadle_optimizer_step *one,
                           treadle_optimizer_figures *figures_p) {
  return treadle_trainer_step(engine, one, figures_p);
}

static treadle_status weights_digest(void *engine, uint64_t *digest_p) {
  return treadle_trainer_weights_digest(engine, digest_p);
}

static treadle_status save(void *engine, const char *folder) {
  return treadle_trainer_save(engine, folder);
}

static treadle_status resume(void *engine, const char *folder) {
  return treadle_trainer_resume(engine, folder);
}

static treadle_status policy_gradients(void *engine, const treadle_train_batch *batch,
                                       const treadle_policy *policy, float *logprobs, float *entropies) {
  return treadle_trainer_policy_gradients(engine, batch, policy, logprobs, entropies);
}

static treadle_status logprobs(void *engine, const treadle_train_batch *batch, const treadle_policy *policy,
                               const void *weights, float *values, float *entropies) {
  return treadle_trainer_logprobs(engine, batch, policy, weights, values, entropies);
}

static treadle_status rebind(void *engine) { return treadle_trainer_rebind(engine); }

static size_t bytes(const void *engine) { return treadle_trainer_bytes(engine); }

static void close_engine(void *engine) { treadle_trainer_destroy(engine); }

treadle_status treadle_trainer_open_engine(void *context, treadle_group *group,
                                           const treadle_layout *layout,
                                           const treadle_trainer_options *options,
                                           treadle_train_engine *engine_p) {
  treadle_train_engine engine = TREADLE_INIT(treadle_train_engine);
  treadle_trainer *trainer;
  treadle_status status;
  (void)context;
  TREADLE_NEED_SIZED(engine_p);
  if (engine_p->struct_size < offsetof(treadle_train_engine, rebind) + sizeof engine.rebind)
    REFUSE("treadle_trainer_open_engine: a table of %zu bytes has no room for rebind",
           engine_p->struct_size);
  TRY(treadle_trainer_create(group, layout, options, &trainer));
  engine.engine = trainer;
  engine.load = load;
  engine.randomise = randomise;
  engine.gradients = gradients;
  engine.loss = loss;
  engine.step = step;
  engine.weights_digest = weights_digest;
  engine.save = save;
  engine.resume = resume;
  engine.bytes = bytes;
  engine.close = close_engine;
  engine.policy_gradients = policy_gradients;
  engine.logprobs = logprobs;
  engine.rebind = rebind;
  TREADLE_GIVE(engine_p, &engine);
out:
  return status;
}

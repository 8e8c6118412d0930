/* The built-in trainer as an engine that trains. */
#include "train/coordinate.h"
#include "train/trainer.h"

#include "base/argument.h"
#include "base/sized.h"
#include "layout/layout.h"

#include <stddef.h>

static treadle_status load(void *engine) { return treadle_trainer_load(engine); }

static treadle_status randomise(void *engine, uint64_t seed) {
  return treadle_trainer_randomise(engine, seed);
}

static treadle_status coordinate_of(void *engine, const int64_t *lengths, int64_t rows,
                                    const treadle_forward_options *forward, treadle_row_range *by_rank) {
  return treadle_trainer_coordinate_of(engine, lengths, rows, forward, by_rank);
}

static treadle_status logprobs(void *engine, const treadle_batch *batch,
                               const treadle_forward_options *forward, const void *weights,
                               treadle_batch *out) {
  return treadle_trainer_logprobs(engine, batch, forward, weights, out);
}

static treadle_status values(void *engine, const treadle_batch *batch,
                             const treadle_forward_options *forward, treadle_batch *out) {
  return treadle_trainer_values(engine, batch, forward, out);
}

static treadle_status scores(void *engine, const treadle_batch *batch,
                             const treadle_forward_options *forward, treadle_batch *out) {
  return treadle_trainer_scores(engine, batch, forward, out);
}

static treadle_status loss(void *engine, const treadle_batch *batch, const treadle_forward_options *forward,
                           const treadle_loss_options *options, treadle_loss *loss_p) {
  return treadle_trainer_loss(engine, batch, forward, options, loss_p);
}

static treadle_status update(void *engine, const treadle_batch *batch,
                             const treadle_forward_options *forward, const treadle_loss_options *options,
                             const treadle_optimizer_step *step, treadle_batch *out,
                             treadle_optimizer_figures *figures_p) {
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_status status;
  TREADLE_NEED_SIZED(figures_p);
  TRY(treadle_trainer_gradients(engine, batch, forward, options, out, &loss));
  TRY(treadle_trainer_step(engine, step, &figures));
  figures.loss = loss;
  TREADLE_GIVE(figures_p, &figures);
out:
  return status;
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

static treadle_status rebind(void *engine) { return treadle_trainer_rebind(engine); }

static treadle_status gather(void *engine) { return treadle_trainer_gather_adapters(engine); }

static treadle_status merge(void *engine, const treadle_layout *layout, int64_t rank, void *window) {
  return treadle_trainer_merge_adapters(engine, layout, rank, window);
}

static size_t bytes(const void *engine) { return treadle_trainer_bytes(engine); }

static void close_engine(void *engine) { treadle_trainer_destroy(engine); }

treadle_status treadle_trainer_slice(treadle_trainer *trainer, const treadle_batch *batch,
                                     const treadle_forward_options *forward, treadle_row_range *range_p,
                                     treadle_batch **mine_p) {
  treadle_status status;
  TREADLE_NEED(mine_p);
  *mine_p = NULL;
  TREADLE_NEED(trainer);
  TREADLE_NEED(batch);
  const treadle_train_engine table = {
      .struct_size = sizeof table, .engine = trainer, .coordinate_of = coordinate_of};
  const treadle_coordinate mine = {
      .engine = &table, .rank = trainer->windows.rank, .ranks = trainer->windows.layout->ranks};
  TRY(treadle_coordinate_slice(&mine, batch, forward, range_p, mine_p));
out:
  return status;
}

treadle_status treadle_trainer_open_engine(void *context, treadle_group *group,
                                           const treadle_layout *layout,
                                           const treadle_trainer_options *options,
                                           treadle_train_engine *engine_p) {
  treadle_train_engine engine = TREADLE_INIT(treadle_train_engine);
  treadle_trainer *trainer;
  treadle_status status;
  (void)context;
  TREADLE_NEED_SIZED(engine_p);
  if (engine_p->struct_size < offsetof(treadle_train_engine, close) + sizeof engine.close)
    REFUSE("treadle_trainer_open_engine: a table of %zu bytes has no room for close",
           engine_p->struct_size);
  TRY(treadle_trainer_create(group, layout, options, &trainer));
  engine.engine = trainer;
  engine.load = load;
  engine.randomise = randomise;
  engine.coordinate_of = coordinate_of;
  engine.logprobs = logprobs;
  engine.loss = loss;
  engine.update = update;
  engine.weights_digest = weights_digest;
  engine.save = save;
  engine.resume = resume;
  engine.bytes = bytes;
  engine.close = close_engine;
  engine.rebind = rebind;
  engine.values = values;
  engine.scores = scores;
  engine.gather = trainer->adapters ? gather : NULL;
  engine.merge = trainer->adapters ? merge : NULL;
  TREADLE_GIVE(engine_p, &engine);
out:
  return status;
}

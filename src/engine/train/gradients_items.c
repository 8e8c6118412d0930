/* Micro batches, forward and backward through the layers of this rank, in the order of the pipeline. */
#include "train/gradients.h"

#include "train/back_experts.h"
#include "train/layer.h"

#include <string.h>

/* Rows that a neighbour sent; NULL: there is none. */
static treadle_status take_rows(treadle_ring *ring, int64_t rows, int64_t hidden, float *to,
                                const char *what) {
  const float *from;
  treadle_status status;
  TRY(treadle_ring_take(ring, rows, hidden, &from, what));
  memcpy(to, from, (size_t)(rows * hidden) * sizeof *to);
  treadle_ring_release(ring);
out:
  return status;
}

static treadle_status send_rows(treadle_ring *ring, int64_t rows, int64_t hidden, const float *from,
                                const char *what) {
  float *room;
  treadle_status status;
  TRY(treadle_ring_room(ring, &room, what));
  memcpy(room, from, (size_t)(rows * hidden) * sizeof *from);
  TRY(treadle_ring_send(ring, rows, hidden));
out:
  return status;
}

/* The matrices of a unit are there: gathered, and merged with their adapters. */
static void need(treadle_train_shards *shards, treadle_train_adapters *adapters, int32_t unit) {
  treadle_train_need(shards, unit);
  treadle_train_merge(adapters, unit);
}

/* ---- The ends of the model, which are units of shards ---- */

static treadle_status embed(treadle_train_shards *shards, treadle_pass *pass,
                            const treadle_pass_step *step) {
  treadle_train_need(shards, treadle_train_unit_embed(pass->transformer));
  return treadle_pass_embed(pass, step);
}

static treadle_status back_embed(treadle_train_shards *shards, treadle_back *back,
                                 const treadle_pass_step *step) {
  const int32_t unit = treadle_train_unit_embed(back->transformer);
  treadle_status status;
  treadle_train_begin_unit(shards, unit);
  TRY(treadle_back_embed(back, step));
  TRY(treadle_train_end_unit(shards, unit));
out:
  return status;
}

static treadle_status find_loss(treadle_train_shards *shards, treadle_back *back,
                                const treadle_train_step *batch, float *x) {
  need(shards, back->adapters, treadle_train_unit_head(back->transformer));
  return treadle_back_loss(back, batch, x);
}

static treadle_status back_head(treadle_train_shards *shards, treadle_back *back,
                                const treadle_train_step *batch, float *x) {
  const int32_t unit = treadle_train_unit_head(back->transformer);
  treadle_status status;
  need(shards, back->adapters, unit);
  treadle_train_begin_unit(shards, unit);
  TRY(treadle_back_head(back, batch, x));
  TRY(treadle_train_end_unit(shards, unit));
out:
  return status;
}

/* ---- Micro batches ---- */

/* This rank's group has no rows, but experts. */
static treadle_status serve(treadle_pass *pass, const treadle_train_chunk *chunk) {
  treadle_status status = TREADLE_OK;
  for (int32_t l = chunk->first_layer; pass->ranks.groups.set && l < chunk->end_layer; l++)
    if (pass->transformer->layer[l].sparse) TRY(treadle_pass_run_groups(pass, l));
out:
  return status;
}

static treadle_status serve_backward(const treadle_back *back, const treadle_train_chunk *chunk) {
  treadle_status status = TREADLE_OK;
  for (int32_t l = chunk->end_layer; back->pass->ranks.groups.set && l-- > chunk->first_layer;)
    if (back->transformer->layer[l].sparse) TRY(treadle_back_experts_of_others(back, l));
out:
  return status;
}

static treadle_status run_forward(treadle_train_work *w, const treadle_train_chunk *chunk,
                                  int32_t micro_batch) {
  treadle_trainer *t = w->t;
  treadle_train_step batch;
  treadle_status status;
  TRY(treadle_train_micro_batch(w, micro_batch, &batch));
  const int64_t rows = batch.step.rows, hidden = t->transformer->hidden;
  float *x = t->pass->buffers.x;
  if (!batch.step.stretch_count) return serve(t->pass, chunk);
  if (chunk->from_before)
    TRY(take_rows(chunk->from_before, rows, hidden, x, "rows of the stage before"));
  else
    TRY(embed(t->shards, t->pass, &batch.step));
  for (int32_t l = chunk->first_layer; l < chunk->end_layer; l++) {
    need(t->shards, t->adapters, l);
    if (!w->backward) {
      TRY(treadle_pass_layer(t->pass, l, &batch.step));
      continue;
    }
    treadle_train_activations kept = treadle_train_activations_of(&t->back, chunk, l, micro_batch);
    TRY(treadle_train_forward(&t->back, l, &batch.step, &kept));
  }
  if (chunk->to_next)
    TRY(send_rows(chunk->to_next, rows, hidden, x, "rows for the next stage"));
  else if (!w->backward)
    TRY(find_loss(t->shards, &t->back, &batch, x));
  else
    memcpy(treadle_train_out(&t->back, micro_batch), x, (size_t)(rows * hidden) * sizeof *x);
out:
  return status;
}

static treadle_status run_backward(treadle_train_work *w, const treadle_train_chunk *chunk,
                                   int32_t micro_batch) {
  treadle_trainer *t = w->t;
  treadle_train_step batch;
  treadle_status status;
  TRY(treadle_train_micro_batch(w, micro_batch, &batch));
  const int64_t rows = batch.step.rows, hidden = t->transformer->hidden;
  if (!batch.step.stretch_count) return serve_backward(&t->back, chunk);
  if (chunk->from_next)
    TRY(take_rows(chunk->from_next, rows, hidden, t->back.buffers.dx, "gradients of the next stage"));
  else
    TRY(back_head(t->shards, &t->back, &batch, treadle_train_out(&t->back, micro_batch)));
  for (int32_t l = chunk->end_layer; l-- > chunk->first_layer;) {
    need(t->shards, t->adapters, l);
    treadle_train_begin_unit(t->shards, l);
    TRY(treadle_back_layer(&t->back, l, &batch.step,
                           treadle_train_activations_of(&t->back, chunk, l, micro_batch)));
    TRY(treadle_train_end_unit(t->shards, l));
  }
  if (chunk->to_before)
    TRY(send_rows(chunk->to_before, rows, hidden, t->back.buffers.dx, "gradients for the stage before"));
  else
    TRY(back_embed(t->shards, &t->back, &batch.step));
out:
  return status;
}

static treadle_status run_items(treadle_train_work *w) {
  treadle_trainer *t = w->t;
  treadle_pipeline pipeline = t->stage.pipeline;
  treadle_status status = TREADLE_OK;
  pipeline.micro_batches = w->micro_batches;
  int64_t length = treadle_pipeline_length(&pipeline);
  for (int64_t i = 0; i < (w->backward ? length : length / 2); i++) {
    treadle_pipeline_item item = w->backward ? treadle_pipeline_at(&pipeline, t->stage.number, i)
                                             : treadle_pipeline_forward_at(&pipeline, t->stage.number, i);
    const treadle_train_chunk *chunk = &t->stage.chunks[item.chunk / pipeline.stages];
    if (item.backward)
      TRY(run_backward(w, chunk, item.micro_batch));
    else
      TRY(run_forward(w, chunk, item.micro_batch));
  }
out:
  return status;
}

treadle_status treadle_train_run_step(treadle_train_work *w) {
  treadle_trainer *t = w->t;
  treadle_status status;
  if (w->backward) memset(t->windows.grads, 0, t->windows.grad_bytes);
  if (w->backward && t->back.buffers.tied)
    memset(t->back.buffers.tied, 0,
           (size_t)(t->back.width.vocabulary * t->transformer->hidden) * sizeof(float));
  if (w->backward) treadle_train_routers_begin(&t->routers, w->through);
  TRY(run_items(w));
  for (int32_t i = w->micro_batches; t->shards && w->backward && i < w->most_batches; i++)
    TRY(treadle_train_idle_batch(t->shards));
  if (w->backward) TRY(treadle_train_join_gradients(t));
out:
  treadle_train_tell(&t->ranks, status);
  if (!status && w->noted) status = treadle_fail(w->noted, "%s", w->message);
  return status;
}

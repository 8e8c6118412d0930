/* Micro batches, forward and backward through the layers of this rank, in the order of the pipeline. */
#include "train/gradients.h"

#include <string.h>

/* Rows that a neighbour sent; NULL: there is none. */
static treadle_status take_rows(treadle_trainer *t, treadle_ring *ring, int64_t rows, float *to,
                                const char *what) {
  int64_t hidden = t->transformer->hidden;
  const float *from;
  treadle_status status;
  TRY(treadle_ring_take(ring, rows, hidden, &from, what));
  memcpy(to, from, (size_t)(rows * hidden) * sizeof *to);
  treadle_ring_release(ring);
out:
  return status;
}

static treadle_status send_rows(treadle_trainer *t, treadle_ring *ring, int64_t rows, const float *from,
                                const char *what) {
  int64_t hidden = t->transformer->hidden;
  float *room;
  treadle_status status;
  TRY(treadle_ring_room(ring, &room, what));
  memcpy(room, from, (size_t)(rows * hidden) * sizeof *from);
  TRY(treadle_ring_send(ring, rows, hidden));
out:
  return status;
}

/* ---- The ends of the model, which are units of shards ---- */

static treadle_status embed(treadle_trainer *t, const treadle_pass_step *step) {
  treadle_train_need(t, treadle_train_unit_embed(t));
  return treadle_pass_embed(t->pass, step);
}

static treadle_status back_embed(treadle_trainer *t, const treadle_pass_step *step) {
  treadle_train_begin_unit(t, treadle_train_unit_embed(t));
  treadle_back_embed(t, step);
  return treadle_train_end_unit(t, treadle_train_unit_embed(t));
}

static treadle_status find_loss(treadle_train_work *w, const treadle_train_step *batch, float *x) {
  treadle_train_need(w->t, treadle_train_unit_head(w->t));
  return treadle_back_loss(w->t, batch, x);
}

static treadle_status back_head(treadle_train_work *w, const treadle_train_step *batch, float *x) {
  int32_t unit = treadle_train_unit_head(w->t);
  treadle_status status;
  treadle_train_need(w->t, unit);
  treadle_train_begin_unit(w->t, unit);
  TRY(treadle_back_head(w->t, batch, x));
  TRY(treadle_train_end_unit(w->t, unit));
out:
  return status;
}

static treadle_status run_forward(treadle_train_work *w, const treadle_train_chunk *chunk,
                                  int32_t micro_batch) {
  treadle_trainer *t = w->t;
  const treadle_train_step batch = treadle_train_micro_batch(w, micro_batch);
  const int64_t rows = batch.step.rows;
  float *x = t->pass->buffers.x;
  treadle_status status;
  if (chunk->from_before)
    TRY(take_rows(t, chunk->from_before, rows, x, "rows of the stage before"));
  else
    TRY(embed(t, &batch.step));
  for (int32_t l = chunk->first_layer; l < chunk->end_layer; l++) {
    treadle_train_need(t, l);
    if (!w->backward) {
      TRY(treadle_pass_layer(t->pass, l, &batch.step));
      continue;
    }
    treadle_train_activations kept = treadle_train_activations_of(t, chunk, l, micro_batch);
    TRY(treadle_train_forward(t, l, &batch.step, &kept));
  }
  if (chunk->to_next)
    TRY(send_rows(t, chunk->to_next, rows, x, "rows for the next stage"));
  else if (!w->backward)
    TRY(find_loss(w, &batch, x));
  else
    memcpy(treadle_train_out(t, micro_batch), x, (size_t)(rows * t->transformer->hidden) * sizeof *x);
out:
  return status;
}

static treadle_status run_backward(treadle_train_work *w, const treadle_train_chunk *chunk,
                                   int32_t micro_batch) {
  treadle_trainer *t = w->t;
  const treadle_train_step batch = treadle_train_micro_batch(w, micro_batch);
  const int64_t rows = batch.step.rows;
  treadle_status status;
  if (chunk->from_next)
    TRY(take_rows(t, chunk->from_next, rows, t->buffers.dx, "gradients of the next stage"));
  else
    TRY(back_head(w, &batch, treadle_train_out(t, micro_batch)));
  for (int32_t l = chunk->end_layer; l-- > chunk->first_layer;) {
    treadle_train_need(t, l);
    treadle_train_begin_unit(t, l);
    TRY(treadle_back_layer(t, l, &batch.step, treadle_train_activations_of(t, chunk, l, micro_batch)));
    TRY(treadle_train_end_unit(t, l));
  }
  if (chunk->to_before)
    TRY(send_rows(t, chunk->to_before, rows, t->buffers.dx, "gradients for the stage before"));
  else
    TRY(back_embed(t, &batch.step));
out:
  return status;
}

static treadle_status run_items(treadle_train_work *w) {
  treadle_trainer *t = w->t;
  treadle_pipeline pipeline = t->pipeline;
  treadle_status status = TREADLE_OK;
  pipeline.micro_batches = w->micro_batches;
  int64_t length = treadle_pipeline_length(&pipeline);
  for (int64_t i = 0; i < (w->backward ? length : length / 2); i++) {
    treadle_pipeline_item item = w->backward ? treadle_pipeline_at(&pipeline, t->stage, i)
                                             : treadle_pipeline_forward_at(&pipeline, t->stage, i);
    const treadle_train_chunk *chunk = &t->chunks[item.chunk / pipeline.stages];
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
  if (w->backward) memset(t->grad_window, 0, t->grad_bytes);
  if (w->backward && t->buffers.tied)
    memset(t->buffers.tied, 0, (size_t)(t->width.vocabulary * t->transformer->hidden) * sizeof(float));
  TRY(run_items(w));
  for (int32_t i = w->micro_batches; t->shards && w->backward && i < w->most_batches; i++)
    TRY(treadle_train_idle_batch(t));
  if (w->backward) TRY(treadle_train_join_gradients(t));
out:
  treadle_train_tell(t, status);
  if (!status && w->noted) status = treadle_fail(w->noted, "%s", w->message);
  return status;
}

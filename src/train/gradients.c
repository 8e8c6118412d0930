/* Rows in micro batches, forward and backward through the layers of this rank, in the order of the pipeline. */
#include "train/trainer.h"

#include "base/argument.h"
#include "base/sized.h"
#include "transport/group.h"

#include <string.h>

/* ---- Rows --------------------------------------------------------------------------------------------- */

static treadle_status check_row(const treadle_trainer *t, const treadle_train_row *row, size_t number) {
  const treadle_transformer *d = t->transformer;
  if (row->count < 2)
    return treadle_fail(TREADLE_REFUSED, "row %zu: %zu tokens; 2 are the least", number, row->count);
  if ((int64_t)row->count > t->pass->options.most_positions)
    return treadle_fail(TREADLE_REFUSED, "row %zu: %zu tokens; at most %lld", number, row->count,
                        (long long)t->pass->options.most_positions);
  for (size_t i = 0; i < row->count; i++)
    if (row->ids[i] < 0 || row->ids[i] >= d->vocabulary)
      return treadle_fail(TREADLE_REFUSED, "row %zu: token %zu is %d; the vocabulary has 0 to %lld", number,
                          i, row->ids[i], (long long)d->vocabulary - 1);
  if (row->mask[0]) return treadle_fail(TREADLE_REFUSED, "row %zu: its first token cannot count", number);
  return TREADLE_OK;
}

static int64_t counted_of(const treadle_train_row *row) {
  int64_t counted = 0;
  for (size_t i = 1; i < row->count; i++) counted += row->mask[i] != 0;
  return counted;
}

/* A step: the rows of this replica, in micro batches. */
typedef struct work {
  treadle_trainer *t;
  const treadle_train_row *rows;
  size_t count, micro_batch_size;
  int64_t max_tokens;
  int32_t micro_batches, most_batches; /* of this rank; of the rank with the most */
  bool backward;
  float scale;
  double nll;
} work;

/* The rows of a micro batch that begins at `first`. */
static size_t rows_from(const work *w, size_t first) {
  size_t end = first, most = w->micro_batch_size ? w->micro_batch_size : w->count;
  int64_t tokens = 0;
  while (end < w->count && end - first < most) {
    tokens += (int64_t)w->rows[end].count;
    if (w->max_tokens && tokens > w->max_tokens && end > first) break;
    end++;
  }
  return end - first;
}

/* Where micro batch `number` begins. */
static size_t first_of(const work *w, int64_t number) {
  size_t first = 0;
  if (w->micro_batch_size) return (size_t)number * w->micro_batch_size;
  while (number-- > 0 && first < w->count) first += rows_from(w, first);
  return first;
}

static int64_t count_batches(const work *w) {
  int64_t batches = 0;
  for (size_t first = 0; first < w->count; first += rows_from(w, first)) batches++;
  return batches;
}

static treadle_status check_batch(const work *w, size_t first, size_t count) {
  int64_t tokens = 0, all = 0;
  for (size_t r = first; r < first + count; r++) {
    tokens += (int64_t)w->rows[r].count - 1;
    all += (int64_t)w->rows[r].count;
  }
  if (w->max_tokens && all > w->max_tokens)
    REFUSE("row %zu has %lld tokens, and a micro batch at most %lld", first, (long long)all,
           (long long)w->max_tokens);
  if (tokens > w->t->rows)
    REFUSE("rows %zu to %zu, a micro batch, have %lld tokens; at most %lld", first, first + count - 1,
           (long long)tokens, (long long)w->t->rows);
  return TREADLE_OK;
}

/* Checks all rows; *tokens_p: how many tokens count. */
static treadle_status check_rows(const work *w, int64_t *tokens_p) {
  treadle_status status = TREADLE_OK;
  *tokens_p = 0;
  for (size_t r = 0; r < w->count; r++) {
    TRY(check_row(w->t, &w->rows[r], r));
    *tokens_p += counted_of(&w->rows[r]);
  }
  if (!*tokens_p) REFUSE("no token of %zu rows counts", w->count);
  for (size_t first = 0; first < w->count; first += rows_from(w, first))
    TRY(check_batch(w, first, rows_from(w, first)));
out:
  return status;
}

/* Is there memory for so many micro batches under way? */
static treadle_status check_pipeline(const work *w) {
  treadle_pipeline pipeline = w->t->pipeline;
  treadle_pipeline_memory needs;
  treadle_status status;
  pipeline.micro_batches = w->micro_batches;
  TRY(treadle_pipeline_play(&pipeline, w->t->stage, &needs));
  if (needs.kept > w->t->kept_count || (pipeline.stages > 1 && needs.slots > w->t->ranks.room.slots))
    REFUSE("a step of %d micro batches keeps %d of them at a time; the trainer was made for %lld "
           "(most_micro_batches %d)",
           w->micro_batches, needs.kept, (long long)w->t->kept_count, w->t->pipeline.micro_batches);
out:
  return status;
}

/* This replica's rows: whole micro batches that follow each other. */
static treadle_status take_share(work *w) {
  int64_t rank = w->t->data_rank, ranks = w->t->data_ranks, batches = count_batches(w);
  int64_t first = batches * rank / ranks, end = batches * (rank + 1) / ranks;
  size_t from = first_of(w, first), to = first_of(w, end);
  w->most_batches = (int32_t)((batches + ranks - 1) / ranks);
  w->rows += from;
  w->count = (to < w->count ? to : w->count) - from;
  w->micro_batches = (int32_t)(end - first);
  return w->backward ? check_pipeline(w) : TREADLE_OK;
}

/* Rows side by side. The last token of a row goes through the layers for nothing, so it stays away. */
static treadle_train_step fill(const work *w, int32_t micro_batch) {
  treadle_trainer *t = w->t;
  treadle_train_buffers *own = &t->buffers;
  size_t first = first_of(w, micro_batch), count = rows_from(w, first);
  int64_t at = 0, counted = 0, blocks = 0;
  for (size_t r = 0; r < count; r++) {
    const treadle_train_row *row = &w->rows[first + r];
    int64_t tokens = (int64_t)row->count - 1;
    own->spans[r] = (treadle_pass_span){.rows = tokens, .table = own->table + blocks};
    for (int64_t i = 0; i < tokens; i++, at++) {
      own->tokens[at] = row->ids[i];
      if (!row->mask[i + 1]) continue;
      own->which[counted] = (int32_t)at;
      own->targets[counted++] = row->ids[i + 1];
    }
    blocks += (tokens + t->pass->options.block_tokens - 1) / t->pass->options.block_tokens;
  }
  return (treadle_train_step){
      .step = {.tokens = own->tokens, .rows = at, .stretches = own->spans, .stretch_count = (int32_t)count},
      .counted = counted,
      .which = own->which,
      .targets = own->targets,
      .scale = w->scale};
}

/* ---- Items of the pipeline ------------------------------------------------------------------------------ */

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

static treadle_status find_loss(work *w, const treadle_train_step *batch, float *x) {
  treadle_train_need(w->t, treadle_train_unit_head(w->t));
  return treadle_back_loss(w->t, batch, x, &w->nll);
}

static treadle_status back_head(work *w, const treadle_train_step *batch, float *x) {
  int32_t unit = treadle_train_unit_head(w->t);
  treadle_status status;
  treadle_train_need(w->t, unit);
  treadle_train_begin_unit(w->t, unit);
  TRY(treadle_back_head(w->t, batch, x, &w->nll));
  TRY(treadle_train_end_unit(w->t, unit));
out:
  return status;
}

static treadle_status run_forward(work *w, const treadle_train_chunk *chunk, int32_t micro_batch) {
  treadle_trainer *t = w->t;
  const treadle_train_step batch = fill(w, micro_batch);
  const int64_t rows = batch.step.rows;
  float *x = t->pass->buffers.x;
  treadle_status status;
  if (chunk->from_before)
    TRY(take_rows(t, chunk->from_before, rows, x, "rows of the stage before"));
  else
    TRY(embed(t, &batch.step));
  for (int32_t l = chunk->first_layer; l < chunk->end_layer; l++) {
    treadle_train_need(t, l);
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

static treadle_status run_backward(work *w, const treadle_train_chunk *chunk, int32_t micro_batch) {
  treadle_trainer *t = w->t;
  const treadle_train_step batch = fill(w, micro_batch);
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

static treadle_status run_items(work *w) {
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

/* ---- A step --------------------------------------------------------------------------------------------- */

/* The sum of the losses that the last stages have, one of each replica. */
static treadle_status share_loss(work *w) {
  typedef struct found {
    double nll;
    int64_t replica; /* -1: another rank says it */
  } found;
  treadle_trainer *t = w->t;
  treadle_group *group = t->ranks.group;
  found mine = {.nll = w->nll, .replica = -1};
  treadle_status status;
  if (!t->ranks.board) return TREADLE_OK;
  if (t->stage == t->pipeline.stages - 1 && (!t->pass->ranks.stage || t->pass->ranks.stage->index == 0))
    mine.replica = t->data_rank;
  TRY(treadle_group_say(group, &mine, sizeof mine));
  w->nll = 0;
  for (int64_t replica = 0; replica < t->data_ranks; replica++)
    for (int rank = 0; rank < treadle_group_size(group); rank++) {
      const found *other = treadle_group_said(group, rank);
      if (other->replica == replica) w->nll += other->nll;
    }
out:
  return status;
}

static treadle_status run_step(work *w) {
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
  return status;
}

static treadle_status run(treadle_trainer *t, const treadle_train_batch *batch, bool backward,
                          treadle_loss *loss_p) {
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  work w = {.t = t,
            .rows = batch->rows,
            .count = batch->count,
            .micro_batch_size = batch->micro_batch_size,
            .max_tokens = batch->max_tokens_per_micro,
            .backward = backward};
  treadle_status status;
  if (!treadle_pass_window(t->pass))
    return treadle_fail(TREADLE_STATE, "the trainer has no weights: load them first");
  if (!batch->count || !batch->micro_batch_size == !batch->max_tokens_per_micro ||
      batch->max_tokens_per_micro < 0)
    REFUSE("%zu rows in micro batches of %zu rows, or of %lld tokens: 1 row at least, and one of the two",
           batch->count, batch->micro_batch_size, (long long)batch->max_tokens_per_micro);
  TREADLE_NEED(batch->rows);
  status = check_rows(&w, &loss.tokens);
  w.scale = (float)(1.0 / (double)loss.tokens);
  if (!status) status = take_share(&w);
  TRY(treadle_train_agree(t, status));
  TRY(treadle_train_agree(t, run_step(&w)));
  TRY(share_loss(&w));
  loss.nll = w.nll;
  TREADLE_GIVE(loss_p, &loss);
out:
  return status;
}

treadle_status treadle_trainer_gradients(treadle_trainer *t, const treadle_train_batch *batch,
                                         treadle_loss *loss_p) {
  treadle_train_batch b;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED_SIZED(loss_p);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(run(t, &b, true, loss_p));
out:
  return status;
}

treadle_status treadle_trainer_loss(treadle_trainer *t, const treadle_train_batch *batch,
                                    treadle_loss *loss_p) {
  treadle_train_batch b;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED_SIZED(loss_p);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(run(t, &b, false, loss_p));
out:
  return status;
}

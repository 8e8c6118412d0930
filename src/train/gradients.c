#include "train/trainer.h"

#include "base/argument.h"
#include "base/sized.h"

#include <string.h>

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

/* Rows side by side. The last token of a row goes through the layers for nothing, so it stays away. */
static treadle_status fill(treadle_trainer *t, const treadle_train_row *rows, size_t count,
                           treadle_train_step *batch) {
  treadle_train_buffers *own = &t->buffers;
  int64_t at = 0, counted = 0, blocks = 0;
  for (size_t r = 0; r < count; r++) {
    int64_t tokens = (int64_t)rows[r].count - 1;
    if (at + tokens > t->rows)
      return treadle_fail(TREADLE_REFUSED, "a micro batch of %zu rows has more than %lld tokens", count,
                          (long long)t->rows);
    own->spans[r] = (treadle_pass_span){.rows = tokens, .table = own->table + blocks};
    for (int64_t i = 0; i < tokens; i++, at++) {
      own->tokens[at] = rows[r].ids[i];
      if (!rows[r].mask[i + 1]) continue;
      own->which[counted] = (int32_t)at;
      own->targets[counted++] = rows[r].ids[i + 1];
    }
    blocks += (tokens + t->pass->options.block_tokens - 1) / t->pass->options.block_tokens;
  }
  batch->step = (treadle_pass_step){
      .tokens = own->tokens, .rows = at, .stretches = own->spans, .stretch_count = (int32_t)count};
  batch->counted = counted;
  batch->which = own->which;
  batch->targets = own->targets;
  return TREADLE_OK;
}

static void keep_stream(treadle_trainer *t, int32_t layer, int64_t rows) {
  int64_t hidden = t->transformer->hidden;
  memcpy(t->buffers.kept + layer * t->rows * hidden, t->pass->buffers.x,
         (size_t)(rows * hidden) * sizeof(float));
}

static treadle_status run_batch(treadle_trainer *t, const treadle_train_step *batch, double *nll_p) {
  int32_t layers = (int32_t)t->transformer->layers;
  treadle_status status;
  TRY(treadle_pass_embed(t->pass, &batch->step));
  for (int32_t l = 0; l < layers; l++) {
    keep_stream(t, l, batch->step.rows);
    TRY(treadle_pass_layer(t->pass, l, &batch->step));
  }
  TRY(treadle_back_head(t, batch, nll_p));
  for (int32_t l = layers; l-- > 0;) TRY(treadle_back_layer(t, l, &batch->step));
  treadle_back_embed(t, &batch->step);
out:
  return status;
}

treadle_status treadle_trainer_gradients(treadle_trainer *t, const treadle_train_row *rows, size_t count,
                                         size_t micro_batch, treadle_loss *loss_p) {
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED_SIZED(loss_p);
  if (!treadle_pass_window(t->pass))
    return treadle_fail(TREADLE_STATE,
                        "treadle_trainer_gradients: the trainer has no weights: load them first");
  if (!count || !micro_batch)
    REFUSE("%zu rows in micro batches of %zu: 1 is the least", count, micro_batch);
  TREADLE_NEED(rows);
  for (size_t r = 0; r < count; r++) {
    TRY(check_row(t, &rows[r], r));
    loss.tokens += counted_of(&rows[r]);
  }
  if (!loss.tokens) REFUSE("no token of %zu rows counts", count);
  memset(t->window, 0, t->grad_bytes);
  if (t->buffers.tied)
    memset(t->buffers.tied, 0,
           (size_t)(t->transformer->vocabulary * t->transformer->hidden) * sizeof(float));
  for (size_t first = 0; first < count; first += micro_batch) {
    treadle_train_step batch = {.scale = (float)(1.0 / (double)loss.tokens)};
    size_t some = count - first < micro_batch ? count - first : micro_batch;
    TRY(fill(t, rows + first, some, &batch));
    TRY(run_batch(t, &batch, &loss.nll));
  }
  treadle_back_tie(t);
  TREADLE_GIVE(loss_p, &loss);
out:
  return status;
}

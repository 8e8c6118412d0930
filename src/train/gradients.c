/* Rows in micro batches, forward and backward through the layers of this rank, in the order of the pipeline. */
#include "train/trainer.h"

#include "base/alloc.h"
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
  const int32_t *shared;        /* [count] as in the batch; NULL: nothing is */
  size_t from;                  /* the first of these rows in the batch */
  const treadle_policy *policy; /* NULL: the loss is the mean of -log p */
  size_t *numbers;              /* [rows of the batch + 1] of the first counted token of each */
  float *logprobs, *entropies;  /* [counted tokens of the batch] */
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
  if ((int64_t)count > w->t->most_sequences)
    REFUSE("rows %zu to %zu, a micro batch, are %zu; at most %lld", first, first + count - 1, count,
           (long long)w->t->most_sequences);
  if (tokens > w->t->rows)
    REFUSE("rows %zu to %zu, a micro batch, have %lld tokens; at most %lld", first, first + count - 1,
           (long long)tokens, (long long)w->t->rows);
  return TREADLE_OK;
}

/* What a row shares is the whole that the row before it shares, and neither of them has tokens in it that count. */
static treadle_status check_shared(const work *w, size_t number) {
  const treadle_train_row *row = &w->rows[number], *before = number ? row - 1 : NULL;
  const int64_t shared = w->shared[number];
  if (!shared) return TREADLE_OK;
  if (!before || shared < 1 || shared > (int64_t)row->count || shared > (int64_t)before->count ||
      (w->shared[number - 1] && w->shared[number - 1] != shared))
    REFUSE("row %zu shares %lld tokens with the row before it: 1 to what both have, and as many as that "
           "one shares",
           number, (long long)shared);
  if (memcmp(row->ids, before->ids, (size_t)shared * sizeof *row->ids) != 0)
    REFUSE("row %zu shares %lld tokens with the row before it, and they are others", number,
           (long long)shared);
  for (int64_t i = 0; i < shared; i++)
    if (row->mask[i] || before->mask[i])
      REFUSE("row %zu shares %lld tokens, and token %lld counts", number, (long long)shared, (long long)i);
  return TREADLE_OK;
}

/* Checks all rows; *tokens_p: how many tokens count. */
static treadle_status check_rows(const work *w, int64_t *tokens_p) {
  treadle_status status = TREADLE_OK;
  *tokens_p = 0;
  for (size_t r = 0; r < w->count; r++) {
    TRY(check_row(w->t, &w->rows[r], r));
    if (w->shared) TRY(check_shared(w, r));
    *tokens_p += counted_of(&w->rows[r]);
  }
  if (!*tokens_p && !w->policy) REFUSE("no token of %zu rows counts", w->count);
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
  w->from = from;
  if (w->shared) w->shared += from;
  w->count = (to < w->count ? to : w->count) - from;
  w->micro_batches = (int32_t)(end - first);
  return w->backward ? check_pipeline(w) : TREADLE_OK;
}

/* A micro batch while it is put together. */
typedef struct filling {
  const work *w;
  int64_t at, counted;     /* rows of the step; tokens that count */
  int64_t blocks, entries; /* of keys and values; of the table */
  int32_t spans;
  int64_t prompt, prompt_at; /* tokens that the rows at hand have in common, and where they lie: NULL: 0 */
  const int32_t *prompt_table;
} filling;

static int64_t block_tokens(const work *w) { return w->t->pass->options.block_tokens; }

/* A stretch of `count` tokens from position `from` on; what comes before is the prompt's. */
static void add_stretch(filling *f, const int32_t *ids, int64_t from, int64_t count) {
  treadle_train_buffers *own = &f->w->t->buffers;
  const int64_t block = block_tokens(f->w), whole = from / block, tail = from % block;
  treadle_pass_span span = {.rows = count,
                            .position = from,
                            .table = own->table + f->entries,
                            .tail_row = f->prompt_at + whole * block,
                            .tail_count = tail};
  if (!count) return;
  for (int64_t i = 0; i < whole; i++) own->table[f->entries++] = f->prompt_table[i];
  for (int64_t i = 0; i < (tail + count + block - 1) / block; i++)
    own->table[f->entries++] = (int32_t)f->blocks++;
  own->spans[f->spans++] = span;
  memcpy(own->tokens + f->at, ids + from, (size_t)count * sizeof *ids);
  f->at += count;
}

/* Tokens of a row that count: each takes its logits from the row of the one before it. */
static void add_targets(filling *f, size_t number, int64_t from, int64_t first) {
  const work *w = f->w;
  const treadle_train_row *row = &w->rows[number];
  treadle_train_buffers *own = &w->t->buffers;
  size_t n = w->policy ? w->numbers[w->from + number] : 0;
  for (int64_t i = 1; i < (int64_t)row->count; i++) {
    if (!row->mask[i]) continue;
    own->which[f->counted] = (int32_t)(i - 1 < from ? f->prompt_at + i - 1 : first + i - 1 - from);
    own->targets[f->counted] = row->ids[i];
    if (w->policy) own->places[f->counted] = (treadle_train_place){w->from + number, (size_t)i, n++};
    f->counted++;
  }
}

/* How many tokens row `number`, of a micro batch that begins at `begin` and ends at `end`, has in common with those around it. */
static int64_t shared_of(const work *w, size_t number, size_t begin, size_t end) {
  if (!w->shared) return 0;
  if (number > begin && w->shared[number]) return w->shared[number];
  return number + 1 < end ? w->shared[number + 1] : 0;
}

/* Rows side by side. The last token of a row goes through the layers for nothing, so it stays away. */
static treadle_train_step fill(const work *w, int32_t micro_batch) {
  treadle_trainer *t = w->t;
  treadle_train_buffers *own = &t->buffers;
  size_t begin = first_of(w, micro_batch), end = begin + rows_from(w, begin);
  filling f = {.w = w};
  for (size_t r = begin; r < end; r++) {
    const treadle_train_row *row = &w->rows[r];
    const int64_t shared = shared_of(w, r, begin, end), tokens = (int64_t)row->count - 1;
    if (shared && (r == begin || !w->shared[r])) { /* the first that has it */
      f.prompt_table = own->table + f.entries;
      f.prompt_at = f.at;
      add_stretch(&f, row->ids, 0, shared);
    }
    const int64_t first = f.at;
    add_stretch(&f, row->ids, shared, tokens - shared > 0 ? tokens - shared : 0);
    add_targets(&f, r, shared, first);
  }
  return (treadle_train_step){
      .step = {.tokens = own->tokens, .rows = f.at, .stretches = own->spans, .stretch_count = f.spans},
      .counted = f.counted,
      .which = own->which,
      .targets = own->targets,
      .scale = w->scale,
      .policy = w->policy,
      .places = own->places,
      .logprobs = w->logprobs,
      .entropies = w->entropies};
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

/* The number of the first counted token of each row. */
static treadle_status number_tokens(work *w) {
  size_t number = 0;
  for (size_t r = 0; r < w->count; r++) {
    w->numbers[r] = number;
    number += (size_t)counted_of(&w->rows[r]);
  }
  w->numbers[w->count] = number;
  return TREADLE_OK;
}

/* Values of tokens, from the last stages that have them, one of each replica, to all. Each says a piece of its own at a time. */
static treadle_status share_values(const work *w, float *values, size_t counted) {
  enum { PIECE = 1000 };
  typedef struct said {
    uint64_t first, count;
    float values[PIECE];
  } said;
  treadle_trainer *t = w->t;
  const bool speaks =
      t->stage == t->pipeline.stages - 1 && (!t->pass->ranks.stage || t->pass->ranks.stage->index == 0);
  size_t at = w->numbers[w->from], end = w->numbers[w->from + w->count], left = counted;
  treadle_status status = TREADLE_OK;
  if (!t->ranks.board) return TREADLE_OK;
  while (left) {
    said mine = {.first = at, .count = speaks ? (end - at < PIECE ? end - at : PIECE) : 0};
    memcpy(mine.values, values + at, (size_t)mine.count * sizeof *values);
    TRY(treadle_group_say(t->ranks.group, &mine, sizeof mine));
    at += (size_t)mine.count;
    for (int rank = 0; rank < treadle_group_size(t->ranks.group); rank++) {
      const said *other = treadle_group_said(t->ranks.group, rank);
      if (other->count > left)
        return treadle_fail(TREADLE_PEER, "rank %d has more values than there are", rank);
      memcpy(values + other->first, other->values, (size_t)other->count * sizeof *values);
      left -= (size_t)other->count;
    }
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

static treadle_status check_batch_options(const work *w) {
  if (!treadle_pass_window(w->t->pass))
    return treadle_fail(TREADLE_STATE, "the trainer has no weights: load them first");
  if (!w->count || !w->micro_batch_size == !w->max_tokens || w->max_tokens < 0)
    REFUSE("%zu rows in micro batches of %zu rows, or of %lld tokens: 1 row at least, and one of the two",
           w->count, w->micro_batch_size, (long long)w->max_tokens);
  return TREADLE_OK;
}

/* Rows through the layers; *tokens_p counts. */
static treadle_status run(work *w, int64_t *tokens_p) {
  treadle_trainer *t = w->t;
  treadle_status status = check_rows(w, tokens_p);
  w->scale = *tokens_p ? (float)(1.0 / (double)*tokens_p) : 0;
  if (!status && w->policy) status = number_tokens(w);
  if (!status) status = take_share(w);
  TRY(treadle_train_agree(t, status));
  TRY(treadle_train_agree(t, run_step(w)));
out:
  return status;
}

static work work_of(treadle_trainer *t, const treadle_train_batch *batch, bool backward) {
  return (work){.t = t,
                .rows = batch->rows,
                .count = batch->count,
                .shared = batch->shared,
                .micro_batch_size = batch->micro_batch_size,
                .max_tokens = batch->max_tokens_per_micro,
                .backward = backward};
}

static treadle_status find(treadle_trainer *t, const treadle_train_batch *batch, bool backward,
                           treadle_loss *loss_p) {
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  work w = work_of(t, batch, backward);
  treadle_status status;
  TRY(check_batch_options(&w));
  TREADLE_NEED(batch->rows);
  TRY(run(&w, &loss.tokens));
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
  TRY(find(t, &b, true, loss_p));
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
  TRY(find(t, &b, false, loss_p));
out:
  return status;
}

/* ---- Policies ---------------------------------------------------------------------------------------------- */

static treadle_status check_policy(const treadle_policy *p, bool backward, const float *entropies) {
  if (!(p->temperature >= 0) || p->temperature > 1e6)
    REFUSE("temperature %g: above 0, at most 1e6; 0: 1", p->temperature);
  if (backward && !p->differentiate) REFUSE("gradients of a policy need differentiate, which is NULL");
  if (!p->entropy && entropies) REFUSE("entropies are to be written, and policy.entropy is false");
  return TREADLE_OK;
}

static treadle_status run_policy(work *w, const treadle_policy *policy, float *logprobs, float *entropies) {
  int64_t tokens;
  float *values = NULL;
  size_t counted = 0;
  treadle_status status;
  TRY(check_batch_options(w));
  TREADLE_NEED(w->rows);
  for (size_t r = 0; r < w->count; r++) counted += w->rows[r].mask ? (size_t)counted_of(&w->rows[r]) : 0;
  w->policy = policy;
  w->numbers = treadle_alloc_array(w->count + 1, sizeof *w->numbers);
  values = treadle_alloc_array(2 * counted + 1, sizeof *values);
  if (!w->numbers || !values)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu log-probabilities", counted);
  TRY(treadle_train_agree(w->t, status));
  memset(values, 0, (2 * counted + 1) * sizeof *values);
  w->logprobs = values;
  w->entropies = policy->entropy ? values + counted : NULL;
  TRY(run(w, &tokens));
  TRY(share_values(w, values, counted));
  if (policy->entropy) TRY(share_values(w, values + counted, counted));
  if (logprobs) memcpy(logprobs, values, counted * sizeof *values);
  if (entropies) memcpy(entropies, values + counted, counted * sizeof *values);
out:
  treadle_free(w->numbers);
  treadle_free(values);
  return status;
}

treadle_status treadle_trainer_policy_gradients(treadle_trainer *t, const treadle_train_batch *batch,
                                                const treadle_policy *policy, float *logprobs,
                                                float *entropies) {
  treadle_train_batch b;
  treadle_policy p;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED(policy);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(TREADLE_TAKE(policy, &p));
  TRY(check_policy(&p, true, entropies));
  work w = work_of(t, &b, true);
  TRY(run_policy(&w, &p, logprobs, entropies));
out:
  return status;
}

treadle_status treadle_trainer_logprobs(treadle_trainer *t, const treadle_train_batch *batch,
                                        const treadle_policy *policy, const void *weights, float *logprobs,
                                        float *entropies) {
  treadle_train_batch b;
  treadle_policy p;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED(policy);
  TREADLE_NEED(logprobs);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(TREADLE_TAKE(policy, &p));
  TRY(check_policy(&p, false, entropies));
  work w = work_of(t, &b, false);
  TRY(check_batch_options(&w));
  if (weights) status = treadle_train_bind_weights(t, weights);
  if (weights) TRY(treadle_train_agree(t, status));
  status = run_policy(&w, &p, logprobs, entropies);
  if (weights) { /* back to its own, whatever has come of it */
    treadle_status bound = treadle_train_bind(t);
    if (!status) status = treadle_train_agree(t, bound);
  }
out:
  return status;
}

/* Loss, head and embedding. Logits are there for TREADLE_HEAD_ROWS tokens at a time, of those alone whose next token counts; the gradient
 * of a logit takes its place. Where the vocabulary is divided among ranks, each has whole rows of logits, and goes on with its own
 * columns of them.
 *
 * Order of additions: the gradient of the head's input in leaves of TREADLE_HEAD_LEAF tokens of the vocabulary. */
#include "train/back_head.h"

#include "pass/kept.h"
#include "pass/logprob.h"
#include "train/back_product.h"
#include "train/back_score.h"
#include "train/back_sum.h"
#include "train/context.h"
#include "train/gradients.h"
#include "train/ranks.h"

#include <string.h>

typedef struct loss_rows {
  treadle_back *back;
  const treadle_train_step *batch;
  float *logits; /* [count, vocabulary] */
  int64_t first, count;
} loss_rows;

static loss_rows rows_from(treadle_back *back, const treadle_train_step *batch, int64_t first) {
  const int64_t left = batch->counted - first;
  return (loss_rows){.back = back,
                     .batch = batch,
                     .logits = back->pass->buffers.logits,
                     .first = first,
                     .count = left < TREADLE_HEAD_ROWS ? left : TREADLE_HEAD_ROWS};
}

static void back_loss(void *context, int32_t index, int32_t count) {
  const loss_rows *w = context;
  const treadle_back *back = w->back;
  const treadle_weight *head = &back->own_head;
  int64_t end = w->count * (index + 1) / count, vocabulary = back->transformer->vocabulary;
  for (int64_t i = w->count * index / count; i < end; i++) {
    int64_t target = w->batch->targets[w->first + i] - head->first_row;
    back->ops->loss(w->logits + i * vocabulary + head->first_row, head->row_count,
                    (float)back->lse_rows[i].lse, target < head->row_count ? target : -1,
                    w->batch->work->scale);
  }
}

/* ---- Of log-probabilities ---- */

static float temperature_of(const treadle_train_step *batch) {
  const double temperature = batch->work->forward.temperature;
  return temperature > 0 ? (float)temperature : 1;
}

static void find_entropies(void *context, int32_t index, int32_t count) {
  const loss_rows *w = context;
  const treadle_back *back = w->back;
  const int64_t vocabulary = back->transformer->vocabulary, end = w->count * (index + 1) / count;
  for (int64_t i = w->count * index / count; i < end; i++)
    w->back->slopes[i].entropy = back->ops->entropy(w->logits + i * vocabulary, vocabulary,
                                                    (float)back->lse_rows[i].lse, temperature_of(w->batch));
}

static void back_logprobs(void *context, int32_t index, int32_t count) {
  const loss_rows *w = context;
  const treadle_back *back = w->back;
  const treadle_weight *head = &back->own_head;
  int64_t end = w->count * (index + 1) / count, vocabulary = back->transformer->vocabulary;
  for (int64_t i = w->count * index / count; i < end; i++) {
    const int64_t target = w->batch->targets[w->first + i] - head->first_row;
    const treadle_policy_row row = {.lse = (float)back->lse_rows[i].lse,
                                    .temperature = temperature_of(w->batch),
                                    .entropy = (float)back->slopes[i].entropy,
                                    .by_logprob = (float)back->slopes[i].by_logprob,
                                    .by_entropy = (float)back->slopes[i].by_entropy,
                                    .target = target < head->row_count ? target : -1};
    back->ops->policy(w->logits + i * vocabulary + head->first_row, head->row_count, &row);
  }
}

static bool has_cuts(const treadle_train_work *w) { return w->kept_first || w->forward.never_count; }

/* The ids that a token was drawn from; NULL: all but those that are never drawn. */
static const int32_t *kept_of(const treadle_train_work *w, const treadle_train_place *place,
                              size_t *count_p) {
  const treadle_train_row *row = &w->rows[place->row];
  *count_p = w->kept_first
                 ? (size_t)w->values.kept_counts[row->first + (int64_t)place->token - row->prompt_count]
                 : 0;
  return *count_p ? w->values.kept + w->kept_first[place->number] : NULL;
}

/* Takes out of the rows what tokens were not drawn from. */
static void cut_rows(void *context, int32_t index, int32_t count) {
  const loss_rows *w = context;
  const treadle_train_work *work = w->batch->work;
  const float temperature = temperature_of(w->batch);
  const int64_t vocabulary = w->back->transformer->vocabulary, end = w->count * (index + 1) / count;
  for (int64_t i = w->count * index / count; i < end; i++) {
    size_t kept;
    const int32_t *ids = kept_of(work, &w->batch->places[w->first + i], &kept);
    float *row = w->logits + i * vocabulary;
    if (ids)
      treadle_kept_leave(row, vocabulary, ids, kept, temperature);
    else
      treadle_kept_without(row, vocabulary, work->forward.never, work->forward.never_count, temperature);
  }
}

/* Log-probabilities and entropies of these tokens; and what the loss says of them. */
static void take_logprobs(treadle_back *back, loss_rows *w, bool slopes_too) {
  treadle_train_work *work = w->batch->work;
  const int64_t vocabulary = back->transformer->vocabulary;
  const float temperature = temperature_of(w->batch);
  for (int64_t i = 0; i < w->count; i++)
    back->lse_rows[i] = (treadle_lse_row){.logits = w->logits + i * vocabulary, .temperature = temperature};
  if (has_cuts(work)) treadle_team_run(back->pass->team, cut_rows, w);
  treadle_lse_rows_run(back->pass->team, back->lse_rows, w->count, vocabulary);
  if (work->entropies) treadle_team_run(back->pass->team, find_entropies, w);
  for (int64_t i = 0; i < w->count; i++) {
    const treadle_train_place *place = &w->batch->places[w->first + i];
    int32_t target = w->batch->targets[w->first + i];
    float logprob = treadle_logprob(w->logits[i * vocabulary + target], temperature, back->lse_rows[i].lse);
    treadle_train_slopes *slopes = &back->slopes[i];
    if (!(logprob > -1e30f))
      treadle_train_note(
          work, treadle_fail(TREADLE_REFUSED,
                             "the log-probability of token %zu of row %zu is not finite: weights or "
                             "activations are not",
                             place->token, place->row));
    if (!work->entropies) slopes->entropy = 0;
    work->logprobs[place->number] = logprob;
    if (work->entropies) work->entropies[place->number] = (float)slopes->entropy;
    slopes->by_logprob = slopes->by_entropy = 0;
    if (slopes_too) treadle_train_slope(work, place, slopes);
  }
}

/* -log p of these tokens. */
static void take_loss(treadle_back *back, loss_rows *w) {
  treadle_train_work *work = w->batch->work;
  int64_t vocabulary = back->transformer->vocabulary;
  for (int64_t i = 0; i < w->count; i++)
    back->lse_rows[i] = (treadle_lse_row){.logits = w->logits + i * vocabulary, .temperature = 1};
  treadle_lse_rows_run(back->pass->team, back->lse_rows, w->count, vocabulary);
  for (int64_t i = 0; i < w->count; i++) {
    int32_t target = w->batch->targets[w->first + i];
    double nll = back->lse_rows[i].lse - (double)w->logits[i * vocabulary + target];
    if (!(nll < 1e30))
      treadle_train_note(
          work, treadle_fail(TREADLE_REFUSED,
                             "the loss of token %d is not finite: weights or activations are not", target));
    const size_t number = w->batch->places[w->first + i].number;
    work->logprobs[number] = treadle_logprob(w->logits[i * vocabulary + target], 1, back->lse_rows[i].lse);
    work->own[number] = nll;
  }
}

treadle_status treadle_back_head_rows(const treadle_back *back, float **x_p, const int32_t **which_p,
                                      int64_t rows) {
  treadle_status status = TREADLE_OK;
  if (back->context.ranks == 1) return TREADLE_OK;
  TRY(treadle_context_take_rows(back, *x_p, *which_p, rows));
  *x_p = back->buffers.head_x;
  *which_p = NULL;
out:
  return status;
}

bool treadle_back_head_is_silent(const treadle_back *back) {
  return back->pass->ranks.within && !back->pass->ranks.speaks_head && back->context.ranks == 1;
}

/* buffers.logits of the pass: whole rows, of rows which[i] of x. buffers.normed: what the head multiplies. */
static treadle_status find_logits(treadle_back *back, float *x, const int32_t *which, int64_t rows) {
  treadle_pass *p = back->pass;
  const treadle_weight *head = &back->own_head;
  const treadle_pass_buffers own = p->buffers;
  const bool silent = treadle_back_head_is_silent(back);
  treadle_product product = {.x = own.normed,
                             .rows = rows,
                             .stride = back->transformer->hidden,
                             .leaves = 1,
                             .terms = {{head, 0}},
                             .terms_count = 1,
                             .y = own.logits,
                             .y_stride = back->transformer->vocabulary};
  const treadle_exchange_part part = {.of = back->transformer->vocabulary,
                                      .first = silent ? 0 : head->first_row,
                                      .end = silent ? 0 : head->first_row + head->row_count,
                                      .rows = rows,
                                      .columns = head->row_count};
  treadle_status status;
  TRY(treadle_back_head_rows(back, &x, &which, rows));
  if (back->logits) {
    product.y = treadle_exchange_room(back->logits);
    product.y_stride = head->row_count;
  }
  p->buffers.x = x;
  treadle_pass_norm(p, &p->final_norm, which, rows);
  p->buffers = own;
  TRY(treadle_pass_product(p, &product));
  if (back->logits) TRY(treadle_parallel_gather(back->logits, &part, own.logits, "logits"));
out:
  return status;
}

treadle_leaf_range treadle_back_head_leaves(const treadle_back *back) {
  const treadle_weight *head = &back->own_head;
  int64_t leaf = (head->rows + back->head_leaves - 1) / back->head_leaves;
  if (back->head_leaves > 1) leaf = TREADLE_HEAD_LEAF;
  return (treadle_leaf_range){(int32_t)(head->first_row / leaf),
                              (int32_t)((head->row_count + leaf - 1) / leaf), (int32_t)back->head_leaves};
}

/* buffers.dnormed: of what the head multiplied. */
static treadle_status back_logits(treadle_back *back, const treadle_back_term *head, int64_t rows) {
  treadle_leaf_range leaves = treadle_back_head_leaves(back);
  float *dnormed = back->buffers.dnormed;
  const treadle_back_inputs inputs = {.terms = head,
                                      .count = 1,
                                      .leaves = leaves,
                                      .rows = rows,
                                      .dx = back->head_sums ? treadle_exchange_room(back->head_sums)
                                                            : dnormed,
                                      .stride = back->transformer->hidden};
  treadle_status status;
  if (leaves.leaves) TRY(treadle_back_input(back, &inputs));
  if (treadle_back_head_is_silent(back)) leaves.leaves = 0;
  if (back->head_sums)
    TRY(treadle_parallel_sum(back->head_sums, leaves, rows, inputs.stride, dnormed,
                             "gradients of the head's input"));
out:
  return status;
}

/* The caller's loss sees whole rows, and logits are there for some tokens at a time: their log-probabilities come before
 * the gradients. */
static treadle_status find_own_loss(treadle_back *back, const treadle_train_step *batch, float *x) {
  treadle_status status = TREADLE_OK;
  for (int64_t first = 0; first < batch->counted; first += TREADLE_HEAD_ROWS) {
    loss_rows w = rows_from(back, batch, first);
    TRY(find_logits(back, x, batch->which + first, w.count));
    take_logprobs(back, &w, false);
  }
  treadle_train_own_loss(batch->work, batch);
out:
  return status;
}

static void take_rows(treadle_back *back, loss_rows *w) {
  const treadle_train_loss loss = w->batch->work->loss;
  if (loss == TREADLE_LOSS_NLL)
    take_loss(back, w);
  else
    take_logprobs(back, w, loss != TREADLE_LOSS_NONE);
}

treadle_status treadle_back_head(treadle_back *back, const treadle_train_step *batch, float *x) {
  if (back->transformer->head < 0) return treadle_back_score(back, batch, x);
  const treadle_pass *p = back->pass;
  const treadle_train_buffers *own = &back->buffers;
  const int64_t hidden = back->transformer->hidden, vocabulary = back->transformer->vocabulary;
  const bool nll = batch->work->loss == TREADLE_LOSS_NLL;
  treadle_status status = TREADLE_OK;
  memset(own->dx, 0, (size_t)(batch->step.rows * hidden) * sizeof(float));
  if (batch->work->loss == TREADLE_LOSS_OWN) TRY(find_own_loss(back, batch, x));
  for (int64_t first = 0; first < batch->counted; first += TREADLE_HEAD_ROWS) {
    loss_rows w = rows_from(back, batch, first);
    const treadle_back_term head = {&back->own_head, w.logits + back->own_head.first_row, vocabulary,
                                    back->head_leaves > 1 ? TREADLE_HEAD_LEAF : p->head.rows};
    const treadle_back_norm_rows norm = {.norm = &p->final_norm,
                                         .grad = &back->grad_final_norm,
                                         .x = back->context.ranks > 1 ? own->head_x : x,
                                         .dy = own->dnormed,
                                         .dx = own->dx,
                                         .which = batch->which + first,
                                         .apart = own->normed, /* which only layers use */
                                         .rows = w.count};
    TRY(find_logits(back, x, batch->which + first, w.count));
    take_rows(back, &w);
    treadle_team_run(back->pass->team, nll ? back_loss : back_logprobs, &w);
    TRY(treadle_back_take_rows(back, p->buffers.normed, hidden, hidden, w.count));
    TRY(treadle_back_weight(back, &head, &back->own_grad_head, w.count));
    TRY(back_logits(back, &head, w.count));
    TRY(treadle_back_norm(back, &norm));
  }
out:
  return status;
}

treadle_status treadle_back_loss(treadle_back *back, const treadle_train_step *batch, float *x) {
  treadle_status status = TREADLE_OK;
  if (back->transformer->head < 0) return treadle_back_scores(back, batch, x);
  if (batch->work->loss == TREADLE_LOSS_OWN) return find_own_loss(back, batch, x);
  for (int64_t first = 0; first < batch->counted; first += TREADLE_HEAD_ROWS) {
    loss_rows w = rows_from(back, batch, first);
    TRY(find_logits(back, x, batch->which + first, w.count));
    take_rows(back, &w);
  }
out:
  return status;
}

/* ---- The embedding ------------------------------------------------------------------------------------ */

typedef struct embedding {
  treadle_back *back;
  const int32_t *tokens;  /* of all rows */
  treadle_row_range rows; /* that are here */
} embedding;

/* Rows [rows.first, rows.end) of the step, from `row` on as many as lie behind each other. */
static const float *rows_at(const embedding *w, int64_t row, int64_t *run_p) {
  if (w->back->context.ranks > 1) return treadle_context_row(w->back, w->rows, row, run_p);
  *run_p = w->rows.end - row;
  return w->back->buffers.dx + row * w->back->transformer->hidden;
}

/* Tokens in their order; each thread of each context parallel rank has some columns of all of them. */
static void back_rows(void *context, int32_t index, int32_t count) {
  const embedding *w = context;
  treadle_back *back = w->back;
  const int64_t hidden = back->transformer->hidden, parts = (int64_t)count * back->context.ranks,
                part = (int64_t)back->context.index * count + index;
  const int64_t first = hidden * part / parts, end = hidden * (part + 1) / parts;
  for (int64_t r = w->rows.first, run; r < w->rows.end; r += run) {
    const float *dx = rows_at(w, r, &run);
    for (int64_t i = 0; i < run; i++, dx += hidden) {
      int64_t row = w->tokens[r + i] - back->grad_embed.first_row;
      if (row < 0 || row >= back->grad_embed.row_count) continue;
      back->pass->row_ops->add(treadle_back_grad(back, &back->grad_embed, row) + first, dx + first,
                               TREADLE_FP32, end - first);
    }
  }
}

treadle_status treadle_back_embed(treadle_back *back, const treadle_pass_step *step) {
  const int64_t hidden = back->transformer->hidden;
  const bool divided = back->context.ranks > 1;
  const int64_t rows = divided ? back->context.now : step->rows,
                some = divided ? TREADLE_CONTEXT_ROWS : rows;
  const treadle_context_matrix dx = {back->buffers.dx, hidden, hidden};
  embedding w = {.back = back, .tokens = step->tokens - step->before};
  treadle_status status = TREADLE_OK;
  for (int64_t first = 0; first < rows; first += some) {
    w.rows = (treadle_row_range){first, first + some < rows ? first + some : rows};
    if (divided) TRY(treadle_context_bring(back, w.rows, &dx, 1, "rows for the embedding's gradient"));
    treadle_team_run(back->pass->team, back_rows, &w);
  }
out:
  return status;
}

void treadle_back_tie(treadle_back *back) {
  int64_t hidden = back->transformer->hidden;
  for (int64_t row = 0; back->buffers.tied && row < back->grad_embed.row_count; row++)
    back->pass->row_ops->add(treadle_back_grad(back, &back->grad_embed, row),
                             back->buffers.tied + row * hidden, TREADLE_FP32, hidden);
}

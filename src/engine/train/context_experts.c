/* A block's rows of one rank lie before those of the next, as tokens do, so they are in order when they are brought one
 * rank after the other. */
#include "train/context_experts.h"

#include "train/context.h"

#include <string.h>

/* ---- Choices ------------------------------------------------------------------------------------------- */

treadle_status treadle_context_count_choices(const treadle_back *back, const int64_t **begin_p) {
  const int64_t experts = back->transformer->routing.experts, *own = back->pass->buffers.expert_begin;
  const treadle_train_choices *c = &back->context.choices;
  treadle_exchange *exchange = back->pass->context.exchange;
  int64_t there;
  treadle_status status = TREADLE_OK;
  *begin_p = own;
  if (back->context.ranks == 1) return TREADLE_OK;
  float *room = treadle_exchange_room(exchange); /* numbers of rows are whole in fp32 */
  for (int64_t e = 0; e < experts; e++) room[e] = (float)(own[e + 1] - own[e]);
  TRY(treadle_context_meet(back, 1, experts, "choices of experts"));
  memset(c->before, 0, (size_t)experts * sizeof *c->before);
  memset(c->begin, 0, (size_t)(experts + 1) * sizeof *c->begin);
  for (int32_t m = 0; m < back->context.ranks; m++) {
    const float *counts = treadle_parallel_slot(exchange, m, &there);
    for (int64_t e = 0; e < experts; e++) {
      c->begin[e + 1] += (int64_t)counts[e];
      if (m < back->context.index) c->before[e] += (int64_t)counts[e];
    }
  }
  for (int64_t e = 0; e < experts; e++) c->begin[e + 1] += c->begin[e];
  *begin_p = c->begin;
out:
  return status;
}

/* ---- Blocks -------------------------------------------------------------------------------------------- */

static int64_t clamp(int64_t row, int64_t rows) { return row < 0 ? 0 : row > rows ? rows : row; }

treadle_status treadle_context_each_block(const treadle_back *back, int32_t layer, int64_t rows,
                                          treadle_expert_work work, void *context) {
  const treadle_train_choices *c = &back->context.choices;
  treadle_pass *p = back->pass;
  treadle_status status = TREADLE_OK;
  if (back->context.ranks == 1) return treadle_pass_each_block(p, layer, rows, work, context);
  for (int32_t e = 0; e < p->transformer->routing.experts; e++) {
    if (!treadle_pass_brings(p, layer, e)) continue;
    const treadle_expert_rows own = treadle_pass_rows_of(p, layer, e, rows);
    const int64_t all = c->begin[e + 1] - c->begin[e];
    for (int64_t at = -c->before[e]; at < all - c->before[e]; at += TREADLE_EXPERT_ROWS) {
      const int64_t first = clamp(at, own.count);
      treadle_expert_rows block = own;
      block.places += first;
      block.count = clamp(at + TREADLE_EXPERT_ROWS, own.count) - first;
      TRY(work(context, layer, &block));
    }
  }
out:
  return status;
}

/* ---- Gradients ----------------------------------------------------------------------------------------- */

enum { TERMS = 2 };

typedef struct block_rows {
  const treadle_back *back;
  const treadle_back_rows *x;
  const treadle_back_term *terms;
  int count;
  treadle_row_range shares[TERMS]; /* of the rows of each weight */
  int64_t columns, kept;           /* that a row brings; that are needed here */
} block_rows;

static float *copy(float *to, const float *from, int64_t columns) {
  memcpy(to, from, (size_t)columns * sizeof *to);
  return to + columns;
}

static treadle_status bring(const block_rows *w) {
  float *to = treadle_exchange_room(w->back->pass->context.exchange);
  for (int64_t row = 0; row < w->x->rows; row++) {
    to = copy(to, w->x->x + row * w->x->stride, w->x->columns);
    for (int i = 0; i < w->count; i++)
      to = copy(to, w->terms[i].dy + row * w->terms[i].stride, w->terms[i].weight->row_count);
  }
  return treadle_context_meet(w->back, w->x->rows, w->columns, "rows for gradients of experts");
}

/* From a row of all columns, those that are needed here. */
static float *keep(const block_rows *w, float *to, const float *from) {
  to = copy(to, from, w->x->columns);
  from += w->x->columns;
  for (int i = 0; i < w->count; from += w->terms[i++].weight->row_count)
    to = copy(to, from + w->shares[i].first, w->shares[i].end - w->shares[i].first);
  return to;
}

/* buffers.leaf [*rows_p, kept]. */
static void gather(const block_rows *w, int64_t *rows_p) {
  float *to = w->back->buffers.leaf;
  int64_t there;
  *rows_p = 0;
  for (int32_t m = 0; m < w->back->context.ranks; m++) {
    const float *from = treadle_parallel_slot(w->back->pass->context.exchange, m, &there);
    for (int64_t row = 0; row < there; row++) to = keep(w, to, from + row * w->columns);
    *rows_p += there;
  }
}

static treadle_status add_own(const treadle_back *back, const treadle_back_rows *x,
                              const treadle_back_term *terms, const treadle_weight *const *grads,
                              int count) {
  treadle_status status;
  TRY(treadle_back_take_rows(back, x->x, x->stride, x->columns, x->rows));
  for (int i = 0; i < count; i++) TRY(treadle_back_weight(back, &terms[i], grads[i], x->rows));
out:
  return status;
}

treadle_status treadle_back_expert_weights(const treadle_back *back, const treadle_back_rows *x,
                                           const treadle_back_term *terms,
                                           const treadle_weight *const *grads, int count) {
  block_rows w = {.back = back, .x = x, .terms = terms, .count = count, .columns = x->columns};
  treadle_status status;
  if (!treadle_context_shares_experts(back)) return add_own(back, x, terms, grads, count);
  w.kept = x->columns;
  for (int i = 0; i < count; i++) {
    w.shares[i] = treadle_context_share(back, terms[i].weight->row_count);
    w.columns += terms[i].weight->row_count;
    w.kept += w.shares[i].end - w.shares[i].first;
  }
  int64_t rows;
  const float *dy = back->buffers.leaf + x->columns;
  TRY(bring(&w));
  gather(&w, &rows);
  TRY(treadle_back_take_rows(back, back->buffers.leaf, w.kept, x->columns, rows));
  for (int i = 0; i < count; dy += w.shares[i].end - w.shares[i].first, i++) {
    const treadle_back_term share = {grads[i], dy, w.kept, 0};
    if (grads[i]->row_count) TRY(treadle_back_weight(back, &share, grads[i], rows));
  }
out:
  return status;
}

/* ---- Losses of routers --------------------------------------------------------------------------------- */

treadle_status treadle_context_add_losses(const treadle_back *back, int64_t rows, double *loss) {
  const double *own = back->buffers.experts.row_losses;
  treadle_exchange *exchange = back->pass->context.exchange;
  const int64_t each = sizeof *own / sizeof(float);
  int64_t there;
  treadle_status status = TREADLE_OK;
  if (back->context.ranks == 1) {
    for (int64_t row = 0; row < rows; row++) *loss += own[row];
    return TREADLE_OK;
  }
  memcpy(treadle_exchange_room(exchange), own, (size_t)rows * sizeof *own);
  TRY(treadle_context_meet(back, rows, each, "losses of routers"));
  for (int32_t m = 0; m < back->context.ranks; m++) {
    const float *from = treadle_parallel_slot(exchange, m, &there);
    for (double one; there > 0; there--, from += each) {
      memcpy(&one, from, sizeof one);
      *loss += one;
    }
  }
out:
  return status;
}

/* A score head, forward and backward, TREADLE_HEAD_ROWS tokens at a time. All ranks of the last stage have the whole head and all rows, so
 * each computes the same, and they bring nothing together.
 *
 * Order of additions. A value is the sum over lanes, 0 + 4, 1 + 5, 2 + 6, 3 + 7, then 0 + 2, 1 + 3, then 0 + 1, and the bias; lane k has the
 * products of columns k, k + LANES, ..., one after the other. Products of two fp32 numbers are exact in double, in which all of
 * it is added; the sum is rounded to fp32 once. Gradients of the head are sums over tokens (back_sum.c). */
#include "train/back_score.h"

#include "base/argument.h"
#include "train/back_sum.h"
#include "train/gradients.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

typedef struct score_rows {
  treadle_back *back;
  const treadle_train_step *batch;
  double bias;
  int64_t first, count;
} score_rows;

static double dot(const float *x, const float *weight, int64_t count) {
  double lanes[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; k++) lanes[k] += (double)x[i + k] * (double)weight[i + k];
  for (int k = 0; i + k < count; k++) lanes[k] += (double)x[i + k] * (double)weight[i + k];
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
  return lanes[0];
}

static void find_values(void *context, int32_t index, int32_t count) {
  const score_rows *w = context;
  const treadle_back *back = w->back;
  const int64_t hidden = back->transformer->hidden, end = w->count * (index + 1) / count;
  for (int64_t i = w->count * index / count; i < end; i++) {
    const treadle_train_place *place = &w->batch->places[w->first + i];
    const double sum = dot(back->pass->buffers.normed + i * hidden, back->buffers.score, hidden);
    w->batch->work->logprobs[place->number] = (float)(sum + w->bias);
  }
}

/* The weight in fp32, and the bias. */
static double take_weights(const treadle_back *back) {
  const treadle_score_head *head = &back->score;
  float bias = 0;
  back->pass->row_ops->widen(back->buffers.score, treadle_pass_at(back->pass, &head->weight.segments[0]),
                             head->weight.dtype, back->transformer->hidden);
  if (treadle_is_there(&head->bias))
    back->pass->row_ops->widen(&bias, treadle_pass_at(back->pass, &head->bias.segments[0]),
                               head->bias.dtype, 1);
  return (double)bias;
}

/* Values of some tokens, and what the loss says of them. The pass's buffers.normed: what the head multiplies. */
static treadle_status find(score_rows *w, float *x) {
  treadle_back *back = w->back;
  treadle_pass *p = back->pass;
  treadle_train_work *work = w->batch->work;
  float *const own = p->buffers.x;
  const int64_t left = w->batch->counted - w->first;
  const int32_t *which = w->batch->which + w->first;
  treadle_status status = TREADLE_OK;
  w->count = left < TREADLE_HEAD_ROWS ? left : TREADLE_HEAD_ROWS;
  TRY(treadle_back_head_rows(back, &x, &which, w->count));
  p->buffers.x = x;
  treadle_pass_norm(p, &p->final_norm, which, w->count);
  p->buffers.x = own;
  treadle_team_run(p->team, find_values, w);
  for (int64_t i = 0; i < w->count; i++) {
    const treadle_train_place *place = &w->batch->places[w->first + i];
    if (!isfinite(work->logprobs[place->number]))
      treadle_train_note(work, treadle_fail(TREADLE_REFUSED,
                                            "the value of token %zu of row %zu is not finite: weights or "
                                            "activations are not",
                                            place->token, place->row));
    back->by_value[i] =
        work->loss == TREADLE_LOSS_VALUE ? (float)treadle_train_value_slope(work, place) : 0;
  }
out:
  return status;
}

treadle_status treadle_back_scores(treadle_back *back, const treadle_train_step *batch, float *x) {
  score_rows w = {.back = back, .batch = batch, .bias = take_weights(back)};
  treadle_status status = TREADLE_OK;
  for (; w.first < batch->counted; w.first += TREADLE_HEAD_ROWS) TRY(find(&w, x));
out:
  return status;
}

/* ---- Backward ---- */

static void back_values(void *context, int32_t index, int32_t count) {
  const score_rows *w = context;
  const treadle_back *back = w->back;
  const int64_t hidden = back->transformer->hidden, end = w->count * (index + 1) / count;
  for (int64_t i = w->count * index / count; i < end; i++)
    for (int64_t k = 0; k < hidden; k++)
      back->buffers.dnormed[i * hidden + k] = back->by_value[i] * back->buffers.score[k];
}

treadle_status treadle_back_score(treadle_back *back, const treadle_train_step *batch, float *x) {
  const treadle_pass *p = back->pass;
  const treadle_train_buffers *own = &back->buffers;
  score_rows w = {.back = back, .batch = batch, .bias = take_weights(back)};
  treadle_status status = TREADLE_OK;
  memset(own->dx, 0, (size_t)(batch->step.rows * back->transformer->hidden) * sizeof(float));
  for (; w.first < batch->counted; w.first += TREADLE_HEAD_ROWS) {
    TRY(find(&w, x));
    const treadle_back_norm_rows norm = {.norm = &p->final_norm,
                                         .grad = &back->grad_final_norm,
                                         .x = back->context.ranks > 1 ? own->head_x : x,
                                         .dy = own->dnormed,
                                         .dx = own->dx,
                                         .which = batch->which + w.first,
                                         .apart = own->normed, /* which only layers use */
                                         .rows = w.count};
    treadle_team_run(p->team, back_values, &w);
    treadle_back_weighted(back, &back->score.grad_weight, p->buffers.normed, back->by_value, w.count);
    treadle_back_bias_of_all(back, &back->score.grad_bias, back->by_value, w.count);
    TRY(treadle_back_norm(back, &norm));
  }
out:
  return status;
}

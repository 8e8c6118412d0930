/* Loss, head and embedding. Logits are there for TREADLE_HEAD_ROWS tokens at a time, of those alone whose next token counts; the gradient
 * of a logit takes its place. */
#include "train/trainer.h"

#include <string.h>

typedef struct loss_rows {
  treadle_trainer *t;
  const treadle_train_step *batch;
  float *logits;
  int64_t first, count;
} loss_rows;

static void back_loss(void *context, int32_t index, int32_t count) {
  const loss_rows *w = context;
  int64_t end = w->count * (index + 1) / count, vocabulary = w->t->transformer->vocabulary;
  for (int64_t i = w->count * index / count; i < end; i++)
    w->t->back->loss(w->logits + i * vocabulary, vocabulary, (float)w->t->token_rows.items[i].lse,
                     w->batch->targets[w->first + i], w->batch->scale);
}

/* -log p of these tokens, and gradients of their logits. */
static treadle_status take_loss(treadle_trainer *t, loss_rows *w, double *nll_p) {
  int64_t vocabulary = t->transformer->vocabulary;
  treadle_status status;
  for (int64_t i = 0; i < w->count; i++)
    t->token_rows.items[i] = (treadle_token_row){.logits = w->logits + i * vocabulary, .temperature = 1};
  TRY(treadle_token_rows_run(&t->token_rows, w->count));
  for (int64_t i = 0; i < w->count; i++) {
    int32_t target = w->batch->targets[w->first + i];
    double nll = t->token_rows.items[i].lse - (double)w->logits[i * vocabulary + target];
    if (!(nll < 1e30))
      return treadle_fail(TREADLE_REFUSED,
                          "the loss of token %d is not finite: weights or activations are not", target);
    *nll_p += nll;
  }
  treadle_team_run(t->pass->team, back_loss, w);
out:
  return status;
}

treadle_status treadle_back_head(treadle_trainer *t, const treadle_train_step *batch, double *nll_p) {
  treadle_pass *p = t->pass;
  const treadle_train_buffers *own = &t->buffers;
  const int64_t hidden = t->transformer->hidden, vocabulary = t->transformer->vocabulary;
  treadle_status status = TREADLE_OK;
  memset(own->dx, 0, (size_t)(batch->step.rows * hidden) * sizeof(float));
  for (int64_t first = 0; first < batch->counted; first += TREADLE_HEAD_ROWS) {
    int64_t rows = batch->counted - first;
    if (rows > TREADLE_HEAD_ROWS) rows = TREADLE_HEAD_ROWS;
    const float *logits;
    TRY(treadle_pass_logits(p, batch->which + first, rows, &logits));
    loss_rows w = {.t = t, .batch = batch, .logits = p->buffers.logits, .first = first, .count = rows};
    TRY(take_loss(t, &w, nll_p));
    const treadle_back_term head = {&p->head, w.logits, vocabulary};
    const treadle_back_norm_rows norm = {.norm = &p->final_norm,
                                         .grad = &t->grad_final_norm,
                                         .x = p->buffers.x,
                                         .dy = own->dnormed,
                                         .dx = own->dx,
                                         .which = batch->which + first,
                                         .rows = rows};
    treadle_back_take_rows(t, p->buffers.normed, hidden, hidden, rows);
    TRY(treadle_back_weight(t, &head, &t->grad_head, rows));
    TRY(treadle_back_input(t, &head, 1, (vocabulary + TREADLE_HEAD_LEAF - 1) / TREADLE_HEAD_LEAF, rows,
                           own->dnormed, hidden));
    treadle_back_norm(t, &norm);
  }
out:
  return status;
}

/* ---- The embedding ------------------------------------------------------------------------------------ */

typedef struct embedding {
  treadle_trainer *t;
  const treadle_pass_step *step;
} embedding;

/* Tokens in their order; each thread has some columns of all of them. */
static void back_rows(void *context, int32_t index, int32_t count) {
  const embedding *w = context;
  treadle_trainer *t = w->t;
  int64_t hidden = t->transformer->hidden, first = hidden * index / count,
          end = hidden * (index + 1) / count;
  for (int64_t r = 0; r < w->step->rows; r++) {
    int64_t row = w->step->tokens[r] - t->grad_embed.first_row;
    if (row < 0 || row >= t->grad_embed.row_count) continue;
    t->pass->row_ops->add(treadle_trainer_grad(t, &t->grad_embed, row) + first,
                          t->buffers.dx + r * hidden + first, TREADLE_FP32, end - first);
  }
}

void treadle_back_embed(treadle_trainer *t, const treadle_pass_step *step) {
  embedding w = {.t = t, .step = step};
  treadle_team_run(t->pass->team, back_rows, &w);
}

void treadle_back_tie(treadle_trainer *t) {
  int64_t hidden = t->transformer->hidden;
  for (int64_t row = 0; t->buffers.tied && row < t->grad_embed.row_count; row++)
    t->pass->row_ops->add(treadle_trainer_grad(t, &t->grad_embed, row), t->buffers.tied + row * hidden,
                          TREADLE_FP32, hidden);
}

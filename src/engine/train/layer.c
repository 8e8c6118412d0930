/* A layer forward. What its parts write goes straight into the memory that is kept, so that keeping costs two copies of the residual
 * stream. Whether layers are kept or run again, they are the same parts on the same values: the same bits. */
#include "train/trainer.h"

#include <string.h>

/* Own rows of the stream. */
static void keep_rows(const treadle_trainer *t, float *to, const float *x, int64_t rows) {
  const treadle_row_span own = treadle_train_own_rows(t, rows);
  int64_t hidden = t->transformer->hidden;
  memcpy(to, x + own.begin * hidden, (size_t)((own.end - own.begin) * hidden) * sizeof *to);
}

/* The halves of a layer, on buffers.x of the pass; `down` may be left away, where nobody wants what comes behind it. */
static treadle_status run_halves(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                 const treadle_train_activations *kept, bool down) {
  treadle_pass *p = t->pass;
  treadle_pass_buffers *b = &p->buffers;
  const treadle_weight *weight = p->layers[layer].weight;
  treadle_gated mlp = treadle_pass_mlp_of(p, layer);
  treadle_status status;
  b->normed = t->buffers.normed;
  b->wide = kept->qkv;
  b->wide_columns = t->width.qkv;
  b->middle = kept->found;
  b->middle_columns = t->width.found;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_ATTENTION_NORM], NULL, step->rows);
  TRY(treadle_pass_project(p, layer, step->rows));
  if (kept->raw) memcpy(kept->raw, kept->qkv, (size_t)(step->rows * t->width.qkv) * sizeof(float));
  TRY(treadle_pass_attend_rows(p, layer, step));
  if (down) keep_rows(t, kept->middle_x, b->x, step->rows);
  b->normed = t->buffers.normed2;
  b->wide = kept->gate_up;
  b->wide_columns = 2 * t->width.inner;
  b->middle = t->buffers.middle;
  b->middle_columns = t->width.inner;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_MLP_NORM], NULL, step->rows);
  TRY(treadle_pass_gate_up(p, &mlp, b->normed, step->rows));
  if (down) TRY(treadle_pass_down(p, layer, step->rows));
out:
  return status;
}

static treadle_status run_layer(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                const treadle_train_activations *kept, float *x, bool down) {
  const treadle_pass_buffers own = t->pass->buffers;
  t->pass->buffers.x = x;
  treadle_status status = run_halves(t, layer, step, kept, down);
  t->pass->buffers = own;
  return status;
}

treadle_status treadle_train_forward(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                     const treadle_train_activations *kept) {
  float *x = t->pass->buffers.x;
  keep_rows(t, kept->x, x, step->rows);
  return t->keeps_all ? run_layer(t, layer, step, kept, x, true) : treadle_pass_layer(t->pass, layer, step);
}

/* ---- Before backward ---------------------------------------------------------------------------------- */

/* normed, of all rows, from the own rows of x. */
static treadle_status norm(treadle_trainer *t, const treadle_weight *weight, float *x, float *normed,
                           int64_t rows) {
  treadle_pass_buffers *b = &t->pass->buffers;
  const treadle_pass_buffers own = *b;
  const treadle_row_span span = treadle_train_own_rows(t, rows);
  b->x = x;
  b->normed = normed;
  treadle_pass_norm(t->pass, weight, NULL, span.end - span.begin);
  *b = own;
  if (!treadle_train_divides_rows(t)) return TREADLE_OK;
  return treadle_train_gather_rows(t, normed, rows, normed, "rows of a norm");
}

/* The layer again, from the own rows of its input. */
static treadle_status run_again(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                treadle_train_activations *kept_p) {
  float *x = t->buffers.x, *own = kept_p->x;
  const treadle_row_span span = treadle_train_own_rows(t, step->rows);
  treadle_status status = TREADLE_OK;
  *kept_p = treadle_train_again(t);
  kept_p->x = own;
  kept_p->middle_x = x + span.begin * t->transformer->hidden;
  if (treadle_train_divides_rows(t))
    TRY(treadle_train_gather_rows(t, own, step->rows, x, "rows of the residual stream"));
  else
    keep_rows(t, x, own, step->rows);
  TRY(run_layer(t, layer, step, kept_p, x, false));
out:
  return status;
}

treadle_status treadle_train_prepare(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                     treadle_train_activations *kept_p) {
  const treadle_weight *weight = t->pass->layers[layer].weight;
  const treadle_train_buffers *own = &t->buffers;
  treadle_status status;
  if (!t->keeps_all) return run_again(t, layer, step, kept_p);
  TRY(norm(t, &weight[TREADLE_ROLE_ATTENTION_NORM], kept_p->x, own->normed, step->rows));
  TRY(norm(t, &weight[TREADLE_ROLE_MLP_NORM], kept_p->middle_x, own->normed2, step->rows));
out:
  return status;
}

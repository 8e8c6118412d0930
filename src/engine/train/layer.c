/* A layer forward. What its parts write goes straight into the memory that is kept, so that keeping costs two copies of the residual
 * stream. Whether layers are kept or run again, they are the same parts on the same values: the same bits. */
#include "train/layer.h"
#include "train/sequence.h"

#include <string.h>

/* Own rows of the stream. */
static void keep_rows(const treadle_back *back, float *to, const float *x, int64_t rows) {
  const treadle_row_span own = treadle_train_own_rows(back, rows);
  int64_t hidden = back->transformer->hidden;
  memcpy(to, x + own.begin * hidden, (size_t)((own.end - own.begin) * hidden) * sizeof *to);
}

/* The halves of a layer, on buffers.x of the pass; `down` may be left away, where nobody wants what comes behind it. */
static treadle_status run_halves(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                 const treadle_train_activations *kept, bool down) {
  treadle_pass *p = back->pass;
  treadle_pass_buffers *b = &p->buffers;
  const treadle_weight *weight = p->layers[layer].weight;
  treadle_gated mlp = treadle_pass_mlp_of(p, layer);
  treadle_status status;
  b->normed = back->buffers.normed;
  b->wide = kept->qkv;
  b->wide_columns = back->width.qkv;
  b->middle = kept->found;
  b->middle_columns = back->width.found;
  if (p->context.ranks > 1) { /* what this rank's heads see is kept; own rows only pass by */
    b->wide = back->buffers.dqkv;
    b->middle = back->buffers.dmiddle;
    b->all_wide = kept->qkv;
    b->all_middle = kept->found;
  }
  treadle_pass_norm(p, &weight[TREADLE_ROLE_ATTENTION_NORM], NULL, step->rows);
  TRY(treadle_pass_project(p, layer, step->rows));
  if (kept->raw) memcpy(kept->raw, b->wide, (size_t)(step->rows * back->width.qkv) * sizeof(float));
  TRY(treadle_pass_attend_rows(p, layer, step));
  if (down) keep_rows(back, kept->middle_x, b->x, step->rows);
  b->normed = back->buffers.normed2;
  b->wide = kept->gate_up;
  b->wide_columns = 2 * back->width.inner;
  b->middle = back->buffers.middle;
  b->middle_columns = back->width.inner;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_MLP_NORM], NULL, step->rows);
  TRY(treadle_pass_gate_up(p, &mlp, b->normed, step->rows));
  if (down) TRY(treadle_pass_down(p, layer, step->rows));
out:
  return status;
}

static treadle_status run_layer(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                const treadle_train_activations *kept, float *x, bool down) {
  const treadle_pass_buffers own = back->pass->buffers;
  back->pass->buffers.x = x;
  treadle_status status = run_halves(back, layer, step, kept, down);
  back->pass->buffers = own;
  return status;
}

treadle_status treadle_train_forward(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                     const treadle_train_activations *kept) {
  float *x = back->pass->buffers.x;
  keep_rows(back, kept->x, x, step->rows);
  return back->keeps_all ? run_layer(back, layer, step, kept, x, true)
                         : treadle_pass_layer(back->pass, layer, step);
}

/* ---- Before backward ---------------------------------------------------------------------------------- */

/* normed, of all rows, from the own rows of x. */
static treadle_status norm(const treadle_back *back, const treadle_weight *weight, float *x, float *normed,
                           int64_t rows) {
  treadle_pass_buffers *b = &back->pass->buffers;
  const treadle_pass_buffers own = *b;
  const treadle_row_span span = treadle_train_own_rows(back, rows);
  b->x = x;
  b->normed = normed;
  treadle_pass_norm(back->pass, weight, NULL, span.end - span.begin);
  *b = own;
  if (!treadle_train_divides_rows(back)) return TREADLE_OK;
  return treadle_train_gather_rows(back, normed, rows, normed, "rows of a norm");
}

/* The layer again, from the own rows of its input. */
static treadle_status run_again(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                treadle_train_activations *kept_p) {
  float *x = back->buffers.x, *own = kept_p->x;
  const treadle_row_span span = treadle_train_own_rows(back, step->rows);
  treadle_status status = TREADLE_OK;
  *kept_p = treadle_train_again(back);
  kept_p->x = own;
  kept_p->middle_x = x + span.begin * back->transformer->hidden;
  if (treadle_train_divides_rows(back))
    TRY(treadle_train_gather_rows(back, own, step->rows, x, "rows of the residual stream"));
  else
    keep_rows(back, x, own, step->rows);
  TRY(run_layer(back, layer, step, kept_p, x, false));
out:
  return status;
}

treadle_status treadle_train_prepare(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                     treadle_train_activations *kept_p) {
  const treadle_weight *weight = back->pass->layers[layer].weight;
  const treadle_train_buffers *own = &back->buffers;
  treadle_status status;
  if (!back->keeps_all) return run_again(back, layer, step, kept_p);
  TRY(norm(back, &weight[TREADLE_ROLE_ATTENTION_NORM], kept_p->x, own->normed, step->rows));
  TRY(norm(back, &weight[TREADLE_ROLE_MLP_NORM], kept_p->middle_x, own->normed2, step->rows));
out:
  return status;
}

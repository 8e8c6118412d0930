/* A layer forward. What its parts write goes straight into the memory that is kept, so that keeping costs two copies of the residual
 * stream. Whether layers are kept or run again, they are the same parts on the same values: the same bits. */
#include "train/latent.h"
#include "train/sequence.h"

#include <string.h>

/* Own rows of the stream. */
static void keep_rows(const treadle_back *back, float *to, const float *x, int64_t rows) {
  const treadle_row_range own = treadle_train_own_rows(back, rows);
  int64_t hidden = back->transformer->hidden;
  memcpy(to, x + own.first * hidden, (size_t)((own.end - own.first) * hidden) * sizeof *to);
}

/* What gate and up give is kept, with what is multiplied next in buffers.middle. */
static treadle_status keep_gate_up(const treadle_back *back, const treadle_gated *mlp, int64_t rows,
                                   const treadle_train_activations *kept) {
  treadle_pass_buffers *b = &back->pass->buffers;
  b->wide = kept->gate_up;
  b->wide_columns = 2 * mlp->down->column_count;
  b->middle = back->buffers.middle;
  b->middle_columns = mlp->down->column_count;
  return treadle_pass_gate_up(back->pass, mlp, b->normed, rows);
}

static treadle_status run_mlp(const treadle_back *back, int32_t layer, int64_t rows,
                              const treadle_train_activations *kept, bool down) {
  const treadle_gated mlp = treadle_pass_mlp_of(back->pass, layer);
  treadle_status status;
  TRY(keep_gate_up(back, &mlp, rows, kept));
  if (down) TRY(treadle_pass_down(back->pass, layer, rows));
out:
  return status;
}

static treadle_status run_shared(const treadle_back *back, int32_t layer, int64_t rows,
                                 const treadle_train_activations *kept, bool down) {
  const treadle_gated mlp = treadle_pass_shared_of(back->pass, layer);
  treadle_status status = TREADLE_OK;
  if (!treadle_transformer_shares(back->transformer, layer)) return TREADLE_OK;
  TRY(treadle_pass_scale_shared(back->pass, layer, rows));
  TRY(keep_gate_up(back, &mlp, rows, kept));
  if (!down) goto out;
  TRY(treadle_pass_multiply_down(back->pass, &mlp, rows, back->pass->buffers.sum,
                                 rows * back->transformer->hidden));
  TRY(treadle_pass_sum_shared(back->pass, layer, rows));
out:
  return status;
}

/* Of experts themselves nothing is kept but which ones were chosen: backward takes their rows through them again. */
static treadle_status run_experts(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                  const treadle_train_activations *kept, bool down) {
  const int64_t rows = step->rows;
  treadle_pass_buffers *b = &back->pass->buffers;
  float *const wide = b->wide, *const middle = b->middle;
  const int64_t wide_columns = b->wide_columns, middle_columns = b->middle_columns;
  treadle_status status;
  b->routed = kept->routed;
  b->shared_scale = kept->shared_scale;
  b->wide = kept->router_logits;
  b->wide_columns = back->transformer->routing.experts;
  TRY(treadle_pass_route(back->pass, layer, step));
  TRY(run_shared(back, layer, rows, kept, down));
  b->wide = wide, b->middle = middle;
  b->wide_columns = wide_columns, b->middle_columns = middle_columns;
  if (down) TRY(treadle_pass_run_experts(back->pass, layer, rows));
out:
  return status;
}

/* q, k and v as the norms of heads take them. */
static void keep_raw(const treadle_back *back, int32_t layer, const treadle_train_activations *kept,
                     int64_t rows) {
  const treadle_weight *weight = back->pass->layers[layer].weight;
  const treadle_train_columns *at = &back->width;
  memcpy(kept->raw, back->pass->buffers.wide, (size_t)(rows * at->qkv) * sizeof(float));
  for (int64_t r = 0; treadle_is_there(&weight[TREADLE_ROLE_Q_BIAS]) && r < rows; r++) {
    float *row = kept->raw + r * at->qkv;
    treadle_pass_add_bias(back->pass, row, &weight[TREADLE_ROLE_Q_BIAS]);
    treadle_pass_add_bias(back->pass, row + at->keys, &weight[TREADLE_ROLE_K_BIAS]);
    treadle_pass_add_bias(back->pass, row + at->values, &weight[TREADLE_ROLE_V_BIAS]);
  }
}

/* Attention with grouped heads, of buffers.normed. */
static treadle_status run_attention(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                    const treadle_train_activations *kept) {
  treadle_pass *p = back->pass;
  treadle_status status;
  p->buffers.middle = kept->found;
  p->buffers.middle_columns = back->width.found;
  if (p->context.ranks > 1) { /* what this rank's heads see is kept; own rows only pass by */
    p->buffers.wide = back->buffers.dqkv;
    p->buffers.middle = back->buffers.dmiddle;
    p->buffers.all_wide = kept->qkv;
    p->buffers.all_middle = kept->found;
  }
  TRY(treadle_pass_project(p, layer, step->rows));
  if (kept->raw) keep_raw(back, layer, kept, step->rows);
  TRY(treadle_pass_attend_rows(p, layer, step));
out:
  return status;
}

/* The halves of a layer, on buffers.x of the pass; `down` may be left away, where nobody wants what comes behind it. */
static treadle_status run_halves(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                 const treadle_train_activations *kept, bool down) {
  treadle_pass *p = back->pass;
  treadle_pass_buffers *b = &p->buffers;
  const treadle_weight *weight = p->layers[layer].weight;
  const treadle_pass_buffers own = *b;
  treadle_status status;
  b->normed = back->buffers.normed;
  b->wide = kept->qkv;
  b->wide_columns = back->width.qkv;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_ATTENTION_NORM], NULL, step->rows);
  if (back->width.latent)
    TRY(treadle_train_latent(back, layer, step, kept));
  else
    TRY(run_attention(back, layer, step, kept));
  if (down) keep_rows(back, kept->middle_x, b->x, step->rows);
  b->normed = back->buffers.normed2;
  b->wide = own.wide, b->middle = own.middle;
  b->wide_columns = own.wide_columns, b->middle_columns = own.middle_columns;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_MLP_NORM], NULL, step->rows);
  if (back->transformer->layer[layer].sparse)
    TRY(run_experts(back, layer, step, kept, down));
  else
    TRY(run_mlp(back, layer, step->rows, kept, down));
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
  const treadle_row_range span = treadle_train_own_rows(back, rows);
  b->x = x;
  b->normed = normed;
  treadle_pass_norm(back->pass, weight, NULL, span.end - span.first);
  *b = own;
  if (!treadle_train_divides_rows(back)) return TREADLE_OK;
  return treadle_train_gather_rows(back, normed, rows, normed, "rows of a norm");
}

/* The layer again, from the own rows of its input. */
static treadle_status run_again(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                treadle_train_activations *kept_p) {
  float *x = back->buffers.x, *own = kept_p->x;
  const treadle_row_range span = treadle_train_own_rows(back, step->rows);
  treadle_status status = TREADLE_OK;
  *kept_p = treadle_train_again(back);
  kept_p->x = own;
  kept_p->middle_x = x + span.first * back->transformer->hidden;
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

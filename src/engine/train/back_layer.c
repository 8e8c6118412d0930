/* The adjoints of the parts of a layer: what follows from the gradient of what it gave goes back through the MLP or its experts, then
 * attention.
 *
 * Order of additions of the products for gradients of inputs: q, k and v in leaves of key and value heads, of each its queries, its keys, its
 * values; o in one. Leaves that other ranks have are added in the same tree. */
#include "train/back_attend.h"
#include "train/back_experts.h"
#include "train/back_mlp.h"
#include "train/back_product.h"
#include "train/back_sum.h"
#include "train/latent.h"
#include "train/ranks.h"

/* The leaves of `all` that this rank has, whose part of an inner dimension is [first, first + count) of `of`. */
static treadle_leaf_range leaves_of(int64_t first, int64_t count, int64_t of, int64_t all) {
  return (treadle_leaf_range){(int32_t)(first * all / of), (int32_t)(count * all / of), (int32_t)all};
}

/* ---- Attention --------------------------------------------------------------------------------------- */

typedef struct attention {
  const treadle_back *back;
  const treadle_pass_step *step;
  const treadle_train_activations *kept;
  const float *dfound; /* of this rank's heads, all rows */
  float *dqkv;
} attention;

/* buffers.dqkv, from buffers.dmiddle. */
static void back_attend(const attention *w) {
  const treadle_back *back = w->back;
  const treadle_transformer *d = back->transformer;
  const treadle_train_columns *at = &back->attended;
  const float *qkv = w->kept->qkv;
  float *dqkv = w->dqkv;
  const int64_t group = back->pass->attention.heads / back->pass->kv.heads;
  const treadle_back_attention all = {.first = {.queries_per_head = group,
                                                .key_dim = d->head_dim,
                                                .value_dim = d->value_dim,
                                                .scale = back->pass->attention.scale,
                                                .dtype = back->pass->options.dtype,
                                                .q = qkv,
                                                .k = qkv + at->keys,
                                                .v = qkv + at->values,
                                                .q_stride = at->qkv,
                                                .k_stride = at->qkv,
                                                .v_stride = at->qkv,
                                                .out = w->kept->found,
                                                .dout = w->dfound,
                                                .out_stride = at->found,
                                                .dout_stride = at->found,
                                                .dq = dqkv,
                                                .dk = dqkv + at->keys,
                                                .dv = dqkv + at->values,
                                                .dq_stride = at->qkv,
                                                .dk_stride = at->qkv,
                                                .dv_stride = at->qkv},
                                      .heads = back->pass->kv.heads,
                                      .q_step = group * d->head_dim,
                                      .k_step = d->head_dim,
                                      .v_step = d->value_dim,
                                      .out_step = group * d->value_dim,
                                      .dk_step = d->head_dim,
                                      .dv_step = d->value_dim};
  treadle_back_attend(back, w->step, &all);
}

static void back_rope(void *context, int32_t index, int32_t count) {
  const attention *w = context;
  const treadle_back *back = w->back;
  const treadle_pass *p = back->pass;
  const int64_t before = w->step->before, rows = w->step->rows;
  int64_t begin = before + rows * index / count, end = before + rows * (index + 1) / count, first = 0;
  int64_t dim = back->transformer->head_dim;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows)
    for (int64_t r = 0; r < w->step->stretches[s].rows; r++) {
      if (first + r < begin || first + r >= end) continue;
      float *row = back->buffers.dqkv + (first + r - before) * back->width.qkv;
      const int64_t position = w->step->stretches[s].position + r;
      treadle_rope_undo(&p->rope, p->row_ops, row, dim, p->heads.count, position);
      treadle_rope_undo(&p->rope, p->row_ops, row + back->width.keys, dim, p->heads.kv_count, position);
    }
}

/* From what follows attention to q, k and v as they were compared. Of context parallel ranks, gradients of all rows lie
 * where the pass has all rows if nothing is kept, as nobody needs them there now. */
static treadle_status back_compared(const treadle_back *back, attention *w) {
  const treadle_train_buffers *own = &back->buffers;
  const treadle_pass *p = back->pass;
  const bool divided = back->context.ranks > 1;
  float *dfound = divided ? p->buffers.all_middle : own->dmiddle;
  treadle_status status = TREADLE_OK;
  w->dfound = dfound;
  w->dqkv = divided ? p->buffers.all_wide : own->dqkv;
  if (divided) TRY(treadle_context_spread_found(p, w->step, own->dmiddle, back->width.found, dfound));
  back_attend(w);
  if (divided) TRY(treadle_context_collect_heads(p, w->step, w->dqkv, own->dqkv, back->width.qkv));
out:
  return status;
}

/* Then to q, k and v as they were multiplied. */
static treadle_status back_prepare(const treadle_back *back, int32_t layer, attention *w) {
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const treadle_head_span *heads = &back->pass->heads;
  const int64_t stride = back->width.qkv, rows = w->step->rows;
  float *dqkv = back->buffers.dqkv;
  const treadle_back_heads q = {.norm = &weight[TREADLE_ROLE_Q_NORM],
                                .grad = &grad[TREADLE_ROLE_Q_NORM],
                                .x = w->kept->raw,
                                .dy = dqkv,
                                .stride = stride,
                                .heads = heads->count,
                                .first = heads->first,
                                .all = back->transformer->heads,
                                .dim = back->transformer->head_dim,
                                .rows = rows};
  treadle_back_heads k = q;
  treadle_status status = TREADLE_OK;
  k.norm = &weight[TREADLE_ROLE_K_NORM];
  k.grad = &grad[TREADLE_ROLE_K_NORM];
  if (k.x) k.x += back->width.keys;
  k.dy = dqkv + back->width.keys;
  k.heads = heads->kv_count;
  k.first = heads->kv_first;
  k.all = back->transformer->kv_heads;
  TRY(back_compared(back, w));
  if (back->transformer->layer[layer].rotates) treadle_team_run(back->pass->team, back_rope, w);
  if (treadle_is_there(q.norm)) TRY(treadle_back_norm_heads(back, &q));
  if (treadle_is_there(k.norm)) TRY(treadle_back_norm_heads(back, &k));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_Q_BIAS], dqkv, stride, rows));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_K_BIAS], dqkv + back->width.keys, stride, rows));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_V_BIAS], dqkv + back->width.values, stride, rows));
out:
  return status;
}

static treadle_status back_attention(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                     const treadle_train_activations *kept) {
  const treadle_train_buffers *own = &back->buffers;
  const treadle_transformer *d = back->transformer;
  const treadle_head_span *heads = &back->pass->heads;
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const int64_t hidden = d->hidden, rows = step->rows, qkv = back->width.qkv, leaves = back->key_leaves;
  const int64_t keys = d->kv_heads * d->head_dim / leaves, values = d->kv_heads * d->value_dim / leaves;
  const treadle_back_term o = {&weight[TREADLE_ROLE_O], own->dx, hidden, hidden};
  const treadle_back_term all[] = {
      {&weight[TREADLE_ROLE_Q], own->dqkv, qkv, d->heads * d->head_dim / leaves},
      {&weight[TREADLE_ROLE_K], own->dqkv + back->width.keys, qkv, keys},
      {&weight[TREADLE_ROLE_V], own->dqkv + back->width.values, qkv, values}};
  const treadle_role roles[] = {TREADLE_ROLE_Q, TREADLE_ROLE_K, TREADLE_ROLE_V, TREADLE_ROLE_O};
  const treadle_back_rows normed = {own->normed, hidden, hidden, rows};
  treadle_back_rows found = {kept->found, back->width.found, back->width.found, rows};
  attention w = {.back = back, .step = step, .kept = kept};
  treadle_status status;
  if (back->context.ranks > 1) {
    TRY(treadle_context_collect_found(back->pass, step, kept->found, own->middle, back->width.found));
    found.x = own->middle;
  }
  TRY(treadle_back_weights(back, layer, &found, &o, &roles[3], 1));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_O_BIAS], own->dx, hidden, rows));
  TRY(treadle_back_through(back, &o, rows, own->dmiddle, back->width.found));
  TRY(back_prepare(back, layer, &w));
  TRY(treadle_back_weights(back, layer, &normed, all, roles, 3));
  TRY(treadle_back_normed(back, all, 3, leaves_of(heads->kv_first, heads->kv_count, d->kv_heads, leaves),
                          back->pass->ranks.speaks[layer].attention, rows));
out:
  return status;
}

/* What attention was given: its norm, and what goes by it in the residual stream. */
static treadle_status back_attention_norm(const treadle_back *back, int32_t layer, int64_t rows,
                                          const treadle_train_activations *kept) {
  const treadle_back_norm_rows norm = {.norm =
                                           &back->pass->layers[layer].weight[TREADLE_ROLE_ATTENTION_NORM],
                                       .grad = &back->grads[layer].weight[TREADLE_ROLE_ATTENTION_NORM],
                                       .x = kept->x,
                                       .dy = back->buffers.dnormed,
                                       .dx = back->buffers.dx,
                                       .rows = rows};
  return treadle_back_norm(back, &norm);
}

treadle_status treadle_back_layer(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                  treadle_train_activations kept) {
  treadle_status status;
  TRY(treadle_train_prepare(back, layer, step, &kept));
  if (back->transformer->layer[layer].sparse)
    TRY(treadle_back_experts(back, layer, step->rows, &kept));
  else
    TRY(treadle_back_mlp(back, layer, step->rows, &kept));
  if (back->width.latent)
    TRY(treadle_back_latent(back, layer, step, &kept));
  else
    TRY(back_attention(back, layer, step, &kept));
  TRY(back_attention_norm(back, layer, step->rows, &kept));
out:
  return status;
}

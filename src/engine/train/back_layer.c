/* The adjoints of the parts of a layer: what follows from the gradient of what it gave goes back through the MLP, then attention.
 *
 * Order of additions of the products for gradients of inputs: gate and up in the leaves of down, of each the columns of gate and then those
 * of up; q, k and v in leaves of key and value heads, of each its queries, its keys, its values; o and down in one. Leaves that other
 * ranks have are added in the same tree. */
#include "nn/attention_back.h"
#include "train/back_product.h"
#include "train/back_sum.h"
#include "train/layer.h"
#include "train/ranks.h"

/* The leaves of `all` that this rank has, whose part of an inner dimension is [first, first + count) of `of`. */
static treadle_leaf_range leaves_of(int64_t first, int64_t count, int64_t of, int64_t all) {
  return (treadle_leaf_range){(int32_t)(first * all / of), (int32_t)(count * all / of), (int32_t)all};
}

/* buffers.dnormed: of what these weights multiplied, from all ranks. */
static treadle_status back_input(const treadle_back *back, const treadle_back_term *terms, int count,
                                 treadle_leaf_range leaves, int64_t rows) {
  float *dnormed = back->buffers.dnormed;
  const treadle_back_inputs inputs = {.terms = terms,
                                      .count = count,
                                      .leaves = leaves,
                                      .rows = rows,
                                      .dx = treadle_train_room_of(back->pass, dnormed),
                                      .stride = back->transformer->hidden};
  treadle_status status;
  TRY(treadle_back_input(back, &inputs));
  TRY(treadle_train_sum(back->pass, leaves, rows, dnormed));
out:
  return status;
}

/* The gradient of what a matrix multiplied whose rows are all here: y [rows, columns of it here]. */
static treadle_status back_through(const treadle_back *back, const treadle_back_term *term, int64_t rows,
                                   float *y, int64_t stride) {
  const treadle_back_inputs inputs = {
      .terms = term, .count = 1, .leaves = {0, 1, 1}, .rows = rows, .dx = y, .stride = stride};
  return treadle_back_input(back, &inputs);
}

/* ---- The MLP ----------------------------------------------------------------------------------------- */

typedef struct activation {
  const treadle_back *back;
  float *gate_up;
  int64_t rows;
} activation;

/* gate_up becomes its gradient; buffers.middle is what down multiplied. */
static void back_activation(void *context, int32_t index, int32_t count) {
  const activation *w = context;
  int64_t inner = w->back->width.inner, end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    float *gate = w->gate_up + r * 2 * inner;
    w->back->ops->silu(gate, gate + inner, w->back->buffers.middle + r * inner,
                       w->back->buffers.dmiddle + r * inner, gate, gate + inner, inner);
  }
}

static treadle_status back_mlp(const treadle_back *back, int32_t layer, int64_t rows,
                               const treadle_train_activations *kept) {
  const treadle_train_buffers *own = &back->buffers;
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const int64_t hidden = back->transformer->hidden, inner = back->width.inner,
                leaves = back->pass->mlp_leaves;
  const int64_t share = back->transformer->intermediate / leaves;
  const treadle_back_term down = {&weight[TREADLE_ROLE_DOWN], own->dx, hidden, hidden};
  const treadle_back_term both[] = {{&weight[TREADLE_ROLE_GATE], kept->gate_up, 2 * inner, share},
                                    {&weight[TREADLE_ROLE_UP], kept->gate_up + inner, 2 * inner, share}};
  const treadle_role roles[] = {TREADLE_ROLE_GATE, TREADLE_ROLE_UP, TREADLE_ROLE_DOWN};
  const treadle_back_rows middle = {own->middle, inner, inner, rows},
                          normed = {own->normed2, hidden, hidden, rows};
  activation a = {.back = back, .gate_up = kept->gate_up, .rows = rows};
  const treadle_back_norm_rows norm = {.norm = &weight[TREADLE_ROLE_MLP_NORM],
                                       .grad = &grad[TREADLE_ROLE_MLP_NORM],
                                       .x = kept->middle_x,
                                       .dy = own->dnormed,
                                       .dx = own->dx,
                                       .rows = rows};
  treadle_status status;
  TRY(back_through(back, &down, rows, own->dmiddle, inner));
  treadle_team_run(back->pass->team, back_activation, &a);
  TRY(treadle_back_weights(back, layer, &middle, &down, &roles[2], 1));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_DOWN_BIAS], own->dx, hidden, rows));
  TRY(treadle_back_weights(back, layer, &normed, both, roles, 2));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_GATE_BIAS], both[0].dy, 2 * inner, rows));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_UP_BIAS], both[1].dy, 2 * inner, rows));
  TRY(back_input(back, both, 2, treadle_pass_leaves(&weight[TREADLE_ROLE_DOWN], leaves), rows));
  TRY(treadle_back_norm(back, &norm));
out:
  return status;
}

/* ---- Attention --------------------------------------------------------------------------------------- */

/* Where the positions lie that come before a stretch and are another one's, of which rows[first] is the first; count 0: it begins alone. */
typedef struct prefix {
  int64_t first, count;
} prefix;

typedef struct attention {
  const treadle_back *back;
  const treadle_pass_step *step;
  const treadle_train_activations *kept;
  const float *dfound; /* of this rank's heads, all rows */
  float *dqkv;
} attention;

static void back_heads(const attention *w, int64_t first, int64_t rows, int64_t head, prefix before,
                       void *scratch) {
  const treadle_back *back = w->back;
  const treadle_transformer *d = back->transformer;
  const treadle_train_columns *at = &back->attended;
  int64_t group = back->pass->heads.count / back->pass->heads.kv_count;
  const float *qkv = w->kept->qkv + first * at->qkv;
  float *dqkv = w->dqkv + first * at->qkv;
  int64_t q = head * group * d->head_dim, k = at->keys + head * d->head_dim,
          v = at->values + head * d->value_dim, found = first * at->found + head * group * d->value_dim;
  const treadle_attention_back one = {
      .rows = rows,
      .queries_per_head = group,
      .key_dim = d->head_dim,
      .value_dim = d->value_dim,
      .scale = back->pass->attention.scale,
      .dtype = back->pass->options.dtype,
      .q = qkv + q,
      .k = qkv + k,
      .v = qkv + v,
      .q_stride = at->qkv,
      .k_stride = at->qkv,
      .v_stride = at->qkv,
      .out = w->kept->found + found,
      .dout = w->dfound + found,
      .out_stride = at->found,
      .dout_stride = at->found,
      .dq = dqkv + q,
      .dk = dqkv + k,
      .dv = dqkv + v,
      .dq_stride = at->qkv,
      .dk_stride = at->qkv,
      .dv_stride = at->qkv,
      .before = before.count,
      .before_k = w->kept->qkv + before.first * at->qkv + k,
      .before_v = w->kept->qkv + before.first * at->qkv + v,
      .before_dk = w->dqkv + before.first * at->qkv + k,
      .before_dv = w->dqkv + before.first * at->qkv + v,
  };
  treadle_attention_back_run(&one, back->pass->options.kernels, scratch);
}

/* Sequences that follow stretch `s`, which begins at row `first`, and go on from it: their positions before are its rows. */
static void back_family(const attention *w, int32_t s, int64_t first, int64_t head, void *scratch) {
  const treadle_pass_span *spans = w->step->stretches;
  const prefix shared = {first, spans[s].rows};
  back_heads(w, first, spans[s].rows, head, (prefix){first, 0}, scratch);
  for (first += spans[s++].rows; s < w->step->stretch_count && spans[s].position; first += spans[s++].rows)
    back_heads(w, first, spans[s].rows, head, shared, scratch);
}

/* An item is a sequence, with those that go on from it, and a key and value head; threads take them in turn. */
static void back_attend(void *context, int32_t index, int32_t count) {
  const attention *w = context;
  char *scratch = w->back->buffers.scratch + (size_t)index * w->back->buffers.scratch_bytes;
  int64_t first = 0, item = 0;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows)
    for (int64_t head = 0; head < w->back->pass->kv.heads && !w->step->stretches[s].position; head++)
      if (item++ % count == index) back_family(w, s, first, head, scratch);
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
  treadle_team_run(p->team, back_attend, w);
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
  const treadle_back_norm_rows norm = {.norm = &weight[TREADLE_ROLE_ATTENTION_NORM],
                                       .grad = &grad[TREADLE_ROLE_ATTENTION_NORM],
                                       .x = kept->x,
                                       .dy = own->dnormed,
                                       .dx = own->dx,
                                       .rows = rows};
  attention w = {.back = back, .step = step, .kept = kept};
  treadle_status status;
  if (back->context.ranks > 1) {
    TRY(treadle_context_collect_found(back->pass, step, kept->found, own->middle, back->width.found));
    found.x = own->middle;
  }
  TRY(treadle_back_weights(back, layer, &found, &o, &roles[3], 1));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_O_BIAS], own->dx, hidden, rows));
  TRY(back_through(back, &o, rows, own->dmiddle, back->width.found));
  TRY(back_prepare(back, layer, &w));
  TRY(treadle_back_weights(back, layer, &normed, all, roles, 3));
  TRY(back_input(back, all, 3, leaves_of(heads->kv_first, heads->kv_count, d->kv_heads, leaves), rows));
  TRY(treadle_back_norm(back, &norm));
out:
  return status;
}

treadle_status treadle_back_layer(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                  treadle_train_activations kept) {
  treadle_status status;
  TRY(treadle_train_prepare(back, layer, step, &kept));
  TRY(back_mlp(back, layer, step->rows, &kept));
  TRY(back_attention(back, layer, step, &kept));
out:
  return status;
}

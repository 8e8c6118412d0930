/* Latent attention in training. Forward is the generator's, part by part. Backward takes the parts from the last to the
 * first: o; each head's rows of kv_up for values; attention, where a row has one key, [latent, part by position], and
 * the latent is its value; each head's rows of kv_up for keys; rotation; the two norms inside; the projections.
 *
 * Order of additions. Gradients of a row's key and of its value are chains over the heads of each leaf of o; the value's
 * is added to the key's, then leaves are added in their tree, over all ranks. q_up, or q, goes back in the leaves of o.
 * o, and q_down and kv_down together, go back in one leaf. Without q_down, kv_down's share is added to the sum of q's. */
#include "train/latent.h"
#include "train/adapters.h"
#include "train/back_attend.h"
#include "train/back_product.h"
#include "train/back_sum.h"
#include "train/ranks.h"

#include "base/dtype.h"
#include "base/larger.h"

#include <string.h>

static int64_t key_dim(const treadle_back *back) {
  return back->transformer->latent_dim + back->transformer->rope_dim;
}

/* This rank's leaves of o. */
static treadle_leaf_range leaves_of(const treadle_back *back, int32_t layer) {
  return treadle_pass_leaves(&back->pass->layers[layer].weight[TREADLE_ROLE_O],
                             back->pass->attention_leaves);
}

/* Those that it brings to a sum of its stage: none, where another rank speaks for the same part. */
static treadle_leaf_range brought_of(const treadle_back *back, int32_t layer) {
  treadle_leaf_range leaves = leaves_of(back, layer);
  if (!back->pass->ranks.speaks[layer].attention) leaves.leaves = 0;
  return leaves;
}

int64_t treadle_back_latent_room(const treadle_back *back) {
  const treadle_head_span *heads = &back->pass->heads;
  const int64_t leaves = back->pass->attention_leaves, all = back->transformer->heads;
  const treadle_leaf_range mine = {(int32_t)(heads->first * leaves / all),
                                   (int32_t)(heads->count * leaves / all), (int32_t)leaves};
  const int64_t columns =
      treadle_larger(treadle_larger(back->transformer->hidden, back->width.narrow), key_dim(back));
  return treadle_leaf_nodes(mine, NULL) * back->rows * columns;
}

/* ---- Forward ------------------------------------------------------------------------------------------- */

typedef struct latent {
  const treadle_back *back;
  const treadle_pass_step *step;
  const treadle_train_activations *kept;
} latent;

/* What the two norms inside are taken of. */
static void keep_raw(void *context, int32_t index, int32_t count) {
  const latent *w = context;
  const treadle_back *back = w->back;
  const treadle_train_columns *at = &back->width;
  const int64_t latent_dim = back->transformer->latent_dim, end = w->step->rows * (index + 1) / count;
  for (int64_t r = w->step->rows * index / count; r < end; r++) {
    memcpy(w->kept->latent + r * latent_dim, w->kept->qkv + r * at->qkv + at->keys,
           (size_t)latent_dim * sizeof(float));
    if (at->narrow)
      memcpy(w->kept->narrow + r * at->narrow, back->buffers.latent.narrow + r * at->narrow,
             (size_t)at->narrow * sizeof(float));
  }
}

treadle_status treadle_train_latent(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                    const treadle_train_activations *kept) {
  treadle_pass_buffers *b = &back->pass->buffers;
  latent w = {back, step, kept};
  treadle_status status;
  b->middle = back->buffers.latent.narrow;
  b->middle_columns = back->width.narrow;
  b->latent_found = kept->latent_found;
  TRY(treadle_pass_latent_down(back->pass, layer, step->rows));
  treadle_team_run(back->pass->team, keep_raw, &w);
  TRY(treadle_pass_latent_up(back->pass, layer, step->rows));
  b->middle = kept->found;
  b->middle_columns = back->width.found;
  TRY(treadle_pass_latent_attend(back->pass, layer, step));
out:
  return status;
}

/* ---- Head by head: from values to what was found, from queries to what they were multiplied by ------------- */

/* Rows of a matrix, which all lie in one segment. */
typedef struct part_of {
  treadle_weight weight;
  treadle_segment segment;
} part_of;

static void take_part(const treadle_weight *of, int64_t row, int64_t rows, part_of *part_p) {
  part_p->weight = *of;
  part_p->segment = of->segments[0];
  part_p->segment.at += (size_t)(row * part_p->segment.stride) * treadle_dtype_bytes(of->dtype);
  part_p->segment.rows = rows;
  part_p->weight.row_count = rows;
  part_p->weight.segments = &part_p->segment;
  part_p->weight.segment_count = 1;
}

/* A head's rows of kv_up, which gave or were given dy, and the rows that they multiplied. */
typedef struct head_rows {
  int64_t number, row, rows;
  const float *dy, *x; /* x: [rows, latent] */
  int64_t dy_stride, x_stride;
} head_rows;

/* The gradient of a head's part of kv_up; and that of x, which dx gets, as x lies: NULL if it is not wanted. */
static treadle_status back_head(const treadle_back *back, int32_t layer, int64_t rows,
                                const head_rows *head, float *dx) {
  const treadle_weight *whole = &back->grads[layer].weight[TREADLE_ROLE_KV_UP];
  part_of weight, grad;
  treadle_status status;
  take_part(&back->pass->layers[layer].weight[TREADLE_ROLE_KV_UP], head->row, head->rows, &weight);
  const treadle_back_term term = {&weight.weight, head->dy, head->dy_stride, head->rows};
  TRY(treadle_back_take_rows(back, head->x, head->x_stride, back->transformer->latent_dim, rows));
  if (back->adapters) TRY(treadle_train_adapter_head(back->adapters, &term, head->number, head->row, rows));
  if (treadle_is_there(whole)) { /* adapters may train in place of weights */
    take_part(whole, head->row, head->rows, &grad);
    TRY(treadle_back_weight(back, &term, &grad.weight, rows));
  }
  if (dx) TRY(treadle_back_through(back, &term, rows, dx, head->x_stride));
out:
  return status;
}

/* buffers.latent_found of the pass: the gradient of what heads found, from buffers.dmiddle. */
static treadle_status back_values(const treadle_back *back, int32_t layer, int64_t rows,
                                  const treadle_train_activations *kept) {
  const treadle_transformer *d = back->transformer;
  treadle_status status = TREADLE_OK;
  for (int64_t h = 0; h < back->pass->heads.count; h++) {
    const head_rows head = {.number = h,
                            .row = h * (d->nope_dim + d->value_dim) + d->nope_dim,
                            .rows = d->value_dim,
                            .dy = back->buffers.dmiddle + h * d->value_dim,
                            .dy_stride = back->width.found,
                            .x = kept->latent_found + h * d->latent_dim,
                            .x_stride = back->width.latent};
    TRY(back_head(back, layer, rows, &head, back->pass->buffers.latent_found + h * d->latent_dim));
  }
out:
  return status;
}

/* The gradients of kv_up's rows for keys. These rows were multiplied from their other side: so queries stand for dy, and
 * the gradients in buffers.latent_queries of the pass for x. */
static treadle_status back_keys(const treadle_back *back, int32_t layer, int64_t rows,
                                const treadle_train_activations *kept) {
  const treadle_transformer *d = back->transformer;
  treadle_status status = TREADLE_OK;
  for (int64_t h = 0; h < back->pass->heads.count; h++) {
    const head_rows head = {.number = h,
                            .row = h * (d->nope_dim + d->value_dim),
                            .rows = d->nope_dim,
                            .dy = kept->qkv + h * d->head_dim,
                            .dy_stride = back->width.qkv,
                            .x = back->pass->buffers.latent_queries + h * key_dim(back),
                            .x_stride = back->pass->heads.count * key_dim(back)};
    TRY(back_head(back, layer, rows, &head, NULL));
  }
out:
  return status;
}

/* ---- Attention ------------------------------------------------------------------------------------------ */

/* buffers.latent_queries of the pass become their gradients; buffers.latent.dlatent: those of keys and values by each leaf. */
static void attend(const latent *w, treadle_leaf_range leaves) {
  const treadle_back *back = w->back;
  const treadle_transformer *d = back->transformer;
  const treadle_pass *p = back->pass;
  const treadle_train_columns *at = &back->width;
  const int64_t group = p->heads.count / leaves.leaves, keys = key_dim(back), stride = keys + d->latent_dim;
  const float *key = w->kept->qkv + at->keys;
  float *dkey = back->buffers.latent.dlatent;
  const treadle_back_attention all = {.first = {.queries_per_head = group,
                                                .key_dim = keys,
                                                .value_dim = d->latent_dim,
                                                .scale = p->attention.scale,
                                                .dtype = p->options.dtype,
                                                .q = p->buffers.latent_queries,
                                                .k = key,
                                                .v = key,
                                                .q_stride = p->heads.count * keys,
                                                .k_stride = at->qkv,
                                                .v_stride = at->qkv,
                                                .out = w->kept->latent_found,
                                                .dout = p->buffers.latent_found,
                                                .out_stride = at->latent,
                                                .dout_stride = at->latent,
                                                .dq = p->buffers.latent_queries,
                                                .dk = dkey,
                                                .dv = dkey + keys,
                                                .dq_stride = p->heads.count * keys,
                                                .dk_stride = stride,
                                                .dv_stride = stride},
                                      .heads = leaves.leaves,
                                      .q_step = group * keys,
                                      .out_step = group * d->latent_dim,
                                      .dk_step = w->step->rows * stride,
                                      .dv_step = w->step->rows * stride};
  treadle_back_attend(back, w->step, &all);
}

typedef struct leaf_rows {
  const treadle_back *back;
  treadle_leaf_range leaves;
  int64_t rows;
  float *nodes; /* [nodes, rows, latent + rope] */
} leaf_rows;

/* The gradients of keys, out of those of leaves. */
static void join_leaves(void *context, int32_t index, int32_t count) {
  const leaf_rows *w = context;
  const treadle_transformer *d = w->back->transformer;
  const int64_t keys = key_dim(w->back), stride = keys + d->latent_dim, end = w->rows * (index + 1) / count;
  treadle_leaf_node nodes[TREADLE_LEAF_NODES_MAX], single[TREADLE_LEAVES_MOST];
  const float *values[TREADLE_LEAVES_MOST];
  const int32_t node_count = treadle_leaf_nodes(w->leaves, nodes);
  for (int32_t i = 0; i < w->leaves.leaves; i++) single[i] = (treadle_leaf_node){i, 1};
  for (int64_t r = w->rows * index / count; r < end; r++) {
    for (int32_t i = 0; i < w->leaves.leaves; i++) {
      float *dkey = w->back->buffers.latent.dlatent + (i * w->rows + r) * stride;
      w->back->ops->add(dkey, dkey + keys, d->latent_dim);
      values[i] = dkey;
    }
    for (int32_t n = 0; n < node_count; n++)
      treadle_leaf_combine(nodes[n].leaves, single, values + nodes[n].first - w->leaves.first,
                           nodes[n].leaves, w->nodes + (n * w->rows + r) * keys, keys);
  }
}

/* buffers.latent.dkeys: of all ranks. */
static treadle_status sum_keys(const treadle_back *back, int32_t layer, int64_t rows) {
  float *dkeys = back->buffers.latent.dkeys;
  leaf_rows w = {back, leaves_of(back, layer), rows, treadle_train_room_of(back->pass, dkeys)};
  treadle_team_run(back->pass->team, join_leaves, &w);
  if (!back->pass->ranks.within) return TREADLE_OK;
  return treadle_parallel_sum(back->pass->ranks.within, brought_of(back, layer), rows, key_dim(back), dkeys,
                              "gradients of latent keys");
}

/* ---- From keys and queries to what they were multiplied from ----------------------------------------------- */

/* Parts by position: of queries out of their gradients beside the latent's, of keys where they lie. */
static void back_row(const latent *w, int64_t row, int64_t position) {
  const treadle_back *back = w->back;
  const treadle_transformer *d = back->transformer;
  const treadle_pass *p = back->pass;
  const int64_t keys = key_dim(back);
  float *q = back->buffers.dqkv + row * back->width.qkv, *key = q + back->width.keys + d->latent_dim;
  const float *query = p->buffers.latent_queries + row * p->heads.count * keys;
  for (int64_t h = 0; h < p->heads.count; h++)
    memcpy(q + h * d->head_dim + d->nope_dim, query + h * keys + d->latent_dim,
           (size_t)d->rope_dim * sizeof(float));
  memcpy(key, back->buffers.latent.dkeys + row * keys + d->latent_dim, (size_t)d->rope_dim * sizeof(float));
  treadle_rope_undo(&p->rope, p->row_ops, q + d->nope_dim, d->head_dim, p->heads.count, position);
  treadle_rope_undo(&p->rope, p->row_ops, key, d->rope_dim, 1, position);
}

static void back_rows(void *context, int32_t index, int32_t count) {
  const latent *w = context;
  int64_t begin = w->step->rows * index / count, end = w->step->rows * (index + 1) / count, first = 0;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows)
    for (int64_t r = 0; r < w->step->stretches[s].rows; r++)
      if (first + r >= begin && first + r < end) back_row(w, first + r, w->step->stretches[s].position + r);
}

/* buffers.dqkv: of queries, latents and parts of keys by position as they were multiplied; from buffers.dmiddle. */
static treadle_status back_attention(const treadle_back *back, int32_t layer, latent *w) {
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const int64_t rows = w->step->rows;
  const treadle_back_inner_norm norm = {.norm = &weight[TREADLE_ROLE_KV_DOWN_NORM],
                                        .grad = &grad[TREADLE_ROLE_KV_DOWN_NORM],
                                        .x = w->kept->latent,
                                        .dy = back->buffers.latent.dkeys,
                                        .dx = back->buffers.dqkv + back->width.keys,
                                        .x_stride = back->transformer->latent_dim,
                                        .dy_stride = key_dim(back),
                                        .dx_stride = back->width.qkv,
                                        .rows = rows};
  treadle_pass_buffers *b = &back->pass->buffers;
  const treadle_pass_buffers own = *b;
  treadle_status status;
  treadle_train_adapter_begin_heads(back->adapters);
  TRY(back_values(back, layer, rows, w->kept));
  b->wide = w->kept->qkv;
  b->wide_columns = back->width.qkv;
  TRY(treadle_pass_latent_queries(back->pass, layer, rows));
  attend(w, leaves_of(back, layer));
  TRY(sum_keys(back, layer, rows));
  TRY(back_keys(back, layer, rows, w->kept));
  TRY(treadle_train_adapter_end_heads(back->adapters, rows));
  b->wide = back->buffers.dqkv;
  TRY(treadle_pass_latent_queries_back(back->pass, layer, rows));
  treadle_team_run(back->pass->team, back_rows, w);
  treadle_back_norm_inner(back, &norm);
out:
  *b = own;
  return status;
}

/* ---- Projections ----------------------------------------------------------------------------------------- */

/* What queries were multiplied from, in the leaves of o: y [rows, columns]. */
static treadle_status back_queries(const treadle_back *back, int32_t layer,
                                   const treadle_back_term *queries, int64_t rows, float *y) {
  const int64_t columns = queries->weight->column_count;
  const treadle_back_inputs inputs = {.terms = queries,
                                      .count = 1,
                                      .leaves = leaves_of(back, layer),
                                      .rows = rows,
                                      .dx = treadle_train_room_of(back->pass, y),
                                      .stride = columns};
  treadle_status status;
  TRY(treadle_back_input(back, &inputs));
  if (back->pass->ranks.within)
    TRY(treadle_parallel_sum(back->pass->ranks.within, brought_of(back, layer), rows, columns, y,
                             "gradients of what queries are made of"));
out:
  return status;
}

static treadle_back_term queries_of(const treadle_back *back, const treadle_weight *weight) {
  return (treadle_back_term){weight, back->buffers.dqkv, back->width.qkv,
                             weight->rows / back->pass->attention_leaves};
}

/* From narrow queries, by way of their norm: buffers.latent.dnarrow is then of what q_down gave. */
static treadle_status back_narrow(const treadle_back *back, int32_t layer, int64_t rows,
                                  const treadle_train_activations *kept) {
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const treadle_back_term up = queries_of(back, &weight[TREADLE_ROLE_Q_UP]);
  const int64_t columns = back->width.narrow;
  float *narrow = back->buffers.latent.narrow, *dnarrow = back->buffers.latent.dnarrow;
  treadle_pass_buffers *b = &back->pass->buffers;
  const treadle_pass_buffers own = *b;
  const treadle_back_inner_norm norm = {.norm = &weight[TREADLE_ROLE_Q_DOWN_NORM],
                                        .grad = &grad[TREADLE_ROLE_Q_DOWN_NORM],
                                        .x = kept->narrow,
                                        .dy = dnarrow,
                                        .dx = narrow,
                                        .x_stride = columns,
                                        .dy_stride = columns,
                                        .dx_stride = columns,
                                        .rows = rows};
  treadle_status status;
  memcpy(narrow, kept->narrow, (size_t)(rows * columns) * sizeof *narrow);
  b->middle = narrow;
  b->middle_columns = columns;
  treadle_pass_norm_narrow(back->pass, layer, rows);
  *b = own;
  TRY(treadle_back_take_rows(back, narrow, columns, columns, rows));
  TRY(treadle_back_weight(back, &up, &grad[TREADLE_ROLE_Q_UP], rows));
  TRY(back_queries(back, layer, &up, rows, dnarrow));
  treadle_back_norm_inner(back, &norm);
out:
  return status;
}

typedef struct adding {
  const treadle_back *back;
  int64_t count;
} adding;

static void add_keys(void *context, int32_t index, int32_t count) {
  const adding *w = context;
  const int64_t first = w->count * index / count, end = w->count * (index + 1) / count;
  w->back->ops->add(w->back->buffers.dnormed + first, w->back->buffers.normed2 + first, end - first);
}

/* buffers.dnormed, from buffers.dqkv; and the gradients of what multiplied buffers.normed. */
static treadle_status back_down(const treadle_back *back, int32_t layer, int64_t rows, bool narrow) {
  const treadle_train_buffers *own = &back->buffers;
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const int64_t hidden = back->transformer->hidden;
  const treadle_weight *down = &weight[TREADLE_ROLE_Q_DOWN], *kv_down = &weight[TREADLE_ROLE_KV_DOWN];
  const treadle_back_term both[] = {{kv_down, own->dqkv + back->width.keys, back->width.qkv, kv_down->rows},
                                    {down, own->latent.narrow, back->width.narrow, down->rows}};
  const treadle_back_term q = queries_of(back, &weight[TREADLE_ROLE_Q]);
  const treadle_back_inputs inputs = {.terms = both,
                                      .count = narrow ? 2 : 1,
                                      .leaves = {0, 1, 1},
                                      .rows = rows,
                                      .dx = narrow ? own->dnormed : own->normed2,
                                      .stride = hidden};
  adding add = {back, rows * hidden};
  treadle_status status;
  TRY(treadle_back_take_rows(back, own->normed, hidden, hidden, rows));
  TRY(treadle_back_weight(back, &both[0], &grad[TREADLE_ROLE_KV_DOWN], rows));
  if (narrow)
    TRY(treadle_back_weight(back, &both[1], &grad[TREADLE_ROLE_Q_DOWN], rows));
  else
    TRY(treadle_back_weight(back, &q, &grad[TREADLE_ROLE_Q], rows));
  TRY(treadle_back_input(back, &inputs));
  if (narrow) goto out;
  TRY(back_queries(back, layer, &q, rows, own->dnormed));
  treadle_team_run(back->pass->team, add_keys, &add);
out:
  return status;
}

treadle_status treadle_back_latent(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                   const treadle_train_activations *kept) {
  const treadle_train_buffers *own = &back->buffers;
  const treadle_weight *weight = back->pass->layers[layer].weight, *grad = back->grads[layer].weight;
  const int64_t hidden = back->transformer->hidden, found = back->width.found, rows = step->rows;
  const treadle_back_term o = {&weight[TREADLE_ROLE_O], own->dx, hidden, hidden};
  const bool narrow = treadle_is_there(&weight[TREADLE_ROLE_Q_DOWN]);
  latent w = {back, step, kept};
  treadle_status status;
  TRY(treadle_back_take_rows(back, kept->found, found, found, rows));
  TRY(treadle_back_weight(back, &o, &grad[TREADLE_ROLE_O], rows));
  TRY(treadle_back_bias(back, &grad[TREADLE_ROLE_O_BIAS], own->dx, hidden, rows));
  TRY(treadle_back_through(back, &o, rows, own->dmiddle, found));
  TRY(back_attention(back, layer, &w));
  if (narrow) TRY(back_narrow(back, layer, rows, kept));
  TRY(back_down(back, layer, rows, narrow));
out:
  return status;
}

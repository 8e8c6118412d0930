/* The adjoints of the parts of a layer. The layer is run again from what it was given, as it was run before; then what follows from the
 * gradient of what it gave goes back through the MLP and attention.
 *
 * Order of additions of the products for gradients of inputs: gate and up in the leaves of down, of each the columns of gate and then those
 * of up; q, k and v in leaves of key and value heads, of each its queries, its keys, its values; o and down in one. */
#include "train/trainer.h"

#include <string.h>

typedef struct places { /* columns of q, k and v side by side */
  int64_t k, v, all;
} places;

static places places_of(const treadle_trainer *t) {
  const treadle_transformer *d = t->transformer;
  places at = {.k = t->pass->heads.count * d->head_dim};
  at.v = at.k + t->pass->heads.kv_count * d->head_dim;
  at.all = at.v + t->pass->heads.kv_count * d->value_dim;
  return at;
}

static bool is_there(const treadle_weight *weight) { return weight->segment_count > 0; }

/* ---- The layer again --------------------------------------------------------------------------------- */

/* What follows needs: qkv, raw, found (of attention); x between the halves; normed and normed2; gate_up and middle (of the MLP). */
static treadle_status run_again(treadle_trainer *t, int32_t layer, const treadle_pass_step *step) {
  treadle_pass *p = t->pass;
  treadle_pass_buffers *b = &p->buffers, kept = *b;
  const treadle_train_buffers *own = &t->buffers;
  const treadle_weight *weight = p->layers[layer].weight;
  size_t stream = (size_t)(step->rows * t->transformer->hidden) * sizeof(float);
  treadle_gated mlp = treadle_pass_mlp_of(p, layer);
  treadle_status status;
  memcpy(own->x, own->kept + layer * t->rows * t->transformer->hidden, stream);
  b->x = own->x;
  b->normed = own->normed;
  b->wide = own->qkv;
  b->middle = own->found;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_ATTENTION_NORM], step->rows);
  TRY(treadle_pass_project(p, layer, step->rows));
  if (is_there(&weight[TREADLE_ROLE_Q_NORM]) || is_there(&weight[TREADLE_ROLE_K_NORM]))
    memcpy(own->raw, own->qkv, (size_t)(step->rows * b->wide_columns) * sizeof(float));
  TRY(treadle_pass_attend_rows(p, layer, step));
  b->normed = own->normed2;
  b->wide = own->gate_up;
  b->middle = own->middle;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_MLP_NORM], step->rows);
  TRY(treadle_pass_gate_up(p, &mlp, own->normed2, step->rows));
out:
  kept.packed = b->packed;
  *b = kept;
  return status;
}

/* ---- The MLP ----------------------------------------------------------------------------------------- */

typedef struct activation {
  treadle_trainer *t;
  int64_t rows, count;
} activation;

static void back_activation(void *context, int32_t index, int32_t count) {
  const activation *w = context;
  const treadle_pass_buffers *b = &w->t->pass->buffers;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    float *gate = w->t->buffers.gate_up + r * b->wide_columns;
    w->t->back->silu(gate, gate + w->count, w->t->buffers.dmiddle + r * b->middle_columns, gate,
                     gate + w->count, w->count);
  }
}

static treadle_status back_mlp(treadle_trainer *t, int32_t layer, int64_t rows) {
  const treadle_train_buffers *own = &t->buffers;
  const treadle_pass_buffers *b = &t->pass->buffers;
  const treadle_weight *weight = t->pass->layers[layer].weight, *grad = t->grads[layer].weight;
  const int64_t hidden = t->transformer->hidden, count = weight[TREADLE_ROLE_DOWN].column_count;
  const treadle_back_term down = {&weight[TREADLE_ROLE_DOWN], own->dx, hidden};
  const treadle_back_term both[] = {{&weight[TREADLE_ROLE_GATE], own->gate_up, b->wide_columns},
                                    {&weight[TREADLE_ROLE_UP], own->gate_up + count, b->wide_columns}};
  activation a = {.t = t, .rows = rows, .count = count};
  const treadle_back_norm_rows norm = {.norm = &weight[TREADLE_ROLE_MLP_NORM],
                                       .grad = &grad[TREADLE_ROLE_MLP_NORM],
                                       .x = own->x,
                                       .dy = own->dnormed,
                                       .dx = own->dx,
                                       .rows = rows};
  treadle_status status;
  treadle_back_take_rows(t, own->middle, b->middle_columns, count, rows);
  TRY(treadle_back_weight(t, &down, &grad[TREADLE_ROLE_DOWN], rows));
  treadle_back_bias(t, &grad[TREADLE_ROLE_DOWN_BIAS], own->dx, hidden, rows);
  TRY(treadle_back_input(t, &down, 1, 1, rows, own->dmiddle, b->middle_columns));
  treadle_team_run(t->pass->team, back_activation, &a);
  treadle_back_take_rows(t, own->normed2, hidden, hidden, rows);
  TRY(treadle_back_weight(t, &both[0], &grad[TREADLE_ROLE_GATE], rows));
  TRY(treadle_back_weight(t, &both[1], &grad[TREADLE_ROLE_UP], rows));
  treadle_back_bias(t, &grad[TREADLE_ROLE_GATE_BIAS], both[0].dy, b->wide_columns, rows);
  treadle_back_bias(t, &grad[TREADLE_ROLE_UP_BIAS], both[1].dy, b->wide_columns, rows);
  TRY(treadle_back_input(t, both, 2, t->pass->mlp_leaves, rows, own->dnormed, hidden));
  treadle_back_norm(t, &norm);
out:
  return status;
}

/* ---- Attention --------------------------------------------------------------------------------------- */

typedef struct attention {
  treadle_trainer *t;
  const treadle_pass_step *step;
} attention;

static void back_heads(const attention *w, int64_t first, int64_t rows, int64_t head, void *scratch) {
  const treadle_trainer *t = w->t;
  const treadle_transformer *d = t->transformer;
  const treadle_train_buffers *own = &t->buffers;
  const treadle_pass_buffers *b = &t->pass->buffers;
  places at = places_of(t);
  int64_t group = t->pass->heads.count / t->pass->heads.kv_count;
  const float *qkv = own->qkv + first * b->wide_columns;
  float *dqkv = own->dqkv + first * b->wide_columns;
  int64_t q = head * group * d->head_dim, k = at.k + head * d->head_dim, v = at.v + head * d->value_dim;
  const treadle_attention_back one = {
      .rows = rows,
      .queries_per_head = group,
      .key_dim = d->head_dim,
      .value_dim = d->value_dim,
      .scale = t->pass->attention.scale,
      .dtype = t->pass->options.dtype,
      .q = qkv + q,
      .k = qkv + k,
      .v = qkv + v,
      .q_stride = b->wide_columns,
      .k_stride = b->wide_columns,
      .v_stride = b->wide_columns,
      .out = own->found + first * b->middle_columns + head * group * d->value_dim,
      .dout = own->dmiddle + first * b->middle_columns + head * group * d->value_dim,
      .out_stride = b->middle_columns,
      .dout_stride = b->middle_columns,
      .dq = dqkv + q,
      .dk = dqkv + k,
      .dv = dqkv + v,
      .dq_stride = b->wide_columns,
      .dk_stride = b->wide_columns,
      .dv_stride = b->wide_columns,
  };
  treadle_attention_back_run(&one, t->pass->options.kernels, scratch);
}

/* An item is a sequence and a key and value head; threads take them in turn. */
static void back_attend(void *context, int32_t index, int32_t count) {
  const attention *w = context;
  char *scratch = w->t->buffers.scratch + (size_t)index * w->t->buffers.scratch_bytes;
  int64_t first = 0, item = 0;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows)
    for (int64_t head = 0; head < w->t->pass->heads.kv_count; head++)
      if (item++ % count == index) back_heads(w, first, w->step->stretches[s].rows, head, scratch);
}

static void back_rope(void *context, int32_t index, int32_t count) {
  const attention *w = context;
  const treadle_trainer *t = w->t;
  const treadle_pass *p = t->pass;
  int64_t begin = w->step->rows * index / count, end = w->step->rows * (index + 1) / count, first = 0;
  int64_t dim = t->transformer->head_dim;
  places at = places_of(t);
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows)
    for (int64_t r = 0; r < w->step->stretches[s].rows; r++) {
      if (first + r < begin || first + r >= end) continue;
      float *row = t->buffers.dqkv + (first + r) * p->buffers.wide_columns;
      treadle_rope_undo(&p->rope, p->row_ops, row, dim, p->heads.count, r);
      treadle_rope_undo(&p->rope, p->row_ops, row + at.k, dim, p->heads.kv_count, r);
    }
}

/* From what follows attention to q, k and v as they were multiplied. */
static void back_prepare(treadle_trainer *t, int32_t layer, const treadle_pass_step *step) {
  const treadle_weight *weight = t->pass->layers[layer].weight, *grad = t->grads[layer].weight;
  const treadle_train_buffers *own = &t->buffers;
  const int64_t stride = t->pass->buffers.wide_columns;
  places at = places_of(t);
  attention w = {.t = t, .step = step};
  treadle_back_heads q = {.norm = &weight[TREADLE_ROLE_Q_NORM],
                          .grad = &grad[TREADLE_ROLE_Q_NORM],
                          .x = own->raw,
                          .dy = own->dqkv,
                          .stride = stride,
                          .heads = t->pass->heads.count,
                          .dim = t->transformer->head_dim,
                          .rows = step->rows};
  treadle_back_heads k = q;
  k.norm = &weight[TREADLE_ROLE_K_NORM];
  k.grad = &grad[TREADLE_ROLE_K_NORM];
  k.x = own->raw + at.k;
  k.dy = own->dqkv + at.k;
  k.heads = t->pass->heads.kv_count;
  treadle_team_run(t->pass->team, back_attend, &w);
  if (t->transformer->layer[layer].rotates) treadle_team_run(t->pass->team, back_rope, &w);
  if (is_there(q.norm)) treadle_back_norm_heads(t, &q);
  if (is_there(k.norm)) treadle_back_norm_heads(t, &k);
  treadle_back_bias(t, &grad[TREADLE_ROLE_Q_BIAS], own->dqkv, stride, step->rows);
  treadle_back_bias(t, &grad[TREADLE_ROLE_K_BIAS], own->dqkv + at.k, stride, step->rows);
  treadle_back_bias(t, &grad[TREADLE_ROLE_V_BIAS], own->dqkv + at.v, stride, step->rows);
}

static treadle_status back_attention(treadle_trainer *t, int32_t layer, const treadle_pass_step *step) {
  const treadle_train_buffers *own = &t->buffers;
  const treadle_pass_buffers *b = &t->pass->buffers;
  const treadle_weight *weight = t->pass->layers[layer].weight, *grad = t->grads[layer].weight;
  const int64_t hidden = t->transformer->hidden, rows = step->rows;
  places at = places_of(t);
  const treadle_back_term o = {&weight[TREADLE_ROLE_O], own->dx, hidden};
  const treadle_back_term all[] = {{&weight[TREADLE_ROLE_Q], own->dqkv, b->wide_columns},
                                   {&weight[TREADLE_ROLE_K], own->dqkv + at.k, b->wide_columns},
                                   {&weight[TREADLE_ROLE_V], own->dqkv + at.v, b->wide_columns}};
  const treadle_back_norm_rows norm = {.norm = &weight[TREADLE_ROLE_ATTENTION_NORM],
                                       .grad = &grad[TREADLE_ROLE_ATTENTION_NORM],
                                       .x = own->kept + layer * t->rows * hidden,
                                       .dy = own->dnormed,
                                       .dx = own->dx,
                                       .rows = rows};
  treadle_status status;
  treadle_back_take_rows(t, own->found, b->middle_columns, weight[TREADLE_ROLE_O].column_count, rows);
  TRY(treadle_back_weight(t, &o, &grad[TREADLE_ROLE_O], rows));
  treadle_back_bias(t, &grad[TREADLE_ROLE_O_BIAS], own->dx, hidden, rows);
  TRY(treadle_back_input(t, &o, 1, 1, rows, own->dmiddle, b->middle_columns));
  back_prepare(t, layer, step);
  treadle_back_take_rows(t, own->normed, hidden, hidden, rows);
  TRY(treadle_back_weight(t, &all[0], &grad[TREADLE_ROLE_Q], rows));
  TRY(treadle_back_weight(t, &all[1], &grad[TREADLE_ROLE_K], rows));
  TRY(treadle_back_weight(t, &all[2], &grad[TREADLE_ROLE_V], rows));
  TRY(treadle_back_input(t, all, 3, t->key_leaves, rows, own->dnormed, hidden));
  treadle_back_norm(t, &norm);
out:
  return status;
}

treadle_status treadle_back_layer(treadle_trainer *t, int32_t layer, const treadle_pass_step *step) {
  treadle_status status;
  TRY(run_again(t, layer, step));
  TRY(back_mlp(t, layer, step->rows));
  TRY(back_attention(t, layer, step));
out:
  return status;
}

/* Attention with grouped heads: q, k and v of all rows, the keys and values into the cache, then every row over what the cache has of
 * its sequence, and o. */
#include "pass/pass_steps.h"

/* Columns of buffers.wide: q of this rank's heads, then k, then v of the heads that these need. */
typedef struct places {
  int64_t k, v;
} places;

static places places_of(const treadle_pass *p) {
  places at = {.k = p->heads.count * p->transformer->head_dim};
  at.v = at.k + p->heads.kv_count * p->transformer->head_dim;
  return at;
}

static void norm_heads(const treadle_pass *p, float *heads, int64_t count, const treadle_weight *norm) {
  int64_t dim = p->transformer->head_dim;
  if (!norm->segment_count) return;
  for (int64_t h = 0; h < count; h++)
    p->row_ops->norm(heads + h * dim, heads + h * dim, treadle_pass_at(p, &norm->segments[0]), norm->dtype,
                     dim, p->transformer->eps);
}

typedef struct prepare {
  treadle_pass *pass;
  const treadle_pass_step *step;
  int32_t layer;
} prepare;

static void prepare_row(const prepare *w, int64_t row, int64_t position) {
  const treadle_pass *p = w->pass;
  const treadle_transformer *d = p->transformer;
  const treadle_weight *weight = p->layers[w->layer].weight;
  places at = places_of(p);
  float *q = p->buffers.wide + row * p->buffers.wide_columns, *k = q + at.k, *v = q + at.v;
  if (!p->ranks.gather.columns) {
    treadle_pass_add_bias(p, q, &weight[TREADLE_ROLE_Q_BIAS]);
    treadle_pass_add_bias(p, k, &weight[TREADLE_ROLE_K_BIAS]);
    treadle_pass_add_bias(p, v, &weight[TREADLE_ROLE_V_BIAS]);
  }
  norm_heads(p, q, p->heads.count, &weight[TREADLE_ROLE_Q_NORM]);
  norm_heads(p, k, p->heads.kv_count, &weight[TREADLE_ROLE_K_NORM]);
  if (!d->layer[w->layer].rotates) return;
  treadle_rope_apply(&p->rope, p->row_ops, q, d->head_dim, p->heads.count, position);
  treadle_rope_apply(&p->rope, p->row_ops, k, d->head_dim, p->heads.kv_count, position);
}

/* Biases, norms, positions; then keys and values go into the cache. */
static void prepare_rows(void *context, int32_t index, int32_t count) {
  const prepare *w = context;
  const treadle_pass *p = w->pass;
  places at = places_of(p);
  int64_t begin = w->step->rows * index / count, end = w->step->rows * (index + 1) / count, first = 0;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows) {
    const treadle_pass_span *stretch = &w->step->stretches[s];
    int64_t from = begin > first ? begin : first;
    int64_t to = end < first + stretch->rows ? end : first + stretch->rows;
    if (from >= to) continue;
    for (int64_t r = from; r < to; r++) prepare_row(w, r, stretch->position + r - first);
    const float *wide = p->buffers.wide + from * p->buffers.wide_columns;
    treadle_kv_blocks blocks = treadle_pass_blocks(p, w->layer, stretch);
    treadle_kv_rows rows = {.keys = wide + at.k,
                            .values = wide + at.v,
                            .key_stride = p->buffers.wide_columns,
                            .value_stride = p->buffers.wide_columns,
                            .position = stretch->position + from - first,
                            .count = to - from};
    treadle_kv_write(&p->kv, &blocks, &rows);
  }
}

/* Stretches that go on from others' rows. */
static void copy_tails(const treadle_pass *p, const treadle_pass_step *step, int32_t layer) {
  places at = places_of(p);
  for (int32_t s = 0; s < step->stretch_count; s++) {
    const treadle_pass_span *stretch = &step->stretches[s];
    if (!stretch->tail_count) continue;
    const float *wide = p->buffers.wide + stretch->tail_row * p->buffers.wide_columns;
    treadle_kv_blocks blocks = treadle_pass_blocks(p, layer, stretch);
    treadle_kv_rows rows = {.keys = wide + at.k,
                            .values = wide + at.v,
                            .key_stride = p->buffers.wide_columns,
                            .value_stride = p->buffers.wide_columns,
                            .position = stretch->position - stretch->tail_count,
                            .count = stretch->tail_count};
    treadle_kv_write(&p->kv, &blocks, &rows);
  }
}

treadle_status treadle_pass_project(treadle_pass *pass, int32_t layer, int64_t rows) {
  const treadle_weight *weight = pass->layers[layer].weight;
  treadle_pass_buffers *b = &pass->buffers;
  places at = places_of(pass);
  treadle_product in = {.x = b->normed,
                        .rows = rows,
                        .stride = pass->transformer->hidden,
                        .leaves = 1,
                        .terms = {{&weight[TREADLE_ROLE_Q], 0},
                                  {&weight[TREADLE_ROLE_K], at.k},
                                  {&weight[TREADLE_ROLE_V], at.v}},
                        .terms_count = 3,
                        .y = b->wide,
                        .y_stride = b->wide_columns};
  if (pass->ranks.gather.columns) return treadle_pass_gather_heads(pass, layer, rows);
  return treadle_pass_product(pass, &in);
}

treadle_status treadle_pass_attend_rows(treadle_pass *pass, int32_t layer, const treadle_pass_step *step) {
  treadle_pass_buffers *b = &pass->buffers;
  prepare w = {.pass = pass, .step = step, .layer = layer};
  treadle_attention_view view = {.queries = b->wide,
                                 .query_stride = b->wide_columns,
                                 .out = b->middle,
                                 .out_stride = b->middle_columns};
  treadle_status status;
  treadle_pass_share(pass, prepare_rows, &w, step->rows * b->wide_columns);
  copy_tails(pass, step, layer);
  treadle_pass_attend(pass, layer, step, &view);
  TRY(treadle_pass_add_heads(pass, layer, step->rows));
out:
  return status;
}

treadle_status treadle_pass_attention(treadle_pass *pass, int32_t layer, const treadle_pass_step *step) {
  treadle_status status;
  TRY(treadle_pass_project(pass, layer, step->rows));
  TRY(treadle_pass_attend_rows(pass, layer, step));
out:
  return status;
}

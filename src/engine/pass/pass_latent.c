/* Latent attention, in one form for one row and for many: the cache has the normed latent of a token and the part of its key that is
 * turned by position. Each head's query is taken to the latent by kv_up's rows of keys, and what it finds there is taken to a value by
 * kv_up's rows of values:
 *
 *   score = (q_nope W_uk) . latent + q_rope . k_rope          W_uk [nope, latent], W_uv [value, latent]: rows of kv_up
 *   o     = W_uv (sum of p * latent)
 *
 * W_uk is multiplied from its other side, so a copy of it is laid out [latent, nope] when the weights are bound.
 *
 * More products follow each other here than in grouped attention, and each would round what it multiplies to bf16. Nearly half of what
 * that does to gradients comes from what goes down, from q_nope and from the sum of p * latent (docs/speed.md); so these products are fine. */
#include "pass/pass_steps.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

typedef struct latent {
  treadle_pass *pass;
  const treadle_pass_step *step;
  int32_t layer;
} latent;

static int64_t key_dim(const treadle_transformer *d) { return d->latent_dim + d->rope_dim; }

/* ---- Queries and the latent ---------------------------------------------------------------------------- */

typedef struct narrow_rows {
  treadle_pass *pass;
  int32_t layer;
  int64_t rows;
} narrow_rows;

/* The norms of the narrow queries; the latent comes later, with its position. */
static void norm_narrow(void *context, int32_t index, int32_t count) {
  const narrow_rows *w = context;
  const treadle_pass *p = w->pass;
  const treadle_weight *norm = &p->layers[w->layer].weight[TREADLE_ROLE_Q_DOWN_NORM];
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    float *row = p->buffers.middle + r * p->buffers.middle_columns;
    p->row_ops->norm(row, row, treadle_pass_at(p, &norm->segments[0]), norm->dtype, norm->rows,
                     TREADLE_LATENT_EPS);
  }
}

void treadle_pass_norm_narrow(treadle_pass *p, int32_t layer, int64_t rows) {
  narrow_rows w = {.pass = p, .layer = layer, .rows = rows};
  if (p->layers[layer].weight[TREADLE_ROLE_Q_DOWN].segment_count)
    treadle_team_run(p->team, norm_narrow, &w);
}

treadle_status treadle_pass_latent_down(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_weight *weight = p->layers[layer].weight, *down = &weight[TREADLE_ROLE_Q_DOWN];
  treadle_pass_buffers *b = &p->buffers;
  int64_t kv = p->heads.count * p->transformer->head_dim;
  bool narrow = down->segment_count > 0;
  const treadle_product in = {.x = b->normed,
                              .rows = rows,
                              .stride = p->transformer->hidden,
                              .leaves = 1,
                              .terms = {{&weight[TREADLE_ROLE_KV_DOWN], kv}, {&weight[TREADLE_ROLE_Q], 0}},
                              .terms_count = narrow ? 1 : 2,
                              .y = b->wide,
                              .y_stride = b->wide_columns,
                              .fine = true};
  treadle_product queries = in;
  treadle_status status;
  TRY(treadle_pass_product(p, &in));
  if (!narrow) goto out;
  queries.terms[0] = (treadle_term){down, 0};
  queries.y = b->middle;
  queries.y_stride = b->middle_columns;
  TRY(treadle_pass_product(p, &queries));
out:
  return status;
}

treadle_status treadle_pass_latent_up(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_pass_buffers *b = &p->buffers;
  const treadle_product up = {.x = b->middle,
                              .rows = rows,
                              .stride = b->middle_columns,
                              .leaves = 1,
                              .terms = {{&p->layers[layer].weight[TREADLE_ROLE_Q_UP], 0}},
                              .terms_count = 1,
                              .y = b->wide,
                              .y_stride = b->wide_columns};
  if (!p->layers[layer].weight[TREADLE_ROLE_Q_DOWN].segment_count) return TREADLE_OK;
  treadle_pass_norm_narrow(p, layer, rows);
  return treadle_pass_product(p, &up);
}

/* The part of a row's queries that is turned by position, beside what is compared with the latent. */
static void copy_turned(const treadle_pass *p, int64_t row) {
  const treadle_transformer *d = p->transformer;
  const float *q = p->buffers.wide + row * p->buffers.wide_columns;
  float *query = p->buffers.latent_queries + row * p->heads.count * key_dim(d);
  for (int64_t h = 0; h < p->heads.count; h++)
    memcpy(query + h * key_dim(d) + d->latent_dim, q + h * d->head_dim + d->nope_dim,
           (size_t)d->rope_dim * sizeof(float));
}

static void prepare_row(const latent *w, int64_t row, int64_t position) {
  const treadle_pass *p = w->pass;
  const treadle_transformer *d = p->transformer;
  const treadle_weight *norm = &p->layers[w->layer].weight[TREADLE_ROLE_KV_DOWN_NORM];
  float *q = p->buffers.wide + row * p->buffers.wide_columns, *kv = q + p->heads.count * d->head_dim;
  p->row_ops->norm(kv, kv, treadle_pass_at(p, &norm->segments[0]), norm->dtype, d->latent_dim,
                   TREADLE_LATENT_EPS);
  treadle_rope_apply(&p->rope, p->row_ops, kv + d->latent_dim, d->rope_dim, 1, position);
  treadle_rope_apply(&p->rope, p->row_ops, q + d->nope_dim, d->head_dim, p->heads.count, position);
  copy_turned(p, row);
}

/* Rows of buffers.wide from `row` on, into the cache of a stretch. */
static void write_rows(const latent *w, const treadle_pass_span *stretch, int64_t row, int64_t position,
                       int64_t count) {
  const treadle_pass *p = w->pass;
  treadle_kv_blocks blocks = treadle_pass_blocks(p, w->layer, stretch);
  const treadle_kv_rows rows = {.keys = p->buffers.wide + row * p->buffers.wide_columns +
                                        p->heads.count * p->transformer->head_dim,
                                .key_stride = p->buffers.wide_columns,
                                .position = position,
                                .count = count};
  treadle_kv_write(&p->kv, &blocks, &rows);
}

static void prepare_rows(void *context, int32_t index, int32_t count) {
  const latent *w = context;
  int64_t begin = w->step->rows * index / count, end = w->step->rows * (index + 1) / count, first = 0;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows) {
    const treadle_pass_span *stretch = &w->step->stretches[s];
    int64_t from = begin > first ? begin : first;
    int64_t to = end < first + stretch->rows ? end : first + stretch->rows;
    if (from >= to) continue;
    for (int64_t r = from; r < to; r++) prepare_row(w, r, stretch->position + r - first);
    write_rows(w, stretch, from, stretch->position + from - first, to - from);
  }
}

/* Stretches that go on from others' rows. */
static void copy_tails(const latent *w) {
  for (int32_t s = 0; s < w->step->stretch_count; s++) {
    const treadle_pass_span *stretch = &w->step->stretches[s];
    if (stretch->tail_count)
      write_rows(w, stretch, stretch->tail_row, stretch->position - stretch->tail_count,
                 stretch->tail_count);
  }
}

/* ---- Head by head: to the latent, and from it ----------------------------------------------------------- */

typedef struct by_head {
  const treadle_gemm_kernel *kernel;
  treadle_gemm_inner inner;
  treadle_pass *pass;
  const float *x; /* [rows, heads, ...] */
  int64_t x_stride, x_head;
  float *y;
  int64_t y_stride, y_head;
  const char *weights;                                /* [heads, ...], in the compute dtype */
  int64_t weights_rows, weights_head, weights_stride; /* elements */
  int64_t rows;
} by_head;

static void multiply_heads(void *context, int32_t index, int32_t count) {
  const by_head *w = context;
  const treadle_pass *p = w->pass;
  int64_t each = (int64_t)treadle_dtype_bytes(w->inner.dtype);
  char *packed = (char *)p->buffers.packed + index * (int64_t)p->buffers.head_packed_bytes;
  for (int64_t h = index; h < p->heads.count; h += count) {
    treadle_gemm_source source = {
        .inner = w->inner, .x = w->x + h * w->x_head, .rows = w->rows, .stride = w->x_stride};
    treadle_gemm_segment segment = {.weights = w->weights + h * w->weights_head * each,
                                    .rows = w->weights_rows,
                                    .stride = w->weights_stride};
    treadle_gemm_product product = {.inner = w->inner,
                                    .packed = packed,
                                    .rows = w->rows,
                                    .segments = &segment,
                                    .count = 1,
                                    .y = w->y + h * w->y_head,
                                    .stride = w->y_stride};
    w->kernel->pack(&source, packed, 0, 1);
    w->kernel->run(&product, 0, 1);
  }
}

static treadle_status run_by_head(by_head *w, treadle_dtype dtype, int64_t inner) {
  treadle_status status;
  w->inner.dtype = dtype;
  w->inner.leaf = (int32_t)inner;
  w->inner.range = (treadle_leaf_range){0, 1, 1};
  TRY(treadle_gemm_choose(w->pass->options.kernels, dtype, (int32_t)inner, &w->kernel));
  treadle_team_run(w->pass->team, multiply_heads, w);
out:
  return status;
}

static treadle_status to_latent(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_transformer *d = p->transformer;
  by_head w = {.pass = p,
               .inner = {.fine = true},
               .x = p->buffers.wide,
               .x_stride = p->buffers.wide_columns,
               .x_head = d->head_dim,
               .y = p->buffers.latent_queries,
               .y_stride = p->heads.count * key_dim(d),
               .y_head = key_dim(d),
               .weights = p->latent_copies[layer],
               .weights_rows = d->latent_dim,
               .weights_head = d->latent_dim * d->nope_dim,
               .weights_stride = d->nope_dim,
               .rows = rows};
  return run_by_head(&w, p->layers[layer].weight[TREADLE_ROLE_KV_UP].dtype, d->nope_dim);
}

static treadle_status from_latent(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_transformer *d = p->transformer;
  const treadle_weight *up = &p->layers[layer].weight[TREADLE_ROLE_KV_UP];
  int64_t stride = up->segments[0].stride, each = (int64_t)treadle_dtype_bytes(up->dtype);
  by_head w = {.pass = p,
               .inner = {.fine = true},
               .x = p->buffers.latent_found,
               .x_stride = p->heads.count * d->latent_dim,
               .x_head = d->latent_dim,
               .y = p->buffers.middle,
               .y_stride = p->buffers.middle_columns,
               .y_head = d->value_dim,
               .weights = (const char *)treadle_pass_at(p, &up->segments[0]) + d->nope_dim * stride * each,
               .weights_rows = d->value_dim,
               .weights_head = (d->nope_dim + d->value_dim) * stride,
               .weights_stride = stride,
               .rows = rows};
  return run_by_head(&w, up->dtype, d->latent_dim);
}

treadle_status treadle_pass_latent_attend(treadle_pass *pass, int32_t layer,
                                          const treadle_pass_step *step) {
  treadle_pass_buffers *b = &pass->buffers;
  latent w = {.pass = pass, .step = step, .layer = layer};
  treadle_attention_view view = {.queries = b->latent_queries,
                                 .query_stride = pass->heads.count * key_dim(pass->transformer),
                                 .out = b->latent_found,
                                 .out_stride = pass->heads.count * pass->transformer->latent_dim};
  treadle_status status;
  treadle_team_run(pass->team, prepare_rows, &w);
  copy_tails(&w);
  TRY(to_latent(pass, layer, step->rows));
  treadle_pass_attend(pass, layer, step, &view);
  TRY(from_latent(pass, layer, step->rows));
  TRY(treadle_pass_add_heads(pass, layer, step->rows));
out:
  return status;
}

treadle_status treadle_pass_latent(treadle_pass *pass, int32_t layer, const treadle_pass_step *step) {
  treadle_status status;
  TRY(treadle_pass_latent_down(pass, layer, step->rows));
  TRY(treadle_pass_latent_up(pass, layer, step->rows));
  TRY(treadle_pass_latent_attend(pass, layer, step));
out:
  return status;
}

/* ---- For backward --------------------------------------------------------------------------------------- */

typedef struct queries {
  treadle_pass *pass;
  int64_t rows;
} queries;

static void copy_turned_rows(void *context, int32_t index, int32_t count) {
  const queries *w = context;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) copy_turned(w->pass, r);
}

treadle_status treadle_pass_latent_queries(treadle_pass *pass, int32_t layer, int64_t rows) {
  queries w = {pass, rows};
  treadle_team_run(pass->team, copy_turned_rows, &w);
  return to_latent(pass, layer, rows);
}

treadle_status treadle_pass_latent_queries_back(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_transformer *d = p->transformer;
  const treadle_weight *up = &p->layers[layer].weight[TREADLE_ROLE_KV_UP];
  int64_t stride = up->segments[0].stride;
  by_head w = {.pass = p,
               .x = p->buffers.latent_queries,
               .x_stride = p->heads.count * key_dim(d),
               .x_head = key_dim(d),
               .y = p->buffers.wide,
               .y_stride = p->buffers.wide_columns,
               .y_head = d->head_dim,
               .weights = treadle_pass_at(p, &up->segments[0]),
               .weights_rows = d->nope_dim,
               .weights_head = (d->nope_dim + d->value_dim) * stride,
               .weights_stride = stride,
               .rows = rows};
  return run_by_head(&w, up->dtype, d->latent_dim);
}

/* ---- The copies ----------------------------------------------------------------------------------------- */

typedef struct copying {
  const treadle_pass *pass;
  int32_t layer;
} copying;

/* Each thread has some of the heads. */
static void copy_heads(void *context, int32_t index, int32_t count) {
  const copying *w = context;
  const treadle_pass *p = w->pass;
  const treadle_transformer *d = p->transformer;
  const treadle_weight *up = &p->layers[w->layer].weight[TREADLE_ROLE_KV_UP];
  int64_t each = (int64_t)treadle_dtype_bytes(up->dtype), stride = up->segments[0].stride * each;
  int64_t end = p->heads.count * (index + 1) / count;
  for (int64_t h = p->heads.count * index / count; h < end; h++) {
    const char *from =
        (const char *)treadle_pass_at(p, &up->segments[0]) + h * (d->nope_dim + d->value_dim) * stride;
    char *to = p->latent_copies[w->layer] + h * d->latent_dim * d->nope_dim * each;
    for (int64_t c = 0; c < d->latent_dim; c++)
      for (int64_t n = 0; n < d->nope_dim; n++, to += each)
        memcpy(to, from + n * stride + c * each, (size_t)each);
  }
}

void treadle_pass_copy_latent(treadle_pass *p, int32_t layer) {
  copying w = {p, layer};
  if (p->transformer->attention == TREADLE_ATTENTION_MLA &&
      p->layers[layer].weight[TREADLE_ROLE_KV_UP].segment_count)
    treadle_team_run(p->team, copy_heads, &w);
}

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
  places at;           /* of what is stored */
  const float *stored; /* rows whose keys and values go into the cache */
  int64_t stored_columns;
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

/* Keys and values of rows [from, to) of a step go into the cache; the stretch that has them begins at row `first`. */
static void store(const prepare *w, const treadle_pass_span *stretch, int64_t first, int64_t from,
                  int64_t to) {
  const treadle_pass *p = w->pass;
  const float *wide = w->stored + from * w->stored_columns;
  treadle_kv_blocks blocks = treadle_pass_blocks(p, w->layer, stretch);
  treadle_kv_rows rows = {.keys = wide + w->at.k,
                          .values = wide + w->at.v,
                          .key_stride = w->stored_columns,
                          .value_stride = w->stored_columns,
                          .position = stretch->position + from - first,
                          .count = to - from};
  treadle_kv_write(&p->kv, &blocks, &rows);
}

/* Biases, norms, positions; then keys and values go into the cache, unless they are on their way to other ranks. */
static void prepare_rows(void *context, int32_t index, int32_t count) {
  const prepare *w = context;
  const int64_t before = w->step->before;
  int64_t begin = before + w->step->rows * index / count,
          end = before + w->step->rows * (index + 1) / count, first = 0;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows) {
    const treadle_pass_span *stretch = &w->step->stretches[s];
    int64_t from = begin > first ? begin : first;
    int64_t to = end < first + stretch->rows ? end : first + stretch->rows;
    if (from >= to) continue;
    for (int64_t r = from; r < to; r++) prepare_row(w, r - before, stretch->position + r - first);
    if (w->pass->context.ranks == 1) store(w, stretch, first, from, to);
  }
}

/* What came from all context parallel ranks. */
static void store_rows(void *context, int32_t index, int32_t count) {
  const prepare *w = context;
  int64_t rows = treadle_context_all_rows(w->step), first = 0;
  int64_t begin = rows * index / count, end = rows * (index + 1) / count;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows) {
    const treadle_pass_span *stretch = &w->step->stretches[s];
    int64_t from = begin > first ? begin : first;
    int64_t to = end < first + stretch->rows ? end : first + stretch->rows;
    if (from < to) store(w, stretch, first, from, to);
  }
}

/* Stretches that go on from others' rows. */
static void copy_tails(const prepare *w) {
  const treadle_pass *p = w->pass;
  for (int32_t s = 0; s < w->step->stretch_count; s++) {
    const treadle_pass_span *stretch = &w->step->stretches[s];
    if (!stretch->tail_count) continue;
    const float *wide = w->stored + stretch->tail_row * w->stored_columns;
    treadle_kv_blocks blocks = treadle_pass_blocks(p, w->layer, stretch);
    treadle_kv_rows rows = {.keys = wide + w->at.k,
                            .values = wide + w->at.v,
                            .key_stride = w->stored_columns,
                            .value_stride = w->stored_columns,
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
  const bool divided = pass->context.ranks > 1;
  const treadle_context_heads heads = treadle_context_heads_of(pass);
  prepare w = {.pass = pass,
               .step = step,
               .layer = layer,
               .at = {heads.keys, heads.values},
               .stored = divided ? b->all_wide : b->wide,
               .stored_columns = divided ? b->all_wide_columns : b->wide_columns};
  treadle_attention_view view = {.queries = w.stored,
                                 .query_stride = w.stored_columns,
                                 .out = divided ? b->all_middle : b->middle,
                                 .out_stride = divided ? b->all_middle_columns : b->middle_columns};
  treadle_status status = TREADLE_OK;
  treadle_pass_share(pass, prepare_rows, &w, step->rows * b->wide_columns);
  if (divided) TRY(treadle_context_spread_heads(pass, step, b->wide, b->wide_columns, b->all_wide));
  if (divided) treadle_team_run(pass->team, store_rows, &w);
  copy_tails(&w);
  treadle_pass_attend(pass, layer, step, &view);
  if (divided) TRY(treadle_context_collect_found(pass, step, b->all_middle, b->middle, b->middle_columns));
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

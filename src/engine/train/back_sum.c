/* Sums over tokens: gradients of norms and biases. Tokens are added in leaves of TREADLE_TOKEN_LEAF, in their order, and leaves one after
 * the other onto the gradient. A leaf is one thread's. */
#include "train/back_sum.h"
#include "train/back_product.h"
#include "train/context.h"
#include "train/sequence.h"

#include "base/dtype.h"

#include <string.h>

typedef struct leaves {
  const treadle_back *back;
  int64_t rows, columns; /* columns: of a part */
  void (*add)(const struct leaves *w, int64_t row, float *part);
  const void *context;
  int64_t stride;
  treadle_row_range own; /* rows that are added here */
} leaves;

static void add_leaves(void *context, int32_t index, int32_t count) {
  const leaves *w = context;
  int64_t first = (w->own.first + TREADLE_TOKEN_LEAF - 1) / TREADLE_TOKEN_LEAF,
          all = (w->own.end + TREADLE_TOKEN_LEAF - 1) / TREADLE_TOKEN_LEAF - first,
          end = first + all * (index + 1) / count;
  for (int64_t leaf = first + all * index / count; leaf < end; leaf++) {
    float *part = w->back->buffers.parts + leaf * w->columns;
    memset(part, 0, (size_t)w->columns * sizeof *part);
    for (int64_t row = leaf * TREADLE_TOKEN_LEAF; row < (leaf + 1) * TREADLE_TOKEN_LEAF && row < w->rows;
         row++)
      w->add(w, row, part);
  }
}

static int64_t leaves_of(int64_t rows) { return (rows + TREADLE_TOKEN_LEAF - 1) / TREADLE_TOKEN_LEAF; }

/* A vector is a matrix of one column: its rows lie one behind the other in each segment. */
static void add_part(const treadle_back *back, const treadle_weight *grad, const float *part) {
  for (int32_t s = 0; s < grad->segment_count; part += grad->segments[s++].rows)
    back->pass->row_ops->add((float *)(void *)(back->window + grad->segments[s].at), part, TREADLE_FP32,
                             grad->segments[s].rows);
}

/* Leaves of rows that are all here: of context parallel ranks the first adds them. */
static void add_parts(const leaves *w, const treadle_weight *grad) {
  for (int64_t leaf = 0; leaf < leaves_of(w->rows) && treadle_context_is_first(w->back); leaf++)
    add_part(w->back, grad, w->back->buffers.parts + leaf * w->columns);
}

/* Leaves of all context parallel ranks, in order. */
static treadle_status each_part(const leaves *w, void (*look)(void *context, const float *part),
                                void *context) {
  const treadle_pass_context *c = &w->back->pass->context;
  const int64_t own = leaves_of(w->rows);
  const treadle_exchange_part mine = treadle_exchange_slot(c->ranks, c->index, true, own, w->columns);
  int64_t count;
  treadle_status status;
  memcpy(treadle_exchange_room(c->exchange), w->back->buffers.parts,
         (size_t)(own * w->columns) * sizeof(float));
  TRY(treadle_parallel_slots(c->exchange, &mine, "sums over tokens"));
  for (int32_t m = 0; m < c->ranks; m++) {
    const float *part = treadle_parallel_slot(c->exchange, m, &count);
    for (; count > 0; count--, part += w->columns) look(context, part);
  }
out:
  return status;
}

typedef struct onto {
  const treadle_back *back;
  const treadle_weight *grad;
} onto;

static void add_onto(void *context, const float *part) {
  const onto *w = context;
  if (treadle_context_is_first(w->back)) add_part(w->back, w->grad, part);
}

/* The same of own rows. */
static treadle_status add_own_parts(const leaves *w, const treadle_weight *grad) {
  onto o = {w->back, grad};
  if (w->back->context.ranks > 1) return each_part(w, add_onto, &o);
  add_parts(w, grad);
  return TREADLE_OK;
}

static void add_bias(const leaves *w, int64_t row, float *part) {
  w->back->ops->add(part, (const float *)w->context + row * w->stride, w->columns);
}

treadle_status treadle_back_bias(const treadle_back *back, const treadle_weight *grad, const float *dy,
                                 int64_t stride, int64_t rows) {
  leaves w = {.back = back,
              .rows = rows,
              .columns = grad->row_count,
              .add = add_bias,
              .context = dy,
              .stride = stride,
              .own = {0, rows}};
  if (!grad->segment_count) return TREADLE_OK;
  treadle_team_run(back->pass->team, add_leaves, &w);
  return add_own_parts(&w, grad);
}

void treadle_back_bias_of_all(const treadle_back *back, const treadle_weight *grad, const float *dy,
                              int64_t rows) {
  leaves w = {.back = back,
              .rows = rows,
              .columns = grad->row_count,
              .add = add_bias,
              .context = dy,
              .stride = grad->row_count,
              .own = {0, rows}};
  if (!grad->segment_count) return;
  treadle_team_run(back->pass->team, add_leaves, &w);
  add_parts(&w, grad);
}

typedef struct weighted {
  const float *x, *by;
} weighted;

static void add_weighted(const leaves *w, int64_t row, float *part) {
  const weighted *rows = w->context;
  w->back->pass->row_ops->add_scaled(part, rows->x + row * w->columns, rows->by[row], w->columns);
}

void treadle_back_weighted(const treadle_back *back, const treadle_weight *grad, const float *x,
                           const float *by, int64_t rows) {
  const weighted context = {x, by};
  leaves w = {.back = back,
              .rows = rows,
              .columns = back->transformer->hidden,
              .add = add_weighted,
              .context = &context,
              .own = {0, rows}};
  treadle_team_run(back->pass->team, add_leaves, &w);
  for (int64_t leaf = 0; leaf < leaves_of(rows) && treadle_context_is_first(back); leaf++)
    back->pass->row_ops->add(treadle_back_grad(back, grad, 0), back->buffers.parts + leaf * w.columns,
                             TREADLE_FP32, w.columns);
}

static void add_norm(const leaves *w, int64_t row, float *part) {
  const treadle_back_norm_rows *n = w->context;
  int64_t hidden = w->columns, at = n->which ? n->which[row] : row;
  const int64_t place = !n->which ? at - w->own.first : w->back->context.ranks > 1 ? row : at;
  const treadle_normed_row of = {.x = n->x + place * hidden,
                                 .weight = treadle_pass_at(w->back->pass, &n->norm->segments[0]),
                                 .dtype = n->norm->dtype,
                                 .count = hidden,
                                 .eps = w->back->transformer->eps};
  float *dx = n->which ? n->apart + row * hidden : n->dx + at * hidden;
  if (n->which) memset(dx, 0, (size_t)hidden * sizeof *dx);
  w->back->ops->norm(dx, part, n->dy + row * hidden, &of);
}

/* Rows that share a prompt share a row of dx: to each they are added in their order, whichever leaves they are of. A thread has some columns. */
static void spread_rows(void *context, int32_t index, int32_t count) {
  const leaves *w = context;
  const treadle_back_norm_rows *n = w->context;
  const int64_t hidden = w->columns, first = hidden * index / count, end = hidden * (index + 1) / count;
  const bool all = w->back->context.ranks == 1;
  const treadle_row_range own = treadle_context_own(w->back);
  for (int64_t row = 0; row < w->rows; row++) {
    const int64_t to = all ? n->which[row] : n->which[row] - own.first;
    if (all || (to >= 0 && to < own.end - own.first))
      w->back->pass->row_ops->add(n->dx + to * hidden + first, n->apart + row * hidden + first,
                                  TREADLE_FP32, end - first);
  }
}

treadle_status treadle_back_norm(const treadle_back *back, const treadle_back_norm_rows *rows) {
  const int64_t hidden = back->transformer->hidden;
  bool divided = !rows->which && treadle_train_divides_rows(back);
  leaves w = {.back = back, .rows = rows->rows, .columns = hidden, .add = add_norm, .context = rows};
  treadle_status status = TREADLE_OK;
  w.own = divided ? treadle_train_own_rows(back, rows->rows) : (treadle_row_range){0, rows->rows};
  treadle_team_run(back->pass->team, add_leaves, &w);
  if (rows->which) treadle_team_run(back->pass->team, spread_rows, &w);
  if (divided) {
    TRY(treadle_train_gather_leaves(back, rows->rows, hidden));
    TRY(treadle_train_gather_rows(back, rows->dx + w.own.first * hidden, rows->rows, rows->dx,
                                  "gradients of the residual stream"));
  }
  if (rows->which)
    add_parts(&w, rows->grad);
  else
    TRY(add_own_parts(&w, rows->grad));
out:
  return status;
}

/* part: [heads, dim] */
static void add_heads(const leaves *w, int64_t row, float *part) {
  const treadle_back_heads *n = w->context;
  float dx[TREADLE_ROPE_WIDTH_MOST];
  treadle_normed_row of = {.weight = treadle_pass_at(w->back->pass, &n->norm->segments[0]),
                           .dtype = n->norm->dtype,
                           .count = n->dim,
                           .eps = w->back->transformer->eps};
  for (int64_t h = 0; h < n->heads; h++) {
    float *dy = n->dy + row * n->stride + h * n->dim;
    memset(dx, 0, (size_t)n->dim * sizeof *dx);
    of.x = n->x + row * n->stride + h * n->dim;
    w->back->ops->norm(dx, part + h * n->dim, dy, &of);
    memcpy(dy, dx, (size_t)n->dim * sizeof *dx);
  }
}

typedef struct head_sums {
  const leaves *of;
  float *sums;
} head_sums;

static void add_heads_part(void *context, const float *part) {
  const head_sums *w = context;
  w->of->back->pass->row_ops->add(w->sums, part, TREADLE_FP32, w->of->columns);
}

/* Of this rank's heads, [heads, dim]: the sums of their leaves. */
static treadle_status sum_heads(const leaves *w, float *sums) {
  head_sums all = {w, sums};
  memset(sums, 0, (size_t)w->columns * sizeof *sums);
  if (w->back->context.ranks > 1) return each_part(w, add_heads_part, &all);
  for (int64_t leaf = 0; leaf < leaves_of(w->rows); leaf++)
    add_heads_part(&all, w->back->buffers.parts + leaf * w->columns);
  return TREADLE_OK;
}

treadle_status treadle_back_norm_heads(const treadle_back *back, const treadle_back_heads *heads) {
  leaves w = {.back = back,
              .rows = heads->rows,
              .columns = heads->heads * heads->dim,
              .add = add_heads,
              .context = heads,
              .own = {0, heads->rows}};
  treadle_exchange *within = back->pass->ranks.within;
  float *sums = within ? treadle_exchange_room(within) : back->buffers.head_parts,
        total[TREADLE_ROPE_WIDTH_MOST];
  const treadle_exchange_part part = {.of = heads->all,
                                      .first = heads->first,
                                      .end = heads->first + heads->heads,
                                      .rows = 1,
                                      .columns = heads->dim};
  int64_t rows;
  treadle_status status = TREADLE_OK;
  treadle_team_run(back->pass->team, add_leaves, &w);
  TRY(sum_heads(&w, sums));
  if (within) TRY(treadle_parallel_slots(within, &part, "gradients of norms of heads"));
  memset(total, 0, (size_t)heads->dim * sizeof *total);
  for (int64_t h = 0; h < heads->all; h++) {
    const float *head = within ? treadle_parallel_slot(within, h, &rows) : sums + h * heads->dim;
    back->pass->row_ops->add(total, head, TREADLE_FP32, heads->dim);
  }
  for (int32_t s = 0; s < heads->grad->segment_count && treadle_context_is_first(back); s++) {
    const treadle_segment *segment = &heads->grad->segments[s];
    back->pass->row_ops->add((float *)(void *)(back->window + segment->at), total + segment->first,
                             TREADLE_FP32, segment->rows);
  }
out:
  return status;
}

static void add_inner(const leaves *w, int64_t row, float *part) {
  const treadle_back_inner_norm *n = w->context;
  const treadle_normed_row of = {.x = n->x + row * n->x_stride,
                                 .weight = treadle_pass_at(w->back->pass, &n->norm->segments[0]),
                                 .dtype = n->norm->dtype,
                                 .count = w->columns,
                                 .eps = TREADLE_LATENT_EPS};
  float *dx = n->dx + row * n->dx_stride;
  memset(dx, 0, (size_t)w->columns * sizeof *dx);
  w->back->ops->norm(dx, part, n->dy + row * n->dy_stride, &of);
}

void treadle_back_norm_inner(const treadle_back *back, const treadle_back_inner_norm *rows) {
  leaves w = {.back = back,
              .rows = rows->rows,
              .columns = rows->norm->rows,
              .add = add_inner,
              .context = rows,
              .own = {0, rows->rows}};
  treadle_team_run(back->pass->team, add_leaves, &w);
  add_parts(&w, rows->grad);
}

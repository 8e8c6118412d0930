/* The two transposed products, by the kernels of nn/gemm.h: what they multiply is turned first.
 *
 *   input    dx = dy W     rows dy, weights W^T; the inner dimension is that of W's rows, in leaves
 *   weight   dW = dy^T x   rows dy^T, weights x^T; the inner dimension is that of tokens
 *
 * Order of additions. Input: the leaves of the kernel's product, in their tree (nn/leaf_tree.h). Weight: the tokens of a micro batch are
 * divided into the fewest equal leaves of at most TREADLE_PRODUCT_LEAF, each a multiple of 32, the last one followed by zeros; leaves are
 * added in their tree, and micro batches onto the gradient one after the other. So an element's bits follow from the micro batches
 * alone. */
#include "train/back_product.h"

#include "base/dtype.h"
#include "nn/team_product.h"
#include "train/adapters.h"
#include "train/ranks.h"

#include <string.h>

enum { TURN_ROWS = 16, TURN_COLUMNS = 64 }; /* a column is a row of what is turned, on a page of its own */

float *treadle_back_grad(const treadle_back *back, const treadle_weight *grad, int64_t row) {
  for (int32_t s = 0; s < grad->segment_count; s++) {
    const treadle_segment *segment = &grad->segments[s];
    char *base = segment->copy ? (char *)back->buffers.apart : back->window;
    if (row < segment->rows) return (float *)(void *)(base + segment->at) + row * segment->stride;
    row -= segment->rows;
  }
  return NULL;
}

float *treadle_back_grad_run(const treadle_back *back, const treadle_weight *grad, int64_t row,
                             int64_t *rows_p, int64_t *stride_p) {
  int64_t at = row;
  for (int32_t s = 0; s < grad->segment_count; at -= grad->segments[s++].rows) {
    if (at >= grad->segments[s].rows) continue;
    *rows_p = grad->segments[s].rows - at;
    *stride_p = grad->segments[s].stride;
    return treadle_back_grad(back, grad, row);
  }
  *rows_p = *stride_p = 0;
  return NULL;
}

/* Row `row` of those that are here. */
const char *treadle_back_weight_row(const treadle_pass *p, const treadle_weight *weight, int64_t row) {
  for (int32_t s = 0; s < weight->segment_count; s++) {
    const treadle_segment *segment = &weight->segments[s];
    if (row < segment->rows)
      return (const char *)treadle_pass_at(p, segment) +
             row * segment->stride * (int64_t)treadle_dtype_bytes(weight->dtype);
    row -= segment->rows;
  }
  return NULL;
}

int64_t treadle_back_tokens(int64_t rows, int32_t *leaf_p) {
  int64_t leaves = (rows + TREADLE_PRODUCT_LEAF - 1) / TREADLE_PRODUCT_LEAF;
  int64_t leaf = (rows + leaves - 1) / leaves;
  leaf = treadle_back_leaf(leaf);
  *leaf_p = (int32_t)leaf;
  return leaf * leaves;
}

/* ---- Products ---------------------------------------------------------------------------------------- */

/* y = x times turned weights [columns, width]. */
typedef struct turned_product {
  treadle_gemm_inner inner;
  const float *x;
  const char *weights;
  int64_t rows, stride, columns, width;
  float *y;
  int64_t y_stride, node_stride;
} turned_product;

static treadle_status multiply_turned(const treadle_back *back, const turned_product *p) {
  const treadle_gemm_segment segment = {.weights = p->weights, .rows = p->columns, .stride = p->width};
  treadle_team_product w = {.packed = back->buffers.packed};
  treadle_status status;
  TRY(treadle_gemm_choose(back->pass->options.kernels, p->inner.dtype, p->inner.leaf, &w.kernel));
  w.source = (treadle_gemm_source){.inner = p->inner, .x = p->x, .rows = p->rows, .stride = p->stride};
  w.product = (treadle_gemm_product){.inner = p->inner,
                                     .packed = w.packed,
                                     .rows = p->rows,
                                     .segments = &segment,
                                     .count = 1,
                                     .y = p->y,
                                     .stride = p->y_stride,
                                     .node_stride = p->node_stride};
  treadle_team_run(back->pass->team, treadle_team_product_pack, &w);
  treadle_team_run(back->pass->team, treadle_team_product_multiply, &w);
out:
  return status;
}

treadle_status treadle_back_measure(const treadle_pass_options *options, treadle_gemm_inner inner,
                                    int64_t rows, size_t *packed_p) {
  const treadle_gemm_kernel *kernel;
  treadle_status status;
  TRY(treadle_gemm_choose(options->kernels, inner.dtype, inner.leaf, &kernel));
  size_t bytes = kernel->packed_bytes(inner, rows);
  if (bytes > *packed_p) *packed_p = bytes;
out:
  return status;
}

/* ---- The gradient of what was multiplied ------------------------------------------------------------- */

typedef struct turning {
  const treadle_back *back;
  const treadle_back_term *terms;
  int count;
  int64_t leaves, rows, columns, leaf,
      width; /* leaf: of all terms together, followed by zeros up to a unit */
} turning;

/* Rows [from, from + rows) of a weight, columns [first, end), to `at` of each turned row. */
static void turn_rows(const turning *w, const treadle_weight *weight, int64_t from, int64_t rows,
                      int64_t at, int64_t first, int64_t end) {
  const treadle_pass *p = w->back->pass;
  const int64_t each = (int64_t)treadle_dtype_bytes(p->options.dtype);
  float wide[TURN_ROWS][TURN_COLUMNS];
  for (int64_t column = first; column < end; column += TURN_COLUMNS) {
    int64_t columns = end - column < TURN_COLUMNS ? end - column : TURN_COLUMNS;
    for (int64_t row = 0; row < rows; row += TURN_ROWS) {
      int64_t some = rows - row < TURN_ROWS ? rows - row : TURN_ROWS;
      for (int64_t r = 0; r < some; r++)
        p->row_ops->widen(wide[r],
                          treadle_back_weight_row(p, weight, from + row + r) +
                              column * (int64_t)treadle_dtype_bytes(weight->dtype),
                          weight->dtype, columns);
      p->row_ops->turn(w->back->buffers.turned + (column * w->width + at + row) * each, p->options.dtype,
                       w->width, wide[0], TURN_COLUMNS, some, columns);
    }
  }
}

static void turn_weights(void *context, int32_t index, int32_t count) {
  const turning *w = context;
  const int64_t each = (int64_t)treadle_dtype_bytes(w->back->pass->options.dtype);
  int64_t first = w->columns * index / count, end = w->columns * (index + 1) / count;
  for (int64_t leaf = 0; leaf < w->leaves; leaf++) {
    int64_t at = leaf * w->leaf;
    for (int i = 0; i < w->count; i++) {
      int64_t share = w->terms[i].share, from = leaf * share;
      int64_t rows = w->terms[i].weight->row_count - from;
      rows = rows < 0 ? 0 : rows < share ? rows : share;
      turn_rows(w, w->terms[i].weight, from, rows, at, first, end);
      at += rows;
    }
    for (int64_t column = first; column < end && at < (leaf + 1) * w->leaf; column++)
      memset(w->back->buffers.turned + (column * w->width + at) * each, 0,
             (size_t)(((leaf + 1) * w->leaf - at) * each));
  }
}

static void join_rows(void *context, int32_t index, int32_t count) {
  const turning *w = context;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    float *to = w->back->buffers.joined + r * w->width;
    for (int64_t leaf = 0; leaf < w->leaves; leaf++) {
      float *at = to + leaf * w->leaf;
      for (int i = 0; i < w->count; i++) {
        int64_t share = w->terms[i].share, from = leaf * share;
        int64_t columns = w->terms[i].weight->row_count - from;
        columns = columns < 0 ? 0 : columns < share ? columns : share;
        memcpy(at, w->terms[i].dy + r * w->terms[i].stride + from, (size_t)columns * sizeof *at);
        at += columns;
      }
      memset(at, 0, (size_t)(to + (leaf + 1) * w->leaf - at) * sizeof *at);
    }
  }
}

treadle_status treadle_back_input(const treadle_back *back, const treadle_back_inputs *inputs) {
  if (back->outer) {
    treadle_outer_input(back, inputs);
    return TREADLE_OK;
  }
  if (back->pairs) return treadle_paired_input(back, inputs);
  turning w = {.back = back,
               .terms = inputs->terms,
               .count = inputs->count,
               .leaves = inputs->leaves.leaves,
               .rows = inputs->rows,
               .columns = inputs->terms[0].weight->column_count};
  for (int i = 0; i < inputs->count; i++) w.leaf += inputs->terms[i].share;
  w.leaf = treadle_back_leaf(w.leaf);
  w.width = w.leaf * w.leaves;
  treadle_team_run(back->pass->team, turn_weights, &w);
  treadle_team_run(back->pass->team, join_rows, &w);
  const turned_product product = {
      .inner = {.dtype = back->pass->options.dtype, .leaf = (int32_t)w.leaf, .range = inputs->leaves},
      .x = back->buffers.joined,
      .weights = back->buffers.turned,
      .rows = inputs->rows,
      .stride = w.width,
      .columns = w.columns,
      .width = w.width,
      .y = inputs->dx,
      .y_stride = inputs->stride,
      .node_stride = inputs->rows * inputs->stride};
  return multiply_turned(back, &product);
}

treadle_status treadle_back_through(const treadle_back *back, const treadle_back_term *term, int64_t rows,
                                    float *y, int64_t stride) {
  const treadle_back_inputs inputs = {
      .terms = term, .count = 1, .leaves = {0, 1, 1}, .rows = rows, .dx = y, .stride = stride};
  return treadle_back_input(back, &inputs);
}

treadle_status treadle_back_normed(const treadle_back *back, const treadle_back_term *terms, int count,
                                   treadle_leaf_range leaves, bool speaks, int64_t rows) {
  float *dnormed = back->buffers.dnormed;
  const treadle_back_inputs inputs = {.terms = terms,
                                      .count = count,
                                      .leaves = leaves,
                                      .rows = rows,
                                      .dx = treadle_train_room_of(back->pass, dnormed),
                                      .stride = back->transformer->hidden};
  treadle_status status;
  TRY(treadle_back_input(back, &inputs));
  if (back->pass->ranks.within && !speaks) leaves.leaves = 0;
  TRY(treadle_train_sum(back->pass, leaves, rows, dnormed));
out:
  return status;
}

/* ---- The gradient of a weight ------------------------------------------------------------------------ */

typedef struct rows_turning {
  const treadle_back *back;
  const float *x;
  int64_t stride, columns, rows, width;
  char *to; /* [columns, width] */
  treadle_dtype dtype;
} rows_turning;

/* Each thread has some of the tokens, sixteen at a time. */
static void turn_tokens(void *context, int32_t index, int32_t count) {
  const rows_turning *w = context;
  const int64_t each = (int64_t)treadle_dtype_bytes(w->dtype),
                units = (w->rows + TURN_ROWS - 1) / TURN_ROWS;
  int64_t end = units * (index + 1) / count * TURN_ROWS;
  for (int64_t column = 0; column < w->columns; column += TURN_COLUMNS) {
    int64_t columns = w->columns - column < TURN_COLUMNS ? w->columns - column : TURN_COLUMNS;
    for (int64_t row = units * index / count * TURN_ROWS; row < end && row < w->rows; row += TURN_ROWS) {
      int64_t some = w->rows - row < TURN_ROWS ? w->rows - row : TURN_ROWS;
      w->back->pass->row_ops->turn(w->to + (column * w->width + row) * each, w->dtype, w->width,
                                   w->x + row * w->stride + column, w->stride, some, columns);
    }
  }
  int64_t last = w->columns * (index + 1) / count;
  for (int64_t column = w->columns * index / count; column < last; column++)
    memset(w->to + (column * w->width + w->rows) * each, 0, (size_t)((w->width - w->rows) * each));
}

treadle_status treadle_back_take_rows(const treadle_back *back, const float *x, int64_t stride,
                                      int64_t columns, int64_t rows) {
  int32_t leaf;
  if (back->adapters) {
    treadle_train_adapter_rows(back->adapters, x, stride);
    return TREADLE_OK;
  }
  if (back->outer) {
    treadle_outer_take_rows(back, x, stride, columns, rows);
    return TREADLE_OK;
  }
  if (back->pairs) return treadle_paired_take_rows(back, x, stride, columns, rows);
  rows_turning w = {.back = back,
                    .x = x,
                    .stride = stride,
                    .columns = columns,
                    .rows = rows,
                    .width = treadle_back_tokens(rows, &leaf),
                    .to = back->buffers.turned_x,
                    .dtype = back->pass->options.dtype};
  treadle_team_run(back->pass->team, turn_tokens, &w);
  return TREADLE_OK;
}

typedef struct adding {
  const treadle_back *back;
  const treadle_weight *grad;
  int64_t first, rows, columns;
} adding;

static void add_rows(void *context, int32_t index, int32_t count) {
  const adding *w = context;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++)
    w->back->pass->row_ops->add(treadle_back_grad(w->back, w->grad, w->first + r),
                                w->back->buffers.product + r * w->columns, TREADLE_FP32, w->columns);
}

treadle_status treadle_back_weight(const treadle_back *back, const treadle_back_term *term,
                                   const treadle_weight *grad, int64_t rows) {
  const int64_t columns = term->weight->column_count;
  turned_product product = {
      .weights = back->buffers.turned_x, .columns = columns, .y = back->buffers.product};
  int32_t leaf;
  treadle_status status = TREADLE_OK;
  if (back->adapters) return treadle_train_adapter_back(back->adapters, term, rows);
  if (back->outer) {
    treadle_outer_weight(back, term, grad, rows);
    return TREADLE_OK;
  }
  if (back->pairs) return treadle_paired_weight(back, term, grad, rows);
  product.width = product.stride = treadle_back_tokens(rows, &leaf);
  product.inner = (treadle_gemm_inner){.dtype = back->pass->options.dtype, .leaf = leaf};
  product.inner.range.leaves = product.inner.range.all = (int32_t)(product.width / leaf);
  product.x = back->buffers.turned_dy;
  product.y_stride = columns;
  for (int64_t first = 0; first < term->weight->row_count; first += TREADLE_WEIGHT_ROWS) {
    int64_t some = term->weight->row_count - first;
    if (some > TREADLE_WEIGHT_ROWS) some = TREADLE_WEIGHT_ROWS;
    rows_turning turn = {.back = back,
                         .x = term->dy + first,
                         .stride = term->stride,
                         .columns = some,
                         .rows = rows,
                         .width = product.width,
                         .to = (char *)back->buffers.turned_dy,
                         .dtype = TREADLE_FP32};
    adding add = {.back = back, .grad = grad, .first = first, .rows = some, .columns = columns};
    treadle_team_run(back->pass->team, turn_tokens, &turn);
    product.rows = some;
    TRY(multiply_turned(back, &product));
    treadle_team_run(back->pass->team, add_rows, &add);
  }
out:
  return status;
}

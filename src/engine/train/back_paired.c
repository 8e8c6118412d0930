/* The two transposed products by a kernel that can turn (nn/gemm.h): x and weights are packed as they lie, in pairs of rows, and results come as
 * they are wanted. Of all operands the rows of dy alone are turned, for the gradient of a weight.
 *
 * The order of additions is that of back_product.c, whose bits these are. */
#include "train/back_product.h"

#include "base/dtype.h"
#include "nn/team_product.h"

#include <string.h>

enum { TURN_ROWS = 16, TURN_COLUMNS = 32 };

static treadle_status choose(const treadle_pass_options *options, treadle_gemm_inner inner,
                             treadle_team_product *w) {
  return treadle_gemm_choose(options->kernels, inner.dtype, inner.leaf, &w->kernel);
}

/* ---- The gradient of what was multiplied ------------------------------------------------------------------ */

typedef struct joining {
  const treadle_back *back;
  const treadle_back_inputs *in;
  int64_t leaf, width;
} joining;

/* Rows of a term's weight in a leaf. */
static int64_t rows_in(const treadle_back_term *term, int64_t leaf) {
  int64_t rows = term->weight->row_count - leaf * term->share;
  return rows < 0 ? 0 : rows < term->share ? rows : term->share;
}

/* dy in bf16, in the order of leaves. */
static void join_rows(void *context, int32_t index, int32_t count) {
  const joining *w = context;
  int64_t end = w->in->rows * (index + 1) / count;
  for (int64_t r = w->in->rows * index / count; r < end; r++) {
    uint16_t *to = (uint16_t *)(void *)w->back->buffers.joined + r * w->width;
    for (int64_t leaf = 0; leaf < w->in->leaves.leaves; leaf++) {
      uint16_t *at = to + leaf * w->leaf;
      for (int i = 0; i < w->in->count; i++) {
        const treadle_back_term *term = &w->in->terms[i];
        int64_t columns = rows_in(term, leaf);
        w->back->pass->row_ops->narrow(at, TREADLE_BF16, term->dy + r * term->stride + leaf * term->share,
                                       columns);
        at += columns;
      }
      memset(at, 0, (size_t)(to + (leaf + 1) * w->leaf - at) * sizeof *at);
    }
  }
}

/* Rows of weights in the order of leaves; none where a leaf is filled up. */
static void list_rows(const joining *w, const void **rows) {
  for (int64_t leaf = 0; leaf < w->in->leaves.leaves; leaf++) {
    const void **at = rows + leaf * w->leaf, **end = at + w->leaf;
    for (int i = 0; i < w->in->count; i++) {
      const treadle_back_term *term = &w->in->terms[i];
      for (int64_t row = 0; row < rows_in(term, leaf); row++)
        *at++ = treadle_back_weight_row(w->back->pass, term->weight, leaf * term->share + row);
    }
    while (at < end) *at++ = NULL;
  }
}

treadle_status treadle_paired_input(const treadle_back *back, const treadle_back_inputs *in) {
  joining j = {.back = back, .in = in};
  treadle_team_product w = {.packed = back->buffers.packed};
  int64_t columns = in->terms[0].weight->column_count;
  treadle_status status;
  for (int i = 0; i < in->count; i++) j.leaf += in->terms[i].share;
  j.leaf = treadle_back_leaf(j.leaf);
  j.width = j.leaf * in->leaves.leaves;
  const treadle_gemm_inner inner = {.dtype = TREADLE_BF16, .leaf = (int32_t)j.leaf, .range = in->leaves};
  w.segment = (treadle_gemm_segment){.weights = back->buffers.joined, .rows = in->rows, .stride = j.width};
  TRY(choose(&back->pass->options, inner, &w));
  list_rows(&j, back->buffers.pointers);
  w.source = (treadle_gemm_source){
      .inner = inner, .rows = columns, .turned = back->buffers.pointers, .turned_dtype = TREADLE_BF16};
  w.product = (treadle_gemm_product){.inner = inner,
                                     .packed = w.packed,
                                     .rows = columns,
                                     .segments = &w.segment,
                                     .count = 1,
                                     .y = in->dx,
                                     .stride = in->stride,
                                     .node_stride = in->rows * in->stride,
                                     .turned = true};
  treadle_team_run(back->pass->team, join_rows, &j);
  treadle_team_run(back->pass->team, treadle_team_product_pack, &w);
  treadle_team_run(back->pass->team, treadle_team_product_multiply, &w);
out:
  return status;
}

/* ---- The gradient of a weight ----------------------------------------------------------------------------- */

static treadle_gemm_inner tokens_of(int64_t rows) {
  int32_t leaf;
  int64_t width = treadle_back_tokens(rows, &leaf);
  const int32_t leaves = (int32_t)(width / leaf);
  return (treadle_gemm_inner){.dtype = TREADLE_BF16, .leaf = leaf, .range = {0, leaves, leaves}};
}

/* Rows of the narrower operand are turned, those of the other one packed in pairs. x is turned where it has no more columns than the residual
 * stream: then it serves several weights. */
static bool turns_x(const treadle_back *back, int64_t columns) {
  return columns <= back->transformer->hidden;
}

typedef struct turning {
  const treadle_back *back;
  const float *from; /* [rows, columns] */
  uint16_t *to;      /* [columns, width] */
  int64_t stride, columns, rows, width;
} turning;

/* In bf16, with zeros behind. Each thread has some of the tokens. */
static void turn_rows(void *context, int32_t index, int32_t count) {
  const turning *w = context;
  const int64_t units = (w->rows + TURN_ROWS - 1) / TURN_ROWS;
  int64_t end = units * (index + 1) / count * TURN_ROWS;
  for (int64_t column = 0; column < w->columns; column += TURN_COLUMNS) {
    int64_t columns = w->columns - column < TURN_COLUMNS ? w->columns - column : TURN_COLUMNS;
    for (int64_t row = units * index / count * TURN_ROWS; row < end && row < w->rows; row += TURN_ROWS) {
      int64_t some = w->rows - row < TURN_ROWS ? w->rows - row : TURN_ROWS;
      for (int64_t r = row + TURN_ROWS; r < w->rows && r < row + 2 * TURN_ROWS; r++) {
        __builtin_prefetch(w->from + r * w->stride + column);
        __builtin_prefetch(w->from + r * w->stride + column + TURN_COLUMNS / 2);
      }
      w->back->pass->row_ops->turn(w->to + column * w->width + row, TREADLE_BF16, w->width,
                                   w->from + row * w->stride + column, w->stride, some, columns);
    }
  }
  int64_t last = w->columns * (index + 1) / count;
  for (int64_t column = w->columns * index / count; column < last; column++)
    memset(w->to + column * w->width + w->rows, 0, (size_t)(w->width - w->rows) * sizeof *w->to);
}

/* Packs rows [rows, columns] in pairs. */
static void pack_pairs(const treadle_back *back, treadle_team_product *w, const float *from, int64_t stride,
                       int64_t rows, int64_t columns) {
  const treadle_gemm_inner inner = w->product.inner;
  for (int64_t row = 0; row < (int64_t)inner.leaf * inner.range.leaves; row++)
    back->buffers.pointers[row] = row < rows ? from + row * stride : NULL;
  w->source = (treadle_gemm_source){
      .inner = inner, .rows = columns, .turned = back->buffers.pointers, .turned_dtype = TREADLE_FP32};
  treadle_team_run(back->pass->team, treadle_team_product_pack, w);
}

treadle_status treadle_paired_take_rows(const treadle_back *back, const float *x, int64_t stride,
                                        int64_t columns, int64_t rows) {
  const treadle_gemm_inner inner = tokens_of(rows);
  treadle_team_product w = {.packed = back->buffers.turned_x, .product = {.inner = inner}};
  turning turn = {.back = back,
                  .from = x,
                  .to = (uint16_t *)(void *)back->buffers.turned_x,
                  .stride = stride,
                  .columns = columns,
                  .rows = rows,
                  .width = (int64_t)inner.leaf * inner.range.leaves};
  treadle_status status;
  TRY(choose(&back->pass->options, inner, &w));
  if (turns_x(back, columns))
    treadle_team_run(back->pass->team, turn_rows, &turn);
  else
    pack_pairs(back, &w, x, stride, rows, columns);
out:
  return status;
}

/* Rows [first, first + rows) of a gradient, as far as they follow each other. */
typedef struct grad_rows {
  int64_t first, rows;
  const treadle_weight *grad;
} grad_rows;

/* dy is turned, in turned_dy from `first` on; x is packed. */
static void add_turned(const treadle_back *back, treadle_team_product *w, const grad_rows *g,
                       int64_t width) {
  for (int64_t row = g->first, some, stride; row < g->first + g->rows; row += some) {
    w->product.y = treadle_back_grad_run(back, g->grad, row, &some, &stride);
    if (some > g->first + g->rows - row) some = g->first + g->rows - row;
    const treadle_gemm_segment segment = {.weights = (const uint16_t *)(void *)back->buffers.turned_dy +
                                                     (row - g->first) * width,
                                          .rows = some,
                                          .stride = width};
    w->product.segments = &segment;
    w->product.stride = stride;
    treadle_team_run(back->pass->team, treadle_team_product_multiply, w);
  }
}

static void add_turned_rows(const treadle_back *back, treadle_team_product *w,
                            const treadle_back_term *term, const treadle_weight *grad, int64_t rows) {
  const int64_t width = (int64_t)w->product.inner.leaf * w->product.inner.range.leaves;
  w->product.packed = back->buffers.turned_x;
  w->product.rows = term->weight->column_count;
  w->product.turned = true;
  for (int64_t first = 0; first < term->weight->row_count; first += TREADLE_WEIGHT_ROWS) {
    int64_t some = term->weight->row_count - first;
    if (some > TREADLE_WEIGHT_ROWS) some = TREADLE_WEIGHT_ROWS;
    turning turn = {.back = back,
                    .from = term->dy + first,
                    .to = (uint16_t *)(void *)back->buffers.turned_dy,
                    .stride = term->stride,
                    .columns = some,
                    .rows = rows,
                    .width = width};
    const grad_rows g = {first, some, grad};
    treadle_team_run(back->pass->team, turn_rows, &turn);
    add_turned(back, w, &g, width);
  }
}

/* x is turned; dy is packed, some rows of the gradient at a time. */
static void add_packed_rows(const treadle_back *back, treadle_team_product *w,
                            const treadle_back_term *term, const treadle_weight *grad, int64_t rows) {
  w->segment =
      (treadle_gemm_segment){.weights = back->buffers.turned_x,
                             .rows = term->weight->column_count,
                             .stride = (int64_t)w->product.inner.leaf * w->product.inner.range.leaves};
  w->packed = back->buffers.turned_dy;
  w->product.packed = w->packed;
  for (int64_t row = 0, some, stride; row < term->weight->row_count; row += some) {
    w->product.y = treadle_back_grad_run(back, grad, row, &some, &stride);
    if (some > TREADLE_WEIGHT_ROWS) some = TREADLE_WEIGHT_ROWS;
    if (some > term->weight->row_count - row) some = term->weight->row_count - row;
    w->product.stride = stride;
    w->product.rows = some;
    pack_pairs(back, w, term->dy + row, term->stride, rows, some);
    treadle_team_run(back->pass->team, treadle_team_product_multiply, w);
  }
}

treadle_status treadle_paired_weight(const treadle_back *back, const treadle_back_term *term,
                                     const treadle_weight *grad, int64_t rows) {
  const treadle_gemm_inner inner = tokens_of(rows);
  treadle_team_product w = {.product = {.inner = inner, .count = 1, .adds = true}};
  treadle_status status;
  w.product.segments = &w.segment;
  TRY(choose(&back->pass->options, inner, &w));
  if (turns_x(back, term->weight->column_count))
    add_packed_rows(back, &w, term, grad, rows);
  else
    add_turned_rows(back, &w, term, grad, rows);
out:
  return status;
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

treadle_status treadle_paired_measure(const treadle_pass_options *options, treadle_gemm_inner inner,
                                      int64_t columns, size_t *packed_p) {
  treadle_team_product w;
  treadle_status status;
  TRY(choose(options, inner, &w));
  size_t bytes = w.kernel->packed_bytes(inner, columns);
  if (bytes > *packed_p) *packed_p = bytes;
out:
  return status;
}

bool treadle_paired_can(const treadle_pass_options *options) {
  const treadle_gemm_inner least = {
      .dtype = TREADLE_BF16, .leaf = (int32_t)treadle_back_leaf(1), .range = {0, 1, 1}};
  treadle_team_product w;
  return options->dtype == TREADLE_BF16 && choose(options, least, &w) == TREADLE_OK && w.kernel->turns;
}

/* The two transposed products by a kernel that can turn (nn/gemm.h): x and weights are packed as they lie, in pairs of rows, and results come as
 * they are wanted. Of all operands the rows of dy alone are turned, for the gradient of a weight.
 *
 * The order of additions is that of back_product.c, whose bits these are. */
#include "train/trainer.h"

#include "base/dtype.h"

#include <string.h>

enum { TURN_ROWS = 16, TURN_COLUMNS = 32 };

typedef struct work {
  const treadle_gemm_kernel *kernel;
  treadle_gemm_source source;
  treadle_gemm_product product;
  void *packed;
} work;

static void pack(void *context, int32_t index, int32_t count) {
  work *w = context;
  w->kernel->pack(&w->source, w->packed, index, count);
}

static void multiply(void *context, int32_t index, int32_t count) {
  work *w = context;
  w->kernel->run(&w->product, index, count);
}

static treadle_status choose(const treadle_trainer *t, treadle_gemm_inner inner, work *w) {
  return treadle_gemm_choose(t->pass->options.kernels, inner.dtype, inner.leaf, &w->kernel);
}

/* ---- The gradient of what was multiplied ------------------------------------------------------------------ */

typedef struct joining {
  treadle_trainer *t;
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
    uint16_t *to = (uint16_t *)(void *)w->t->buffers.joined + r * w->width;
    for (int64_t leaf = 0; leaf < w->in->leaves.leaves; leaf++) {
      uint16_t *at = to + leaf * w->leaf;
      for (int i = 0; i < w->in->count; i++) {
        const treadle_back_term *term = &w->in->terms[i];
        int64_t columns = rows_in(term, leaf);
        w->t->pass->row_ops->narrow(at, TREADLE_BF16, term->dy + r * term->stride + leaf * term->share,
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
        *at++ = treadle_back_weight_row(w->t->pass, term->weight, leaf * term->share + row);
    }
    while (at < end) *at++ = NULL;
  }
}

treadle_status treadle_paired_input(treadle_trainer *t, const treadle_back_inputs *in) {
  joining j = {.t = t, .in = in};
  work w = {.packed = t->buffers.packed};
  int64_t columns = in->terms[0].weight->column_count;
  treadle_status status;
  for (int i = 0; i < in->count; i++) j.leaf += in->terms[i].share;
  j.leaf = treadle_back_leaf(j.leaf);
  j.width = j.leaf * in->leaves.leaves;
  const treadle_gemm_inner inner = {TREADLE_BF16, (int32_t)j.leaf, in->leaves};
  const treadle_gemm_segment segment = {.weights = t->buffers.joined, .rows = in->rows, .stride = j.width};
  TRY(choose(t, inner, &w));
  list_rows(&j, t->buffers.pointers);
  w.source = (treadle_gemm_source){
      .inner = inner, .rows = columns, .turned = t->buffers.pointers, .turned_dtype = TREADLE_BF16};
  w.product = (treadle_gemm_product){.inner = inner,
                                     .packed = w.packed,
                                     .rows = columns,
                                     .segments = &segment,
                                     .count = 1,
                                     .y = in->dx,
                                     .stride = in->stride,
                                     .node_stride = in->rows * in->stride,
                                     .turned = true};
  treadle_team_run(t->pass->team, join_rows, &j);
  treadle_team_run(t->pass->team, pack, &w);
  treadle_team_run(t->pass->team, multiply, &w);
out:
  return status;
}

/* ---- The gradient of a weight ----------------------------------------------------------------------------- */

static treadle_gemm_inner tokens_of(int64_t rows) {
  int32_t leaf;
  int64_t width = treadle_back_tokens(rows, &leaf);
  return (treadle_gemm_inner){TREADLE_BF16, leaf, {0, (int32_t)(width / leaf), (int32_t)(width / leaf)}};
}

treadle_status treadle_paired_take_rows(treadle_trainer *t, const float *x, int64_t stride, int64_t columns,
                                        int64_t rows) {
  const treadle_gemm_inner inner = tokens_of(rows);
  work w = {.packed = t->buffers.turned_x};
  treadle_status status;
  TRY(choose(t, inner, &w));
  for (int64_t row = 0; row < (int64_t)inner.leaf * inner.range.leaves; row++)
    t->buffers.pointers[row] = row < rows ? x + row * stride : NULL;
  w.source = (treadle_gemm_source){
      .inner = inner, .rows = columns, .turned = t->buffers.pointers, .turned_dtype = TREADLE_FP32};
  treadle_team_run(t->pass->team, pack, &w);
out:
  return status;
}

typedef struct turning {
  treadle_trainer *t;
  const float *dy;
  int64_t stride, columns, rows, width;
} turning;

/* Columns of dy as rows, in bf16, with zeros behind. Each thread has some of the tokens. */
static void turn_rows(void *context, int32_t index, int32_t count) {
  const turning *w = context;
  uint16_t *to = (uint16_t *)(void *)w->t->buffers.turned_dy;
  const int64_t units = (w->rows + TURN_ROWS - 1) / TURN_ROWS;
  int64_t end = units * (index + 1) / count * TURN_ROWS;
  for (int64_t column = 0; column < w->columns; column += TURN_COLUMNS) {
    int64_t columns = w->columns - column < TURN_COLUMNS ? w->columns - column : TURN_COLUMNS;
    for (int64_t row = units * index / count * TURN_ROWS; row < end && row < w->rows; row += TURN_ROWS) {
      int64_t some = w->rows - row < TURN_ROWS ? w->rows - row : TURN_ROWS;
      w->t->pass->row_ops->turn(to + column * w->width + row, TREADLE_BF16, w->width,
                                w->dy + row * w->stride + column, w->stride, some, columns);
    }
  }
  int64_t last = w->columns * (index + 1) / count;
  for (int64_t column = w->columns * index / count; column < last; column++)
    memset(to + column * w->width + w->rows, 0, (size_t)(w->width - w->rows) * sizeof *to);
}

/* Rows [first, first + rows) of a gradient, as far as they follow each other: grad += dy^T x. */
static void add_run(treadle_trainer *t, work *w, const treadle_weight *grad, int64_t first, int64_t rows) {
  for (int64_t row = first; row < first + rows;) {
    int64_t some;
    int64_t stride;
    float *y = treadle_trainer_grad_run(t, grad, row, &some, &stride);
    if (some > first + rows - row) some = first + rows - row;
    const treadle_gemm_segment segment = {.weights = (const uint16_t *)(void *)t->buffers.turned_dy +
                                                     (row - first) * w->source.stride,
                                          .rows = some,
                                          .stride = w->source.stride};
    w->product.segments = &segment;
    w->product.y = y;
    w->product.stride = stride;
    treadle_team_run(t->pass->team, multiply, w);
    row += some;
  }
}

treadle_status treadle_paired_weight(treadle_trainer *t, const treadle_back_term *term,
                                     const treadle_weight *grad, int64_t rows) {
  const treadle_gemm_inner inner = tokens_of(rows);
  work w = {.source = {.stride = (int64_t)inner.leaf * inner.range.leaves}};
  treadle_status status;
  TRY(choose(t, inner, &w));
  w.product = (treadle_gemm_product){.inner = inner,
                                     .packed = t->buffers.turned_x,
                                     .rows = term->weight->column_count,
                                     .count = 1,
                                     .turned = true,
                                     .adds = true};
  for (int64_t first = 0; first < term->weight->row_count; first += TREADLE_WEIGHT_ROWS) {
    int64_t some = term->weight->row_count - first;
    if (some > TREADLE_WEIGHT_ROWS) some = TREADLE_WEIGHT_ROWS;
    turning turn = {.t = t,
                    .dy = term->dy + first,
                    .stride = term->stride,
                    .columns = some,
                    .rows = rows,
                    .width = w.source.stride};
    treadle_team_run(t->pass->team, turn_rows, &turn);
    add_run(t, &w, grad, first, some);
  }
out:
  return status;
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

treadle_status treadle_paired_measure(const treadle_trainer *t, treadle_gemm_inner inner, int64_t columns,
                                      size_t *packed_p) {
  work w;
  treadle_status status;
  TRY(choose(t, inner, &w));
  size_t bytes = w.kernel->packed_bytes(inner, columns);
  if (bytes > *packed_p) *packed_p = bytes;
out:
  return status;
}

bool treadle_paired_can(const treadle_trainer *t) {
  const treadle_gemm_inner least = {TREADLE_BF16, (int32_t)treadle_back_leaf(1), {0, 1, 1}};
  work w;
  return t->pass->options.dtype == TREADLE_BF16 && choose(t, least, &w) == TREADLE_OK && w.kernel->turns;
}

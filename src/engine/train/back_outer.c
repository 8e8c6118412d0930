/* The two transposed products in fp32, by outer products (nn/outer.h): what is multiplied lies row by row as it is, and nothing is turned.
 *
 * Order of additions. Input: within a leaf a chain over its rows of weights, term after term; leaves in their tree. Weight: the tokens of a micro
 * batch are divided into leaves as in back_product.c; within a leaf a chain, and leaves are added onto the gradient one after the
 * other. */
#include "train/back_product.h"

#include <string.h>

enum {
  BLOCK_FLOATS = 1 << 18, /* of rows that stay in the second cache */
  AHEAD = 256,            /* elements that are fetched while others are copied */
  LINE = 16
};

/* What comes a little behind `count` elements. */
static void fetch_ahead(const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i += LINE) __builtin_prefetch(from + i + AHEAD);
}

static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

static int64_t rows_of_block(const treadle_outer_ops *ops, int64_t inner) {
  int64_t rows = BLOCK_FLOATS / (inner > 0 ? inner : 1) / ops->rows * ops->rows;
  return rows < ops->rows ? ops->rows : rows;
}

void treadle_outer_measure(const treadle_outer_ops *ops, int64_t inner, int64_t columns, int64_t *panels_p,
                           int64_t *block_p) {
  int64_t panels = round_up(columns, ops->columns) * inner, block = rows_of_block(ops, inner) * inner;
  if (panels > *panels_p) *panels_p = panels;
  if (block > *block_p) *block_p = block;
}

/* ---- The gradient of what was multiplied ------------------------------------------------------------------ */

typedef struct inputs {
  const treadle_back *back;
  const treadle_back_inputs *in;
  int64_t inner, columns; /* inner: of all leaves */
} inputs;

/* Rows of a term's weight in a leaf. */
static int64_t rows_in(const treadle_back_term *term, int64_t leaf) {
  int64_t rows = term->weight->row_count - leaf * term->share;
  return rows < 0 ? 0 : rows < term->share ? rows : term->share;
}

static int64_t leaf_rows(const treadle_back_inputs *in, int64_t leaf) {
  int64_t rows = 0;
  for (int i = 0; i < in->count; i++) rows += rows_in(&in->terms[i], leaf);
  return rows;
}

/* A row of weights, number `row` of the inner dimension, into all panels: [panel][inner][columns of a tile]. */
static void pack_row(const inputs *w, const float *from, int64_t row) {
  const int64_t width = w->back->outer->columns;
  float *to = (float *)(void *)w->back->buffers.turned + row * width;
  for (int64_t first = 0; first < w->columns; first += width, to += w->inner * width) {
    int64_t some = w->columns - first < width ? w->columns - first : width;
    fetch_ahead(from + first, some);
    memcpy(to, from + first, (size_t)some * sizeof *to);
    if (some < width) memset(to + some, 0, (size_t)(width - some) * sizeof *to);
  }
}

/* Each thread has some of the rows of each term in each leaf. */
static void pack_weights(void *context, int32_t index, int32_t count) {
  const inputs *w = context;
  int64_t at = 0;
  for (int64_t leaf = 0; leaf < w->in->leaves.leaves; leaf++)
    for (int i = 0; i < w->in->count; i++) {
      const treadle_back_term *term = &w->in->terms[i];
      int64_t rows = rows_in(term, leaf);
      for (int64_t row = rows * index / count; row < rows * (index + 1) / count; row++) {
        const void *from = treadle_back_weight_row(w->back->pass, term->weight, leaf * term->share + row);
        pack_row(w, from, at + row);
      }
      at += rows;
    }
}

/* Rows of dy in the order of leaves, a tile at a time: [tile][inner][rows of a tile]. */
static void pack_rows(const inputs *w, int64_t first, int64_t rows, float *to) {
  const int tile = w->back->outer->rows;
  for (int64_t row = 0; row < rows; row += tile) {
    int64_t there = rows - row < tile ? rows - row : tile;
    if (there < tile) memset(to, 0, (size_t)(w->inner * tile) * sizeof *to);
    for (int64_t leaf = 0; leaf < w->in->leaves.leaves; leaf++)
      for (int i = 0; i < w->in->count; i++) {
        const treadle_back_term *term = &w->in->terms[i];
        int64_t some = rows_in(term, leaf);
        w->back->pass->row_ops->turn(to, TREADLE_FP32, tile,
                                     term->dy + (first + row) * term->stride + leaf * term->share,
                                     term->stride, there, some);
        to += some * tile;
      }
  }
}

/* A tile that is whole goes where it is wanted; another one by `sums`. */
static void end_tile(const inputs *w, float *y, const float *sums, int64_t rows, int64_t columns) {
  if (sums == y) return;
  for (int64_t r = 0; r < rows; r++)
    memcpy(y + r * w->in->stride, sums + r * w->back->outer->columns, (size_t)columns * sizeof *y);
}

/* A tile of all nodes. */
static void multiply_tile(const inputs *w, const float *a, const float *b, float *y, int64_t rows,
                          int64_t columns) {
  float sums[TREADLE_LEAF_HEIGHT_MAX + 1][TREADLE_OUTER_ROWS_MOST * TREADLE_OUTER_COLUMNS_MOST];
  const treadle_outer_ops *ops = w->back->outer;
  const treadle_row_ops *rows_ops = w->back->pass->row_ops;
  const treadle_leaf_range range = w->in->leaves;
  const bool whole = rows == ops->rows && columns == ops->columns;
  int64_t size = (int64_t)ops->rows * ops->columns, node = w->in->rows * w->in->stride;
  int top = 0;
  for (int32_t leaf = 0; leaf < range.leaves; leaf++) {
    int64_t some = leaf_rows(w->in, leaf);
    treadle_leaf_step step = treadle_leaf_step_of(range, range.first + leaf);
    const bool straight = whole && step.ends && step.merges == 0;
    float *to = straight ? y : sums[top];
    ops->tile(to, straight ? w->in->stride : ops->columns, false, a, b, some);
    a += some * ops->rows;
    b += some * ops->columns;
    for (; step.merges > 0; step.merges--, top--, to = sums[top])
      rows_ops->add(sums[top - 1], sums[top], TREADLE_FP32, size);
    if (!step.ends) {
      top++;
      continue;
    }
    end_tile(w, y, to, rows, columns);
    y += node;
  }
}

/* Blocks of rows; each thread has some. */
static void multiply_rows(void *context, int32_t index, int32_t count) {
  const inputs *w = context;
  const treadle_outer_ops *ops = w->back->outer;
  const int64_t block = rows_of_block(ops, w->inner), blocks = (w->in->rows + block - 1) / block;
  float *packed = w->back->buffers.outer + (int64_t)index * w->back->buffers.outer_each;
  const float *weights = (const float *)(const void *)w->back->buffers.turned;
  for (int64_t number = index; number < blocks; number += count) {
    int64_t first = number * block, rows = w->in->rows - first < block ? w->in->rows - first : block;
    pack_rows(w, first, rows, packed);
    for (int64_t column = 0; column < w->columns; column += ops->columns)
      for (int64_t row = 0; row < rows; row += ops->rows)
        multiply_tile(w, packed + row * w->inner, weights + column * w->inner,
                      w->in->dx + (first + row) * w->in->stride + column,
                      rows - row < ops->rows ? rows - row : ops->rows,
                      w->columns - column < ops->columns ? w->columns - column : ops->columns);
  }
}

void treadle_outer_input(const treadle_back *back, const treadle_back_inputs *in) {
  inputs w = {.back = back, .in = in, .columns = in->terms[0].weight->column_count};
  for (int64_t leaf = 0; leaf < in->leaves.leaves; leaf++) w.inner += leaf_rows(in, leaf);
  treadle_team_run(back->pass->team, pack_weights, &w);
  treadle_team_run(back->pass->team, multiply_rows, &w);
}

/* ---- The gradient of a weight ----------------------------------------------------------------------------- */

typedef struct weights {
  const treadle_back *back;
  const float *x; /* [rows, columns] */
  int64_t stride, columns, rows;
  const treadle_back_term *term;
  const treadle_weight *grad;
} weights;

static int64_t leaf_of(int64_t rows) {
  int32_t leaf;
  treadle_back_tokens(rows, &leaf);
  return leaf;
}

/* Leaves of tokens, in panels: [leaf][panel][tokens][columns of a tile]. Each thread has some of the tokens. */
static void pack_tokens(void *context, int32_t index, int32_t count) {
  const weights *w = context;
  const int64_t width = w->back->outer->columns, padded = round_up(w->columns, width),
                leaf = leaf_of(w->rows);
  int64_t end = w->rows * (index + 1) / count;
  float *all = (float *)(void *)w->back->buffers.turned_x;
  for (int64_t row = w->rows * index / count; row < end; row++) {
    int64_t begin = row / leaf * leaf, tokens = w->rows - begin < leaf ? w->rows - begin : leaf;
    for (int64_t column = 0; column < w->columns; column += width) {
      int64_t some = w->columns - column < width ? w->columns - column : width;
      float *to = all + begin * padded + column * tokens + (row - begin) * width;
      fetch_ahead(w->x + row * w->stride + column, some);
      memcpy(to, w->x + row * w->stride + column, (size_t)some * sizeof *to);
      if (some < width) memset(to + some, 0, (size_t)(width - some) * sizeof *to);
    }
  }
}

void treadle_outer_take_rows(const treadle_back *back, const float *x, int64_t stride, int64_t columns,
                             int64_t rows) {
  weights w = {.back = back, .x = x, .stride = stride, .columns = columns, .rows = rows};
  treadle_team_run(back->pass->team, pack_tokens, &w);
}

/* Rows [row, row + rows) of the gradient, added up in `sums`, columns from `column` on. */
static void add_sums(const weights *w, const float *sums, int64_t row, int64_t rows, int64_t column) {
  const int64_t width = w->back->outer->columns, left = w->columns - column;
  for (int64_t r = 0; r < rows; r++)
    w->back->pass->row_ops->add(treadle_back_grad(w->back, w->grad, row + r) + column, sums + r * width,
                                TREADLE_FP32, left < width ? left : width);
}

/* dy of a tile of rows, with zeros for those that are not there. */
static void take_rows(const weights *w, int64_t row, int64_t rows, int64_t begin, int64_t tokens,
                      float *packed) {
  const treadle_outer_ops *ops = w->back->outer;
  const float *from = w->term->dy + begin * w->term->stride + row;
  if (rows == ops->rows) {
    ops->take(packed, from, w->term->stride, tokens);
    return;
  }
  for (int64_t k = 0; k < tokens; k++, from += w->term->stride)
    for (int r = 0; r < ops->rows; r++) packed[k * ops->rows + r] = r < rows ? from[r] : 0;
}

/* A tile of rows of the gradient, over one leaf. */
static void add_leaf(const weights *w, int64_t row, int64_t begin, int64_t tokens, float *packed) {
  const treadle_outer_ops *ops = w->back->outer;
  const int64_t width = ops->columns, padded = round_up(w->columns, width);
  int64_t left = w->term->weight->row_count - row, rows = left < ops->rows ? left : ops->rows;
  float sums[TREADLE_OUTER_ROWS_MOST * TREADLE_OUTER_COLUMNS_MOST];
  int64_t run, stride;
  float *grad = treadle_back_grad_run(w->back, w->grad, row, &run, &stride);
  take_rows(w, row, rows, begin, tokens, packed);
  for (int64_t column = 0; column < w->columns; column += width) {
    const bool whole = rows == ops->rows && run >= rows && w->columns - column >= width;
    const float *x =
        (const float *)(const void *)w->back->buffers.turned_x + begin * padded + column * tokens;
    ops->tile(whole ? grad + column : sums, whole ? stride : width, whole, packed, x, tokens);
    if (!whole) add_sums(w, sums, row, rows, column);
  }
}

static void add_rows(void *context, int32_t index, int32_t count) {
  const weights *w = context;
  const int64_t tile = w->back->outer->rows, tiles = (w->term->weight->row_count + tile - 1) / tile;
  const int64_t leaf = leaf_of(w->rows), end = tiles * (index + 1) / count;
  float *packed = w->back->buffers.outer + (int64_t)index * w->back->buffers.outer_each;
  for (int64_t begin = 0; begin < w->rows; begin += leaf)
    for (int64_t number = tiles * index / count; number < end; number++)
      add_leaf(w, number * tile, begin, w->rows - begin < leaf ? w->rows - begin : leaf, packed);
}

void treadle_outer_weight(const treadle_back *back, const treadle_back_term *term,
                          const treadle_weight *grad, int64_t rows) {
  weights w = {
      .back = back, .columns = term->weight->column_count, .rows = rows, .term = term, .grad = grad};
  treadle_team_run(back->pass->team, add_rows, &w);
}

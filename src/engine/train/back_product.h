/* The two transposed products of backward: from dy to the gradient of what was multiplied, and to that of the weight. */
#ifndef TREADLE_TRAIN_BACK_PRODUCT_H
#define TREADLE_TRAIN_BACK_PRODUCT_H

#include "train/back.h"

/* Gradients of rows of a weight: dy [rows, what is here of the weight's rows]. */
typedef struct treadle_back_term {
  const treadle_weight *weight;
  const float *dy;
  int64_t stride;
  int64_t share; /* of the weight's rows that a leaf has; of the last one maybe less */
} treadle_back_term;

/* dx [nodes, rows, columns of the weights] = the sum over all terms of dy times the weight. The inner dimension is that of leaves, of each of
 * which every term has its share, one behind the other. */
typedef struct treadle_back_inputs {
  const treadle_back_term *terms;
  int count;
  treadle_leaf_range leaves;
  int64_t rows;
  float *dx;
  int64_t stride;
} treadle_back_inputs;

/* What weights multiplied: x [rows, columns]. */
typedef struct treadle_back_rows {
  const float *x;
  int64_t stride, columns, rows;
} treadle_back_rows;

/* ---- back_weights.c ---- */

/* The gradients of weights of a layer that multiplied these rows: grad += dy^T x, over the tokens of all context
 * parallel ranks. */
treadle_status treadle_back_weights(const treadle_back *back, int32_t layer, const treadle_back_rows *x,
                                    const treadle_back_term *terms, const treadle_role *roles, int count);

/* ---- back_product.c ---- */

treadle_status treadle_back_input(const treadle_back *back, const treadle_back_inputs *inputs);
/* The gradient of what a matrix multiplied whose rows are all here: y [rows, columns of it here]. */
treadle_status treadle_back_through(const treadle_back *back, const treadle_back_term *term, int64_t rows,
                                    float *y, int64_t stride);
/* buffers.dnormed: of what these weights multiplied, from all ranks. Another rank has the same part unless this one speaks. */
treadle_status treadle_back_normed(const treadle_back *back, const treadle_back_term *terms, int count,
                                   treadle_leaf_range leaves, bool speaks, int64_t rows);
/* Brings x [rows, columns] into the form that the next gradients of weights need. */
treadle_status treadle_back_take_rows(const treadle_back *back, const float *x, int64_t stride,
                                      int64_t columns, int64_t rows);
/* The gradient of a weight that multiplied these rows: grad += dy^T x. */
treadle_status treadle_back_weight(const treadle_back *back, const treadle_back_term *term,
                                   const treadle_weight *grad, int64_t rows);
/* Bytes of packed rows for a product with this inner dimension: *packed_p becomes the larger of both. */
treadle_status treadle_back_measure(const treadle_pass_options *options, treadle_gemm_inner inner,
                                    int64_t rows, size_t *packed_p);
/* A leaf of this many elements with the zeros that follow it. */
static inline int64_t treadle_back_leaf(int64_t elements) { return (elements + 31) / 32 * 32; }
/* `rows` in leaves, all together; how large one is. */
int64_t treadle_back_tokens(int64_t rows, int32_t *leaf_p);

/* A row of a weight's gradient. */
float *treadle_back_grad(const treadle_back *back, const treadle_weight *grad, int64_t row);
/* The rows of a gradient from `row` on that follow each other: how many, and how far apart. */
float *treadle_back_grad_run(const treadle_back *back, const treadle_weight *grad, int64_t row,
                             int64_t *rows_p, int64_t *stride_p);
/* Row `row` of those that are here. */
const char *treadle_back_weight_row(const treadle_pass *pass, const treadle_weight *weight, int64_t row);

/* ---- back_paired.c ---- */

/* As treadle_back_input, _take_rows and _weight, where back->pairs. */
treadle_status treadle_paired_input(const treadle_back *back, const treadle_back_inputs *inputs);
treadle_status treadle_paired_take_rows(const treadle_back *back, const float *x, int64_t stride,
                                        int64_t columns, int64_t rows);
treadle_status treadle_paired_weight(const treadle_back *back, const treadle_back_term *term,
                                     const treadle_weight *grad, int64_t rows);
/* Is there a kernel for it? */
bool treadle_paired_can(const treadle_pass_options *options);
/* Bytes of what is packed, `columns` of it: *packed_p becomes the larger of both. */
treadle_status treadle_paired_measure(const treadle_pass_options *options, treadle_gemm_inner inner,
                                      int64_t columns, size_t *packed_p);

/* ---- back_outer.c ---- */

/* As treadle_back_input, _take_rows and _weight, where back->outer is there. */
void treadle_outer_input(const treadle_back *back, const treadle_back_inputs *inputs);
void treadle_outer_take_rows(const treadle_back *back, const float *x, int64_t stride, int64_t columns,
                             int64_t rows);
void treadle_outer_weight(const treadle_back *back, const treadle_back_term *term,
                          const treadle_weight *grad, int64_t rows);
/* Values for a product with this inner dimension: of packed weights, and of a thread's rows. Both become the larger. */
void treadle_outer_measure(const treadle_outer_ops *ops, int64_t inner, int64_t columns, int64_t *panels_p,
                           int64_t *block_p);

#endif

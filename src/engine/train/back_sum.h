/* Sums over tokens: gradients of norms and biases. */
#ifndef TREADLE_TRAIN_BACK_SUM_H
#define TREADLE_TRAIN_BACK_SUM_H

#include "train/back.h"

/* grad [columns] += the sum of rows of dy, own rows; and of rows that all context parallel ranks have, dy
 * [rows, columns]. */
treadle_status treadle_back_bias(const treadle_back *back, const treadle_weight *grad, const float *dy,
                                 int64_t stride, int64_t rows);
void treadle_back_bias_of_all(const treadle_back *back, const treadle_weight *grad, const float *dy,
                              int64_t rows);

/* grad [1, hidden] += the sum of rows of x [rows, hidden], each times its number of `by` [rows]. */
void treadle_back_weighted(const treadle_back *back, const treadle_weight *grad, const float *x,
                           const float *by, int64_t rows);

/* Of a norm over rows of hidden: dx of row which[i] (NULL: i) += what follows from row i of dy; and the norm's gradient. which may have a
 * row more than once. */
typedef struct treadle_back_norm_rows {
  const treadle_weight *norm, *grad;
  const float *x, *dy;
  float *dx;
  const int32_t *which; /* NULL: x has this rank's own rows, dx all of them; else x has all, or, of context
                           parallel ranks, rows that are chosen already */
  float *apart;         /* of which: room for [rows, hidden] */
  int64_t rows;
} treadle_back_norm_rows;
treadle_status treadle_back_norm(const treadle_back *back, const treadle_back_norm_rows *rows);

/* Of a norm inside of latent attention, over all of its columns: dx is written. Every rank has all rows, and adds up
 * all of them. */
typedef struct treadle_back_inner_norm {
  const treadle_weight *norm, *grad;
  const float *x, *dy;
  float *dx;
  int64_t x_stride, dy_stride, dx_stride, rows;
} treadle_back_inner_norm;
void treadle_back_norm_inner(const treadle_back *back, const treadle_back_inner_norm *rows);

/* Of heads: dy becomes the gradient of what was normed, in place. The norm's gradient is a sum over tokens for each head, and then over the
 * heads of all ranks, one after the other. */
typedef struct treadle_back_heads {
  const treadle_weight *norm, *grad;
  const float *x; /* [rows, heads, dim] before the norm */
  float *dy;
  int64_t stride, heads, dim, rows;
  int64_t first, all; /* of the heads of all ranks */
} treadle_back_heads;
treadle_status treadle_back_norm_heads(const treadle_back *back, const treadle_back_heads *heads);

#endif

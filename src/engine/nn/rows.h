/* Operations on one row of activations: what a forward pass does between its matrix products.
 *
 * A row is fp32. Weights (norms, biases, embeddings) are read in fp32 or bf16 where they lie; nothing needs an alignment.
 * There are several sets of the same functions: plain C, AVX2, AVX-512. They give the same bits (NaN aside): 16 lanes, lane i
 * has columns i, i + 16, ...; behind the last column lanes are zero. Multiplications and additions round
 * separately; there is no libm. What is written may be what is read where both are rows of fp32 and begin at the same place.
 *
 * A row with NaN gives NaN where the formula does; no function depends on the values in its running time. */
#ifndef TREADLE_NN_ROWS_H
#define TREADLE_NN_ROWS_H

#include "base/dtype.h"
#include "nn/exp.h"

#include <stdbool.h>

/* Columns of logits that are summed together. */
enum { TREADLE_ROW_BLOCK = 64 };

typedef struct treadle_row_ops {
  const char *name;
  bool (*supported)(void); /* by this processor */

  /* x / sqrt(mean of x^2 + eps) * weight. Lanes add their squares in order; lanes are added 0+8 1+9 ..,
   * then 0+4 .., 0+2 1+3, 0+1. A norm over heads is one call for each head. */
  void (*norm)(float *to, const float *x, const void *weight, treadle_dtype dtype, int64_t count,
               float eps);
  /* to += x: residuals (fp32) and biases. */
  void (*add)(float *to, const void *x, treadle_dtype dtype, int64_t count);
  /* to += x * scale: experts. */
  void (*add_scaled)(float *to, const float *x, float scale, int64_t count);
  /* gate / (1 + e^-gate) * up */
  void (*silu)(float *to, const float *gate, const float *up, int64_t count);
  /* To fp32, and from it to bf16 (nearest, ties to even) or fp32. Rows do not overlap. */
  void (*widen)(float *to, const void *from, treadle_dtype dtype, int64_t count);
  void (*narrow)(void *to, treadle_dtype dtype, const float *from, int64_t count);

  /* Up to 16 rows become columns, rounded as by narrow: value d of row r goes to element d * step + r. */
  void (*turn)(void *to, treadle_dtype dtype, int64_t step, const float *from, int64_t stride, int64_t rows,
               int64_t count);

  /* Of z = x / temperature: the largest z, and the sum of e^(z - largest). Blocks of TREADLE_ROW_BLOCK columns
   * from column 0: lanes add in order, lanes are added as in norm; block sums are added in order, in double. */
  void (*sum_exp)(const float *x, int64_t count, float temperature, float *largest_p, double *sum_p);
  /* e^(x - largest) / (float)sum. */
  void (*softmax)(float *to, const float *x, int64_t count);

  /* Rotates 2 * pairs values by the angles whose cosines and sines are given (nn/rope.h): halves, value i with value
   * pairs + i, tables [pairs]; or neighbours, 2 i with 2 i + 1, tables [2 * pairs], the sine negative at even places. */
  void (*rotate_halves)(float *x, const float *cosine, const float *sine, int64_t pairs);
  void (*rotate_neighbours)(float *x, const float *cosine, const float *sine, int64_t pairs);
} treadle_row_ops;

/* The fastest that this processor runs; always the same. */
const treadle_row_ops *treadle_row_ops_choose(void);
/* Those of the same instructions as these kernels of products, where there are some: so a name limits all of them. No bit depends on it. */
const treadle_row_ops *treadle_row_ops_for(const char *kernels);
/* Their place in the list; NULL: of the fastest. Another list of files for the same lanes (nn/lanes.h) has the same places. */
int treadle_row_ops_place(const char *kernels);
/* All, plain C first, and whether or not they are supported; for tests and benches. */
const treadle_row_ops *const *treadle_row_ops_list(int *count_p);

#endif

/* Products of adapters' gradients: rows times A or B, and sums over tokens. */
#ifndef TREADLE_TRAIN_ADAPTERS_PRODUCTS_H
#define TREADLE_TRAIN_ADAPTERS_PRODUCTS_H

#include "train/adapters.h"

/* Rows of x or dy: [rows, count]. */
typedef struct treadle_adapter_rows {
  const float *at;
  int64_t stride, count, rows;
} treadle_adapter_rows;

/* The leaves of a product's inner dimension that this rank has, of `share` elements each. */
typedef struct treadle_adapter_cut {
  treadle_leaf_range range;
  int64_t share;
  bool speaks; /* no other rank brings the same leaves */
} treadle_adapter_cut;

extern const char treadle_adapter_sum_name[];

/* to [rows, rank] = scale times the product of the rows with A^T, where A is [rank, count], or with B [count, rank]. Where there is more than one
 * leaf, the ranks of a stage add theirs, and all of them call. */
treadle_status treadle_train_adapter_project(const treadle_train_adapters *adapters,
                                             const treadle_adapter_rows *from,
                                             const treadle_adapter_cut *leaves, const float *values,
                                             bool is_b, float *to);
/* Onto the gradient: of B [count, rank] += from^T by, of A [rank, count] += by^T from; by: [rows, rank]. */
void treadle_train_adapter_sum(const treadle_train_adapters *adapters, const treadle_adapter_rows *from,
                               const float *by, bool is_b, float *grad);

#endif

/* Backward of attention (nn/attention.h): of one sequence and one key and value head, with all query heads that read it.
 *
 * The order of additions. Query heads in ascending order, of each its rows in ascending order, and of a row the keys that it sees:
 *   1. score of each key: a chain of fused multiply-adds over the dimensions of the head, from 0; then times `scale`.
 *   2. p = e^(score - largest) / sum, where lane i of 16 adds keys i, i + 16, ... in order and lanes are added as in nn/rows.h.
 *   3. dp of each key: a chain over the dimensions of dout times value; d = sum of dout * out, in lanes.
 *   4. ds = p * (dp - d) * scale.
 *   5. dq: a chain of ds * key over the keys in ascending order; dk of each key += ds * q and dv += p * dout, fused.
 * Nothing else has a part in a result: not other sequences, nor threads. Memory grows with rows, not with their square.
 * dq may be q. */
#ifndef TREADLE_NN_ATTENTION_BACK_H
#define TREADLE_NN_ATTENTION_BACK_H

#include "base/dtype.h"

#include <stddef.h>

/* Strides are values from row to row; rows are positions before, before + 1, ... of the sequence. Keys and values of the `before` positions in
 * front of them lie elsewhere (0: there are none), since other sequences have them, too; what these rows add to their gradients is added to
 * what is there. */
typedef struct treadle_attention_back {
  int64_t rows, queries_per_head, key_dim, value_dim;
  float scale;         /* of scores */
  treadle_dtype dtype; /* to which keys and values were rounded: fp32 or bf16 */
  const float *q, *k,
      *v; /* [rows, queries_per_head * key_dim], [rows, key_dim], [rows, value_dim], as they were compared */
  int64_t q_stride, k_stride, v_stride;
  const float *out, *dout; /* [rows, queries_per_head * value_dim] */
  int64_t out_stride, dout_stride;
  float *dq, *dk, *dv; /* as q, k, v; written */
  int64_t dq_stride, dk_stride, dv_stride;
  int64_t before;
  const float *before_k, *before_v; /* strides as k, v */
  float *before_dk, *before_dv;     /* added to; strides as dk, dv */
} treadle_attention_back;

/* Of one thread, a multiple of 64; rows: those before, too. */
size_t treadle_attention_back_bytes(int64_t rows, int64_t key_dim, int64_t value_dim);
/* By the instructions of these kernels of products (treadle_row_back_ops_for); no bit depends on them. scratch is a multiple of 64. */
void treadle_attention_back_run(const treadle_attention_back *attention, const char *kernels,
                                void *scratch);

#endif

/* Backward of the operations on one row (nn/rows.h). The sets, their lanes and their roundings are as there; sets give the same bits. */
#ifndef TREADLE_NN_ROWS_BACK_H
#define TREADLE_NN_ROWS_BACK_H

#include "base/dtype.h"

#include <stdbool.h>

/* A row that a norm was taken of. */
typedef struct treadle_normed_row {
  const float *x;      /* [count] */
  const void *weight;  /* [count] */
  treadle_dtype dtype; /* of weight: fp32 or bf16 */
  int64_t count;
  float eps;
} treadle_normed_row;

/* A row of logits, and the slopes of a loss. */
typedef struct treadle_policy_row {
  float lse, temperature, entropy, by_logprob, by_entropy;
  int64_t target; /* below count; -1: it is not of these */
} treadle_policy_row;

typedef struct treadle_row_back_ops {
  const char *name;
  bool (*supported)(void);

  /* Of y = x * r * weight, r = 1 / sqrt(mean of x^2 + eps), and dy:
   *   dx += dy * weight * r - x * (r^3 * sum(dy * weight * x) / count)
   *   dweight += dy * (x * r)
   * dx, dweight and dy: [count]; dweight is of all rows, or of those that the caller adds up together. */
  void (*norm)(float *dx, float *dweight, const float *dy, const treadle_normed_row *row);
  /* Of y = gate * s * up, s = 1 / (1 + e^-gate), and dy: dgate = dy * up * (s * (1 + gate * (1 - s))), dup = dy * (gate * s). They may be
   * gate and up. And y once more, with the bits of treadle_row_ops' silu. */
  void (*silu)(float *dgate, float *dup, float *y, const float *dy, const float *gate, const float *up,
               int64_t count);
  /* to += x */
  void (*add)(float *to, const float *x, int64_t count);
  /* Of -log p[target], p = e^(logit - lse): each logit becomes (p - 1 where it is the target's) * scale. target is below count; -1: it is
   * not of these. */
  void (*loss)(float *logits, int64_t count, float lse, int64_t target, float scale);
  /* Of a policy: x = logit / temperature, p = e^(x - lse), h the entropy of all p: each logit becomes
   * p * (-by_logprob - by_entropy * (x - lse + h)) / temperature, and the target's by_logprob / temperature more. */
  void (*policy)(float *logits, int64_t count, const treadle_policy_row *row);
  /* h: the sum of p * (lse - x), by lanes as in nn/rows.h. */
  double (*entropy)(const float *logits, int64_t count, float lse, float temperature);
  /* The sum of a * b, by lanes as in nn/rows.h. */
  float (*sum_products)(const float *a, const float *b, int64_t count);
} treadle_row_back_ops;

/* As for treadle_row_ops. */
const treadle_row_back_ops *treadle_row_back_ops_for(const char *kernels);
const treadle_row_back_ops *const *treadle_row_back_ops_list(int *count_p);

#endif

/* One step of AdamW over a run of elements. Sets of functions and their lanes are those of nn/rows.h: all give the same bits. Elements
 * do not depend on each other, so neither does a result on how a run is cut. */
#ifndef TREADLE_NN_ADAM_H
#define TREADLE_NN_ADAM_H

#include "base/dtype.h"

#include <stdbool.h>

/* What a step multiplies with. They are computed in double (train/adam.h) and rounded once. */
typedef struct treadle_adam_factors {
  float scale;      /* of gradients */
  float decay;      /* 1 - lr * weight_decay */
  float mix;        /* 1 - beta1 */
  float keep_sq;    /* beta2 */
  float mix_sq;     /* 1 - beta2 */
  float root;       /* sqrt(1 - beta2^step) */
  float eps;        /* added to the root of exp_avg_sq */
  float minus_step; /* -lr / (1 - beta1^step) */
} treadle_adam_factors;

/* All of them have `count` elements. */
typedef struct treadle_adam_run {
  float *master, *exp_avg, *exp_avg_sq;
  const float *grad;
  void *weights; /* what the master is rounded to, to the nearest even; NULL: the master is the weight */
  treadle_dtype dtype; /* of weights: fp32 or bf16 */
  int64_t count;
} treadle_adam_run;

typedef struct treadle_adam_ops {
  const char *name;
  bool (*supported)(void);

  /* For each element, as torch.optim.AdamW of one tensor does; each operation is rounded to fp32, from left to right:
   *   g          = grad * scale
   *   exp_avg    = exp_avg + (g - exp_avg) * mix; with mix from 1/2 on, g - (g - exp_avg) * (1 - mix)
   *   exp_avg_sq = exp_avg_sq * keep_sq + g * mix_sq * g
   *   master     = master * decay + exp_avg * minus_step / (sqrt(exp_avg_sq) / root + eps) */
  void (*step)(const treadle_adam_factors *factors, const treadle_adam_run *run);
} treadle_adam_ops;

/* As for treadle_row_ops. */
const treadle_adam_ops *treadle_adam_ops_for(const char *kernels);
const treadle_adam_ops *const *treadle_adam_ops_list(int *count_p);

#endif

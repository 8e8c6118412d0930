/* AdamW: master weights and two moments, all fp32, as torch.optim.AdamW has them. */
#ifndef TREADLE_TRAIN_ADAM_H
#define TREADLE_TRAIN_ADAM_H

#include "base/team.h"
#include "nn/adam.h"

typedef struct treadle_adam {
  double beta1, beta2, eps;
} treadle_adam;

/* Step number `step`, the first is 1. weight_decay: 0 for tensors of one dimension. scale: of gradients, what clipping makes of them. */
typedef struct treadle_adam_step {
  int64_t step;
  double lr, weight_decay, scale;
} treadle_adam_step;

/* What a step multiplies with. beta1 and beta2 lie in [0, 1). */
treadle_adam_factors treadle_adam_factors_of(const treadle_adam *adam, const treadle_adam_step *step);

/* Takes the step over a run, each member of the team a part of it; NULL: this thread alone. */
void treadle_adam_take(const treadle_adam_ops *ops, treadle_team *team, const treadle_adam_factors *factors,
                       const treadle_adam_run *run);

/* The factor by which clipping multiplies gradients of this norm (torch.nn.utils.clip_grad_norm_): clip / (norm + 1e-6), at most 1. A
 * clip of 0 or less: 1. */
double treadle_adam_clip(double norm, double clip);

#endif

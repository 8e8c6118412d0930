/* The optimizer of a trainer: AdamW, with the state of this rank's share of the window of gradients, element by element. */
#ifndef TREADLE_TRAIN_OPTIMIZER_H
#define TREADLE_TRAIN_OPTIMIZER_H

#include "train/adam.h"
#include "train/ranks.h"
#include "train/sequence.h"
#include "train/windows.h"

/* windows, ranks and team are the trainer's. */
typedef struct treadle_train_optimizer {
  const treadle_train_windows *windows;
  const treadle_train_ranks *ranks;
  treadle_team *team;
  const treadle_adam_ops *ops;
  float *master;  /* NULL: weights are fp32 */
  float *exp_avg; /* NULL: there is no optimizer */
  float *exp_avg_sq;
  double beta1, beta2, eps;
  int64_t steps;             /* taken */
  int64_t replica, replicas; /* which one has this share, of how many */
  bool wanted, distributed;
  size_t bytes;
} treadle_train_optimizer;

/* Elements of the window of gradients whose state a replica's rank has; this rank's. */
treadle_row_range treadle_train_share(const treadle_train_optimizer *optimizer, int64_t replica);
treadle_row_range treadle_train_own_share(const treadle_train_optimizer *optimizer);
/* Takes masters from the window of gradients, which holds their values. */
void treadle_train_take_master(treadle_train_optimizer *optimizer);
/* Sets the moments to 0, as before the first step. */
void treadle_train_reset_optimizer(treadle_train_optimizer *optimizer);

#endif

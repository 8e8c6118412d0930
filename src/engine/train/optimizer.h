/* The optimizer of a trainer: AdamW, with the state of this rank's share of the window of gradients, element by element. */
#ifndef TREADLE_TRAIN_OPTIMIZER_H
#define TREADLE_TRAIN_OPTIMIZER_H

#include "train/adam.h"
#include "train/ranks.h"
#include "train/sequence.h"
#include "train/windows.h"

/* Lines of elements, each divided among ranks of its own (optimizer_share.c). */
typedef enum treadle_train_kind {
  TREADLE_TRAIN_DENSE, /* of all data parallel ranks; and of all elements, where these have the same experts */
  TREADLE_TRAIN_EXPERTS,
  TREADLE_TRAIN_KINDS
} treadle_train_kind;

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
  int64_t member[TREADLE_TRAIN_KINDS], members[TREADLE_TRAIN_KINDS]; /* which share is this rank's, of how many */
  bool parts_experts; /* these have a line of their own */
  bool wanted, distributed;
  size_t bytes;
} treadle_train_optimizer;

/* ---- optimizer_share.c ---- */

/* Elements that follow each other in the window of gradients, in that of weights and in this rank's state alike. */
typedef struct treadle_train_run {
  int64_t grad, state, count; /* elements */
  char *weights;
  treadle_dtype dtype;
  bool decays, changes;
} treadle_train_run;
typedef treadle_status (*treadle_train_run_work)(void *context, const treadle_train_run *run);
/* Elements whose state this rank has; and all runs of them. */
int64_t treadle_train_state_elements(const treadle_train_optimizer *optimizer);
treadle_status treadle_train_each_run(const treadle_train_optimizer *optimizer, treadle_train_run_work work,
                                      void *context);
/* From the ranks whose shares they are to all of them: weights that change; what is in the window of gradients. Collective. */
treadle_status treadle_train_bring_weights(const treadle_train_optimizer *optimizer);
treadle_status treadle_train_bring_state(const treadle_train_optimizer *optimizer);

/* ---- optimizer.c ---- */

/* Values of this rank's elements, such as masters, from the window of gradients, which holds them. */
void treadle_train_take_state(const treadle_train_optimizer *optimizer, float *to);
/* Sets the moments to 0, as before the first step. */
void treadle_train_reset_optimizer(treadle_train_optimizer *optimizer);

#endif

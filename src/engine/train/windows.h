/* The windows of a trainer's rank, and the layouts that say what lies in them. Gradients are fp32, in the layout of the weights with
 * dtype=fp32. */
#ifndef TREADLE_TRAIN_WINDOWS_H
#define TREADLE_TRAIN_WINDOWS_H

#include "layout/layout.h"
#include "pass/transformer.h"

typedef struct treadle_train_windows {
  const treadle_layout *layout;
  treadle_layout *grad_layout;
  int64_t rank;  /* of both layouts */
  char *weights; /* [weight_bytes] */
  const treadle_layout
      *trained_layout; /* of what gradients are of: the weights, or adapters in place of them */
  char *trained;       /* the window of that */
  char *grads;         /* [grad_bytes] */
  bool given;          /* the memory is the caller's */
  bool offloads;       /* they lie on the host, and take nothing of the device */
  bool forward_only;   /* there are no gradients: grads is NULL */
  size_t weight_bytes, grad_bytes;
  const bool *changes;   /* [storage tensors]: those that a step of the optimizer changes; NULL: all */
  const bool *untrained; /* [tensors of the model]: those that have no gradients */
  size_t adapter_bytes;  /* 0: weights are trained; they lie in no window */
} treadle_train_windows;

/* The gradients of all elements here, as they lie in the window. */
static inline float *treadle_train_grads(const treadle_train_windows *windows) {
  return (float *)(void *)windows->grads;
}

/* ---- trainer.c ---- */

/* Refused: an element of this rank's weights that is infinite or not a number, by its tensor. */
treadle_status treadle_train_check_weights(const treadle_train_windows *windows);
/* TREADLE_STATE: rows go forward only, and there are none; `what` asks for them. */
treadle_status treadle_train_need_gradients(const treadle_train_windows *windows, const char *what);

/* ---- random_weights.c ---- */

/* Fills the window of weights; `masters`: and that of gradients with the same values in fp32. */
treadle_status treadle_train_randomise(const treadle_train_windows *windows,
                                       const treadle_transformer *transformer, bool masters, uint64_t seed);

#endif

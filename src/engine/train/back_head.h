/* The ends of the model: embedding, and the head with the loss. */
#ifndef TREADLE_TRAIN_BACK_HEAD_H
#define TREADLE_TRAIN_BACK_HEAD_H

#include "train/back.h"

/* A micro batch as the passes see it. */
typedef struct treadle_train_step {
  treadle_pass_step step;
  int64_t counted;                   /* tokens that the loss counts */
  const int32_t *which;              /* [counted] their rows: of the token before */
  const int32_t *targets;            /* [counted] */
  const treadle_train_place *places; /* [counted] */
  struct treadle_train_work *work;   /* whose it is (gradients.h) */
} treadle_train_step;

/* Loss of a micro batch whose rows went through all layers, x [rows, hidden]: log-probabilities, and what the work adds up of them, in the
 * order of rows; buffers.dx becomes its gradient. */
treadle_status treadle_back_head(treadle_back *back, const treadle_train_step *batch, float *x);
/* The loss alone, from which there is no way backward. */
treadle_status treadle_back_loss(treadle_back *back, const treadle_train_step *batch, float *x);
/* Rows which[i] of x that the head takes. Of context parallel ranks, *x_p becomes these rows of all of them, and
 * *which_p NULL. */
treadle_status treadle_back_head_rows(const treadle_back *back, float **x_p, const int32_t **which_p,
                                      int64_t rows);
/* This rank's leaves of the vocabulary, each of TREADLE_HEAD_LEAF rows of the head, where there are several. */
treadle_leaf_range treadle_back_head_leaves(const treadle_back *back);
/* Another rank of the stage has the same rows of the head, and speaks for them: ranks that differ in their experts alone. */
bool treadle_back_head_is_silent(const treadle_back *back);
treadle_status treadle_back_embed(treadle_back *back, const treadle_pass_step *step);
/* The two halves of a tied gradient become one, where this rank has both. */
void treadle_back_tie(treadle_back *back);

#endif

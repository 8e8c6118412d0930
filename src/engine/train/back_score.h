/* A score head: one number for each token, of a critic or a reward model. */
#ifndef TREADLE_TRAIN_BACK_SCORE_H
#define TREADLE_TRAIN_BACK_SCORE_H

#include "train/back_head.h"

/* As treadle_back_head and treadle_back_loss, where the model has a score head. What was found of a token goes where log-probabilities go
 * otherwise. */
treadle_status treadle_back_score(treadle_back *back, const treadle_train_step *batch, float *x);
treadle_status treadle_back_scores(treadle_back *back, const treadle_train_step *batch, float *x);

#endif

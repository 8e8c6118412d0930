/* The loss of a critic, a token at a time (verl/trainer/ppo/core_algos.py, compute_value_loss):
 *
 *   token = max((v - R)^2, (clip(v, old - clip, old + clip) - R)^2) / 2
 *   loss  = the sum over all tokens of the mini batch of weight * token, with the weights of ppo.h */
#ifndef TREADLE_TRAIN_VALUE_H
#define TREADLE_TRAIN_VALUE_H

#include "train/ppo.h"

typedef struct treadle_value_loss {
  double clip;         /* INFINITY: no clip */
  treadle_ppo weights; /* its aggregation and norm_length */
} treadle_value_loss;

typedef struct treadle_value_token {
  double value, old, returns, weight;
} treadle_value_token;

typedef struct treadle_value_term {
  double loss, by_value; /* weighted; its derivative */
  double value;
  bool clipped; /* the clipped square is the larger one */
} treadle_value_term;

/* Where the clipped square counts, nothing moves it. */
void treadle_value_of_token(const treadle_value_loss *loss, const treadle_value_token *token,
                            treadle_value_term *result_p);

/* What the numbers of a caller mean. Refused: numbers out of range. */
treadle_status treadle_value_read(const treadle_loss_options *options, treadle_value_loss *loss_p);

/* Sums over the tokens of a mini batch, in the order of rows. */
typedef struct treadle_value_sums {
  double loss, clipped, value;
} treadle_value_sums;

void treadle_value_add(treadle_value_sums *sums, const treadle_value_term *term);
/* What they are to the caller, over that many tokens. */
void treadle_value_figures(const treadle_value_sums *sums, int64_t tokens, treadle_loss *loss_p);

#endif

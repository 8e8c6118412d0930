/* The loss of a policy, a token at a time: clipped as PPO, with a second clip where the advantage is negative, entropy and KL beside it. Formulas
 * are verl's (verl/trainer/ppo/core_algos.py, compute_policy_loss_vanilla and agg_loss).
 *
 *   ratio = e^(logprob - old), the exponent held within 20
 *   pg    = max(-A ratio, -A clip(ratio, 1 - low, 1 + high)); where A < 0: min(that, -A c)
 *   token = pg - entropy_coeff * entropy + kl_coef * KL(logprob, ref)
 *   loss  = the sum over all tokens of the mini batch of weight * token
 *
 * Weights make the mean of the whole mini batch, wherever its rows are computed:
 *
 *   token-mean               1 / tokens
 *   seq-mean-token-sum       1 / samples
 *   seq-mean-token-mean      1 / samples / length of its sample
 *   seq-mean-token-sum-norm  1 / samples / norm_length
 *
 * Samples without tokens do not count. */
#ifndef TREADLE_TRAIN_PPO_H
#define TREADLE_TRAIN_PPO_H

#include "train/kl.h"
#include "treadle_engine.h"

#include <stddef.h>

/* In the order of the words of loss_agg_mode. */
typedef enum treadle_ppo_aggregation {
  TREADLE_PPO_TOKEN_MEAN,
  TREADLE_PPO_SEQ_MEAN_TOKEN_SUM,
  TREADLE_PPO_SEQ_MEAN_TOKEN_MEAN,
  TREADLE_PPO_SEQ_MEAN_TOKEN_SUM_NORM
} treadle_ppo_aggregation;

/* "token-mean" */
const char *treadle_ppo_aggregation_name(treadle_ppo_aggregation aggregation);

typedef struct treadle_ppo {
  double clip_low, clip_high, clip_c;
  treadle_ppo_aggregation aggregation;
  double norm_length;
  double entropy_coeff;
  bool use_kl;
  treadle_kl_kind kl_kind;
  double kl_coef;
  double importance_cap; /* not 0: pg is multiplied by e^(old - rollout), at most this */
} treadle_ppo;

typedef struct treadle_ppo_token {
  double logprob, entropy, old, ref, rollout, advantage, weight;
} treadle_ppo_token;

typedef struct treadle_ppo_term {
  double pg, kl, ppo_kl;         /* not weighted */
  bool clipped, clipped_lower;   /* the first clip has worked; the second */
  double loss;                   /* weighted */
  double by_logprob, by_entropy; /* its derivatives */
  double weight, entropy;        /* the token's */
} treadle_ppo_term;

void treadle_ppo_of_token(const treadle_ppo *loss, const treadle_ppo_token *token,
                          treadle_ppo_term *result_p);

/* Of a token of a sample with `length` tokens, in a mini batch of `tokens` tokens in `samples` samples that have some. */
double treadle_ppo_weight(const treadle_ppo *loss, int64_t length, int64_t tokens, int64_t samples);

/* What the names and numbers of a caller mean. Refused: an unknown name, numbers out of range. */
treadle_status treadle_ppo_read(const treadle_loss_options *options, treadle_ppo *ppo_p);

/* The aggregation and norm_length of these alone. */
treadle_status treadle_ppo_read_weights(const treadle_loss_options *options, treadle_ppo *ppo_p);

/* Sums over the tokens of a mini batch, in the order of rows. pg, kl and entropy are weighted. */
typedef struct treadle_ppo_sums {
  double loss, pg, kl, entropy, clipped, clipped_lower, ppo_kl;
} treadle_ppo_sums;

void treadle_ppo_add(treadle_ppo_sums *sums, const treadle_ppo_term *term);
/* What they are to the caller, over that many tokens. */
void treadle_ppo_figures(const treadle_ppo_sums *sums, int64_t tokens, treadle_loss *loss_p);

#endif

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
#ifndef TREADLE_RL_LOSS_H
#define TREADLE_RL_LOSS_H

#include "rl/kl.h"

#include <stddef.h>

/* In the order of the words of rl_config.loss_agg_mode. */
typedef enum treadle_rl_aggregation {
  TREADLE_RL_TOKEN_MEAN,
  TREADLE_RL_SEQ_MEAN_TOKEN_SUM,
  TREADLE_RL_SEQ_MEAN_TOKEN_MEAN,
  TREADLE_RL_SEQ_MEAN_TOKEN_SUM_NORM
} treadle_rl_aggregation;

typedef struct treadle_rl_loss {
  double clip_low, clip_high, clip_c;
  treadle_rl_aggregation aggregation;
  double norm_length;
  double entropy_coeff;
  bool use_kl;
  treadle_rl_kl_kind kl_kind;
  double kl_coef;
  double importance_cap; /* not 0: pg is multiplied by e^(old - rollout), at most this */
} treadle_rl_loss;

typedef struct treadle_rl_token {
  double logprob, entropy, old, ref, rollout, advantage, weight;
} treadle_rl_token;

typedef struct treadle_rl_token_loss {
  double pg, kl, ppo_kl;         /* not weighted */
  bool clipped, clipped_lower;   /* the first clip has worked; the second */
  double loss;                   /* weighted */
  double by_logprob, by_entropy; /* its derivatives */
} treadle_rl_token_loss;

void treadle_rl_token_loss_of(const treadle_rl_loss *loss, const treadle_rl_token *token,
                              treadle_rl_token_loss *result_p);

/* Of a token of a sample with `length` tokens, in a mini batch of `tokens` tokens in `samples` samples that have some. */
double treadle_rl_token_weight(const treadle_rl_loss *loss, int64_t length, int64_t tokens,
                               int64_t samples);

/* Of a mini batch. pg_loss, kl_loss and entropy by the weights; the rest means over tokens. */
typedef struct treadle_rl_batch_figures {
  double loss, pg_loss, kl_loss, entropy, clipfrac, clipfrac_lower, ppo_kl;
} treadle_rl_batch_figures;

void treadle_rl_batch_loss(const treadle_rl_loss *loss, const treadle_rl_token *tokens, size_t count,
                           treadle_rl_batch_figures *figures_p);

#endif

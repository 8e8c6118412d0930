/* From rewards to advantages, a value for each token. Formulas are verl's (verl/trainer/ppo/core_algos.py) and MindSpeed-RL's
 * (mindspeed_rl/utils/compute.py). s is the sum of a sample's token rewards; groups are samples of one prompt.
 *
 *   group_norm                   (s - mean of the group) / (its unbiased deviation + 1e-6), or without the division; alone in its group: mean 0,
 *                                deviation 1
 *   rloo                         s - mean of the group's others; alone: s
 *   reinforce_plus_plus          discounted sums of the rewards from each token on, whitened over all tokens
 *   reinforce_plus_plus_baseline s - mean of the group, whitened over all tokens
 *   gae                          from the last token back: delta = reward + gamma x the next token's value - its own; advantage = delta + gamma x
 *                                lam x the next token's. Returns are advantages + values; then advantages may be whitened over all tokens */
#ifndef TREADLE_RL_ADVANTAGES_H
#define TREADLE_RL_ADVANTAGES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the words of rl_config.adv_estimator. */
typedef enum treadle_rl_estimator {
  TREADLE_RL_GROUP_NORM,
  TREADLE_RL_GRPO, /* the same */
  TREADLE_RL_RLOO,
  TREADLE_RL_REINFORCE_PLUS_PLUS,
  TREADLE_RL_REINFORCE_PLUS_PLUS_BASELINE,
  TREADLE_RL_GAE
} treadle_rl_estimator;

typedef struct treadle_rl_estimator_options {
  treadle_rl_estimator estimator;
  bool by_std;       /* of group_norm */
  bool whiten;       /* of gae */
  double gamma, lam; /* gamma: of reinforce_plus_plus and gae; lam: of gae */
} treadle_rl_estimator_options;

typedef struct treadle_rl_scored {
  size_t samples;
  const int64_t *group;        /* [samples] from 0 on; members of one need not be neighbours */
  const size_t *first;         /* [samples + 1] where the tokens of each begin; it may have none */
  const double *token_rewards; /* [tokens] */
  const double *scores;        /* [samples] s */
  const float *values;         /* [tokens] of gae: what a critic expects before each token; else NULL */
} treadle_rl_scored;

/* advantages, returns [tokens]; of_samples [samples]: what all tokens of a sample have; of reinforce_plus_plus and gae, the mean of its tokens.
 * Refused: scores and values that are not finite, by the sample's number; fewer than two tokens where they are whitened. */
treadle_status treadle_rl_advantages(const treadle_rl_estimator_options *options,
                                     const treadle_rl_scored *scored, double *advantages, double *returns,
                                     double *of_samples);

/* Over all tokens: mean 0 and deviation 1, as RLinf has it (masked_normalization in rlinf/utils/distributed.py): by the deviation of all, + 1e-5.
 * of_samples: the means of their tokens. */
void treadle_rl_normalize_advantages(const treadle_rl_scored *scored, double *advantages,
                                     double *of_samples);

#endif

/* A completion as files of samples have it. */
#ifndef TREADLE_RL_SAMPLE_H
#define TREADLE_RL_SAMPLE_H

#include "rl/prompts.h"

typedef struct treadle_rl_sample {
  const char *uid; /* "STEP-PROMPT-SAMPLE", of a test "test-STEP-PROMPT-SAMPLE" */
  const treadle_rl_prompt *prompt;
  const int32_t *ids; /* [count] */
  int64_t count;
  const char *completion; /* [completion_bytes] and a 0 */
  size_t completion_bytes;
  const float *rollout, *old, *ref; /* [count]; ref: NULL: there are none */
  const float *updated; /* [count] log-probabilities as its last update found them; NULL: there are none */
  const float *entropies; /* [count] NULL: there are none */
  /* The ids that each token was drawn from: how many, [count], and which, of one token after the other, ascending.
   * NULL: nothing was cut. */
  const int32_t *kept_counts, *kept;
  /* The experts that tokens of prompt and completion chose, [experts_bytes] as treadle_generator_generate gives them,
   * experts_top of each in a layer. NULL: they are not recorded. */
  const uint8_t *experts;
  size_t experts_bytes, experts_top;
  double score, reward; /* reward: the score with penalties of the length and the KL */
  double advantage;
  const double *advantages; /* [count]; NULL: each token's is `advantage` */
  double kl_coef;           /* of the loss in this step; NaN: the loss has no KL */
  int64_t mini_batch;
} treadle_rl_sample;

#endif

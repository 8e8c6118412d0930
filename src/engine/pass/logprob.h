/* Log-probabilities: of the whole vocabulary, before penalties, bans and cuts; or, of policies, of the ids that a token
 * was drawn from (kept.h).
 *
 *   raw      of the model's distribution: temperature 1
 *   scaled   of logits over temperature (1 where choice is greedy, as vLLM has it)
 *
 * lse = ln sum e^(logit / temperature) comes from the row operations, which add in fixed blocks of the whole vocabulary; it is the
 * largest logit / temperature plus the logarithm of their sum, added in double. The subtraction stands here alone, so that
 * generating and scoring have the same bits. */
#ifndef TREADLE_PASS_LOGPROB_H
#define TREADLE_PASS_LOGPROB_H

#include <stdint.h>

static inline float treadle_logprob(float logit, float temperature, double lse) {
  return (float)((double)(logit / temperature) - lse);
}

typedef struct treadle_token_logprob {
  int32_t token;
  float logprob;
} treadle_token_logprob;

/* The `most` tokens with the largest log-probability, largest first, lower ids first where they are equal. Returns how many there
 * are: most, or the vocabulary where that is smaller. */
int64_t treadle_logprob_top(const float *logits, int64_t vocabulary, float temperature, double lse,
                            int64_t most, treadle_token_logprob *top_p);

#endif

/* The largest log-probabilities of a row: one pass that keeps them in order. A row has few that are larger than all before. */
#include "pass/logprob.h"

int64_t treadle_logprob_top(const float *logits, int64_t vocabulary, float temperature, double lse,
                            int64_t most, treadle_token_logprob *top_p) {
  int64_t count = 0;
  for (int64_t i = 0; i < vocabulary && most > 0; i++) {
    /* A logit that is not larger has no larger log-probability, even where two round to one. */
    if (count == most && !(logits[i] > logits[top_p[most - 1].token])) continue;
    float logprob = treadle_logprob(logits[i], temperature, lse);
    if (count == most && !(logprob > top_p[most - 1].logprob)) continue;
    int64_t at = count < most ? count++ : most - 1;
    for (; at > 0 && logprob > top_p[at - 1].logprob; at--) top_p[at] = top_p[at - 1];
    top_p[at] = (treadle_token_logprob){(int32_t)i, logprob};
  }
  return count;
}

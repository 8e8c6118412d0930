/* Sampling values: defaults and ranges. */
#include "generate/sampling.h"

#include <math.h>

void treadle_sampling_default(treadle_sampling_values *sampling_p) {
  *sampling_p = (treadle_sampling_values){.temperature = 1,
                                          .top_p = 1,
                                          .repetition_penalty = 1,
                                          .max_tokens = TREADLE_DEFAULT_NEW_TOKENS,
                                          .n = 1};
}

float treadle_logprob_temperature(treadle_logprob_type type, const treadle_sampling_values *sampling) {
  if (type == TREADLE_LOGPROB_RAW || treadle_sampling_is_greedy(sampling)) return 1;
  return (float)sampling->temperature;
}

static treadle_status check_reals(const char *what, const treadle_sampling_values *s) {
  const struct {
    const char *name;
    double value;
  } reals[] = {{"temperature", s->temperature},
               {"top_p", s->top_p},
               {"min_p", s->min_p},
               {"repetition_penalty", s->repetition_penalty},
               {"presence_penalty", s->presence_penalty},
               {"frequency_penalty", s->frequency_penalty}};
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
    if (!isfinite(reals[i].value))
      REFUSE("%s: %s must be finite, got %g", what, reals[i].name, reals[i].value);
  if (s->temperature < 0) REFUSE("%s: temperature must be non-negative, got %g", what, s->temperature);
  if (!(s->top_p > 0 && s->top_p <= 1)) REFUSE("%s: top_p must be in (0, 1], got %g", what, s->top_p);
  if (s->min_p < 0 || s->min_p > 1) REFUSE("%s: min_p must be in [0, 1], got %g", what, s->min_p);
  if (s->repetition_penalty <= 0)
    REFUSE("%s: repetition_penalty must be greater than zero, got %g", what, s->repetition_penalty);
  if (fabs(s->presence_penalty) > 2)
    REFUSE("%s: presence_penalty must be in [-2, 2], got %g", what, s->presence_penalty);
  if (fabs(s->frequency_penalty) > 2)
    REFUSE("%s: frequency_penalty must be in [-2, 2], got %g", what, s->frequency_penalty);
  return TREADLE_OK;
}

static treadle_status check_counts(const char *what, const treadle_sampling_values *s) {
  const long long k = s->top_k, most = s->max_tokens, least = s->min_tokens, n = s->n, top = s->logprobs;
  if (k < -1) REFUSE("%s: top_k must be 0 (disable), or at least 1, got %lld", what, k);
  if (most < 1) REFUSE("%s: max_tokens must be at least 1, got %lld", what, most);
  if (least < 0) REFUSE("%s: min_tokens must be greater than or equal to 0, got %lld", what, least);
  if (least > most)
    REFUSE("%s: min_tokens must be less than or equal to max_tokens=%lld, got %lld", what, most, least);
  if (n < 1) REFUSE("%s: n must be at least 1, got %lld", what, n);
  if (n > TREADLE_MOST_SAMPLES) REFUSE("%s: n must be at most %d, got %lld", what, TREADLE_MOST_SAMPLES, n);
  if (top < 0 || top > TREADLE_MOST_TOP_LOGPROBS)
    REFUSE("%s: logprobs must be in [0, %d], got %lld", what, TREADLE_MOST_TOP_LOGPROBS, top);
  return TREADLE_OK;
}

static treadle_status check_stops(const char *what, const treadle_sampling_values *s) {
  if (s->stop_count > TREADLE_MOST_STOPS || s->stop_id_count > TREADLE_MOST_STOPS)
    REFUSE("%s: %s has more than %d items", what,
           s->stop_count > TREADLE_MOST_STOPS ? "stop" : "stop_token_ids", TREADLE_MOST_STOPS);
  for (int32_t i = 0; i < s->stop_count; i++) {
    if (s->stop[i].count == 0) REFUSE("%s: stop cannot contain an empty string", what);
    if (s->stop[i].count > TREADLE_MOST_STOP_BYTES)
      REFUSE("%s: a stop text has %zu bytes; the limit is %d", what, s->stop[i].count,
             TREADLE_MOST_STOP_BYTES);
  }
  for (int32_t i = 0; i < s->stop_id_count; i++)
    if (s->stop_ids[i] < 0) REFUSE("%s: stop_token_ids: %d is not a token", what, s->stop_ids[i]);
  return TREADLE_OK;
}

treadle_status treadle_sampling_check(const char *what, const treadle_sampling_values *sampling) {
  treadle_status status;
  TRY(check_reals(what, sampling));
  TRY(check_counts(what, sampling));
  TRY(check_stops(what, sampling));
out:
  return status;
}

treadle_status treadle_sampling_check_ids(const char *what, const treadle_sampling_values *sampling,
                                          int64_t vocabulary) {
  for (int32_t i = 0; i < sampling->stop_id_count; i++)
    if (sampling->stop_ids[i] >= vocabulary)
      REFUSE("%s: stop_token_ids: %d is not in the vocabulary of %lld tokens", what, sampling->stop_ids[i],
             (long long)vocabulary);
  return TREADLE_OK;
}

treadle_status treadle_sampling_check_drawn(const char *what, const treadle_sampling_values *s) {
  if (treadle_sampling_is_greedy(s))
    REFUSE("%s: temperature is %g, and log-probabilities are to be of what is drawn: %g at least", what,
           s->temperature, TREADLE_GREEDY_BELOW);
  if (treadle_sampling_penalises(s))
    REFUSE("%s: repetition_penalty %g, presence_penalty %g, frequency_penalty %g: with a penalty what is "
           "drawn from depends on the tokens before, and nothing computes that again: 1, 0 and 0",
           what, s->repetition_penalty, s->presence_penalty, s->frequency_penalty);
  if (s->logprobs)
    REFUSE("%s: logprobs is %lld, and log-probabilities are to be of what is drawn: other tokens may have "
           "none",
           what, (long long)s->logprobs);
  return TREADLE_OK;
}

/* Sampling values: how the next tokens of one request are chosen. Names and ranges are vLLM's (SamplingParams).
 *
 * They come in layers: what nobody says (treadle_sampling_default), then generation_config.json, then options of the command,
 * then the keys of a request's line. Each layer begins with a copy of the one before. Lists lie in the arena of who read
 * them and are never written again, so that a struct may be copied. */
#ifndef TREADLE_GENERATE_SAMPLING_H
#define TREADLE_GENERATE_SAMPLING_H

#include "base/arena.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* UTF-8, which may have characters of 0; a 0 byte follows all the same. */
typedef struct treadle_text {
  const char *bytes;
  size_t count;
} treadle_text;

typedef struct treadle_sampling_values {
  double temperature;        /* below TREADLE_GREEDY_BELOW the largest logit, the lower id on a tie */
  int64_t top_k;             /* 0, -1: off */
  double top_p;              /* 1: off */
  double min_p;              /* 0: off */
  double repetition_penalty; /* 1: off */
  double presence_penalty, frequency_penalty; /* 0: off */
  int64_t max_tokens, min_tokens;             /* new tokens */
  int64_t n;                                  /* samples */
  int64_t logprobs;                           /* top log-probabilities of each new token; 0: none */
  bool ignore_eos;
  bool has_seed;
  int64_t seed;
  const treadle_text *stop; /* [stop_count] none is empty */
  int32_t stop_count;
  const int32_t *stop_ids; /* [stop_id_count] */
  int32_t stop_id_count;
} treadle_sampling_values;

#define TREADLE_GREEDY_BELOW 1e-5

enum {
  TREADLE_DEFAULT_NEW_TOKENS = 256,
  TREADLE_MOST_TOP_LOGPROBS = 20, /* vLLM's max_logprobs */
  TREADLE_MOST_SAMPLES = 1 << 16, /* of a request */
  TREADLE_MOST_STOPS = 1 << 10,   /* texts, and as many ids */
  TREADLE_MOST_STOP_BYTES = 4096, /* of a text */
};

/* Which ids end a sample. The first is the tokenizer's own end token: its stop_reason is null; of the others, as of stop_token_ids,
 * it is the id. */
typedef struct treadle_eos {
  const int32_t *ids;
  int32_t count;
} treadle_eos;

void treadle_sampling_default(treadle_sampling_values *sampling_p);

static inline bool treadle_sampling_is_greedy(const treadle_sampling_values *sampling) {
  return sampling->temperature < TREADLE_GREEDY_BELOW;
}

/* Does the choice have penalties, so that what is drawn from depends on the tokens before? */
static inline bool treadle_sampling_penalises(const treadle_sampling_values *s) {
  return s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

/* Does top_k cut a vocabulary of that size; does it, top_p or min_p? */
static inline bool treadle_sampling_has_top_k(const treadle_sampling_values *s, int64_t vocabulary) {
  return s->top_k > 0 && s->top_k < vocabulary;
}
static inline bool treadle_sampling_cuts(const treadle_sampling_values *s, int64_t vocabulary) {
  return treadle_sampling_has_top_k(s, vocabulary) || s->top_p < 1 || s->min_p > 0;
}

/* Whose log-probabilities: the model's, or those of logits over temperature (pass/logprob.h). */
typedef enum treadle_logprob_type { TREADLE_LOGPROB_RAW, TREADLE_LOGPROB_SCALED } treadle_logprob_type;

/* The temperature that lse is asked for. */
float treadle_logprob_temperature(treadle_logprob_type type, const treadle_sampling_values *sampling);

/* Refuses what the distribution that a token is drawn from cannot be kept of: penalties, greedy choice; and logprobs,
 * of ids that it does not have. */
treadle_status treadle_sampling_check_drawn(const char *what, const treadle_sampling_values *sampling);

/* Refuses values out of range, in vLLM's words behind "`what`: ". */
treadle_status treadle_sampling_check(const char *what, const treadle_sampling_values *sampling);

/* Refuses stop_ids that are not in the vocabulary. */
treadle_status treadle_sampling_check_ids(const char *what, const treadle_sampling_values *sampling,
                                          int64_t vocabulary);

/* Takes temperature, top_k, top_p, min_p, repetition_penalty and max_new_tokens out of a generation_config.json, as vLLM does,
 * and checks them. What it does not have, or has as null, stays. do_sample is not looked at: vLLM takes the temperature
 * that stands there. */
treadle_status treadle_sampling_read_config(const char *what, const json_t *config,
                                            treadle_sampling_values *sampling_p);

/* eos_token_id of a generation_config.json or config.json: one id, a list of them, or none. In the order of the file, each once. */
treadle_status treadle_eos_read(const char *what, const json_t *config, treadle_arena *arena,
                                treadle_eos *eos_p);

/* Takes the keys of a line (requests.h) that are sampling values. null is as if it were not there. Not yet checked. */
treadle_status treadle_sampling_read_line(const char *what, const json_t *line, treadle_arena *arena,
                                          treadle_sampling_values *sampling_p);
/* Names of these keys, NULL at the end. */
extern const char *const treadle_sampling_keys[];

#endif

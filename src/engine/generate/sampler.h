/* From a row of logits to the next token.
 *
 * The order is vLLM's: banned tokens, repetition, frequency and presence penalty, temperature, min-p, top-k, top-p, soft-max. Ties and
 * borders are those of tests/golden/text/SOURCE.txt, sampling.json.gz:
 *   - of equal logits at the border of top-k all stay; at the border of top-p the lower ids;
 *   - a temperature below TREADLE_GREEDY_BELOW takes the largest logit after the penalties, the lowest id on a tie.
 * The token is a function of the bits of the logits, the values, counts, seed, sample and position. There is no libm,
 * every sum has one order, and all arithmetic is in double. */
#ifndef TREADLE_GENERATE_SAMPLER_H
#define TREADLE_GENERATE_SAMPLER_H

#include "generate/sampling.h"
#include "generate/token_counts.h"

/* Memory for rows of one vocabulary. One for each thread that samples; it keeps nothing from call to call. */
typedef struct treadle_sampler treadle_sampler;
treadle_status treadle_sampler_create(int64_t vocabulary, treadle_sampler **sampler_p);
void treadle_sampler_destroy(treadle_sampler *sampler);
/* Bytes of one, for accounts. */
int64_t treadle_sampler_bytes(int64_t vocabulary);

typedef struct treadle_sampler_row {
  const float
      *logits; /* [vocabulary] without padding; not written. -inf: never; NaN and +inf are refused */
  const treadle_sampling_values *sampling; /* checked */
  const treadle_token_counts *counts;      /* used by penalties alone; NULL: no tokens yet */
  const int32_t *banned; /* [banned_count] not chosen; ids out of the vocabulary are passed over */
  int64_t banned_count;
  const int32_t *never; /* [never_count] nor are these */
  int64_t never_count;
  int64_t
      most; /* of those that stay, this many at most: the largest logits, of equal ones the lower ids; 0: all */
} treadle_sampler_row;

/* What is left of a row: the probability of ids[i] is weights[i] / total. It lies in the sampler until its next call. */
typedef struct treadle_candidates {
  const int32_t *ids; /* [count] ascending */
  const double *weights;
  int64_t count; /* at least 1 */
  double total;
} treadle_candidates;

/* REFUSED: a logit is NaN or +inf, or all are -inf. */
treadle_status treadle_sampler_keep(treadle_sampler *sampler, const treadle_sampler_row *row,
                                    treadle_candidates *candidates_p);
/* The token at `uniform` of [0, 1) in the running sum over ascending ids. */
int32_t treadle_sampler_pick(const treadle_candidates *candidates, double uniform);

/* Both; greedy choices do not need the number. */
treadle_status treadle_sampler_choose(treadle_sampler *sampler, const treadle_sampler_row *row,
                                      double uniform, int32_t *token_p);

#endif

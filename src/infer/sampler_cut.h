/* Where top-k and top-p cut a row, without sorting it: parts of the sampler. */
#ifndef TREADLE_INFER_SAMPLER_CUT_H
#define TREADLE_INFER_SAMPLER_CUT_H

#include <stdint.h>

typedef struct treadle_candidate {
  double logit;
  int32_t id;
  double weight;
} treadle_candidate;

/* The k-th largest of `count` values, 1 <= k <= count; -inf where fewer are above it. work: [count]. */
double treadle_cut_largest(const double *values, int64_t count, int64_t k, double *work);

/* The sum of weights in fixed blocks, and the sum of one block of at most TREADLE_CUT_BLOCK. */
enum { TREADLE_CUT_BLOCK = 64 };
double treadle_cut_sum(const double *weights, int64_t count);
double treadle_cut_sum_block(const double *weights, int64_t count);

/* Candidates of a row with ascending ids; weights[i] = e^((logits[i] - largest) * scale). */
typedef struct treadle_cut_row {
  const double *logits, *weights; /* [count] */
  const int32_t *ids;             /* [count] */
  int64_t count;
  double largest, scale;
} treadle_cut_row;

/* The first candidate that top-p keeps, in the order of ascending logits and descending ids: those before it have probabilities
 * whose sum is at most 1 - top_p. work: [count]. */
treadle_candidate treadle_cut_mass(const treadle_cut_row *row, double top_p, treadle_candidate *work);

#endif

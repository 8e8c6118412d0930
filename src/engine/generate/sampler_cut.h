/* Parts of the sampler: where top-k and top-p cut rows without sorting. */
#ifndef TREADLE_GENERATE_SAMPLER_CUT_H
#define TREADLE_GENERATE_SAMPLER_CUT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct treadle_candidate {
  double logit;
  int32_t id;
  double weight;
} treadle_candidate;

/* The k-th largest of `count` values, 1 <= k <= count; -inf where fewer are above it. work: [count]. */
double treadle_cut_border(const double *values, int64_t count, int64_t k, double *work);

/* The sum of weights in fixed blocks, and the sum of one block of at most TREADLE_CUT_BLOCK. */
enum { TREADLE_CUT_BLOCK = 64 };
double treadle_cut_sum(const double *weights, int64_t count);
double treadle_cut_sum_block(const double *weights, int64_t count);

/* Candidates of a row with ascending ids; weights[i] = e^((logits[i] - largest) * scale). */
typedef struct treadle_cut_row {
  double *logits, *weights; /* [count] */
  const int32_t *ids;       /* [count] */
  int64_t count;
} treadle_cut_row;

/* Leaves those with weights from `least` on; ids go to `ids`, which may be the row's. */
void treadle_cut_below(treadle_cut_row *row, double least, int32_t *ids);

/* Leaves the `most` largest logits, of equal ones the lower ids. 1 <= most < count. work: [count]. */
void treadle_cut_count(treadle_cut_row *row, int64_t most, int32_t *ids, double *work);

/* Leaves what top_p leaves: in the order of ascending logits and descending ids the first are dropped, as long as the sum of their
 * probabilities is at most 1 - top_p; the last stays. scale: of the weights. work: [count]. */
void treadle_cut_mass(treadle_cut_row *row, double top_p, double scale, int32_t *ids,
                      treadle_candidate *work);

#endif

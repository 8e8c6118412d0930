/* The ids that a token was drawn from. Its log-probability is of the distribution over them alone, in the generator as
 * in the trainer: both take the other ids out of the row of logits in the same way, and add up what is left in the
 * blocks and the order of a whole row (nn/rows.h). So both have the same bits.
 *
 * An id that is out has a logit so far below the largest one that is in that e^(logit / temperature) is exactly 0
 * beside it: it adds 0 to every sum, and its gradient is 0. The logit stays finite, so that 0 times it is 0. */
#ifndef TREADLE_PASS_KEPT_H
#define TREADLE_PASS_KEPT_H

#include <stddef.h>
#include <stdint.h>

/* Leaves ids [count], ascending, at least one, of a row of logits [vocabulary]. */
void treadle_kept_leave(float *logits, int64_t vocabulary, const int32_t *ids, size_t count,
                        float temperature);
/* Leaves all but ids [count], in any order; those beyond the vocabulary are passed over. */
void treadle_kept_without(float *logits, int64_t vocabulary, const int32_t *ids, size_t count,
                          float temperature);

#endif

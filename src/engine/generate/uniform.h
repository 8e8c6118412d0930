/* Random numbers from (seed, sample, position) alone, so that a token does not depend on what else is generated, on which rank,
 * or in which order.
 *
 * Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; 2011): key = seed, counter = position, sample. */
#ifndef TREADLE_GENERATE_UNIFORM_H
#define TREADLE_GENERATE_UNIFORM_H

#include <stdint.h>

/* The generator itself. */
void treadle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out_p[4]);

/* A multiple of 2^-53 in [0, 1). position: of the token in its sequence, the first of the prompt is 0. So a text that is given
 * again as a prompt goes on as it did. */
double treadle_uniform(int64_t seed, int64_t sample, int64_t position);

/* The seed of a request without one: the run's seed and the request's number, from 0. */
int64_t treadle_seed_of_request(int64_t seed, int64_t number);

#endif

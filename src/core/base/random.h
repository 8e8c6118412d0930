/* Random numbers for tests, fuzzers and generated weights: splitmix64 from a seed, the same on every
 * machine. */
#ifndef TREADLE_BASE_RANDOM_H
#define TREADLE_BASE_RANDOM_H

#include "base/hash.h"

typedef struct treadle_random {
  uint64_t state;
} treadle_random;

static inline uint64_t treadle_random_next(treadle_random *random) {
  uint64_t x = random->state;
  random->state += 0x9e3779b97f4a7c15u;
  return treadle_mix64(x);
}

/* A number in [0, below), below > 0. */
static inline int64_t treadle_random_below(treadle_random *random, int64_t below) {
  return (int64_t)(treadle_random_next(random) % (uint64_t)below);
}

/* A number in [low, high], both included. */
static inline int64_t treadle_random_between(treadle_random *random, int64_t low, int64_t high) {
  return low + treadle_random_below(random, high - low + 1);
}

#endif

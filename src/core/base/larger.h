/* The larger and the smaller one of two numbers. */
#ifndef TREADLE_BASE_LARGER_H
#define TREADLE_BASE_LARGER_H

#include <stdint.h>

static inline int64_t treadle_larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t treadle_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
/* Of sizes, up to the largest there is. */
static inline uint64_t treadle_larger_size(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif

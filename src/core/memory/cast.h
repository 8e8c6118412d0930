/* Runs of values from one element type to another, at memory speed.
 *
 * The plain twin is treadle_dtype_convert_add (base/dtype.h), and the bits are the same for every value, NaN
 * included. */
#ifndef TREADLE_MEMORY_CAST_H
#define TREADLE_MEMORY_CAST_H

#include "base/dtype.h"

typedef struct treadle_cast {
  treadle_dtype to, from;
  int add; /* -1, 0 or 1: added to each value in fp32; norm weights that are stored as an offset from 1 */
} treadle_cast;

/* Does it change anything? */
static inline bool treadle_cast_is_copy(treadle_cast cast) { return cast.to == cast.from && cast.add == 0; }

/* Whether treadle_cast_run() may be called: AVX2 and F16C. */
bool treadle_cast_supported(void);

/* `count` values that are dense on both sides; the ranges do not overlap, and need no alignment. */
void treadle_cast_run(treadle_cast cast, void *to, const void *from, size_t count);
/* The same; long runs go past the cache: treadle_copy_fence() before others are told. */
void treadle_cast_stream(treadle_cast cast, void *to, const void *from, size_t count);

#endif

/* Is a value a number: neither NaN nor infinite? */
#ifndef TREADLE_BASE_FINITE_H
#define TREADLE_BASE_FINITE_H

#include "treadle.h"

#include <stdbool.h>

bool treadle_row_is_finite(const float *row, int64_t count);

/* The first of `count` elements that is not finite; -1: all are. */
int64_t treadle_first_not_finite(const char *elements, int64_t count, treadle_dtype dtype);

#endif

/* Means, variances and whitening as verl has them (verl/utils/torch_functional.py), in double, added in order. */
#ifndef TREADLE_RL_STATISTICS_H
#define TREADLE_RL_STATISTICS_H

#include "base/status.h"

#include <stddef.h>

/* Sum of what counts over (how many + 1e-8). mask: NULL: all count. What does not count may be anything. */
double treadle_rl_masked_mean(const double *values, const unsigned char *mask, size_t count);
/* Unbiased. Refused: fewer than two values that count. */
treadle_status treadle_rl_masked_variance(const double *values, const unsigned char *mask, size_t count,
                                          double *variance_p);
/* (x - mean) / sqrt(variance + 1e-8), of all values, in place. Refused: fewer than two. */
treadle_status treadle_rl_whiten(double *values, size_t count);

#endif

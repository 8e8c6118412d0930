/* e^x of many values in double, for weights of tokens: the same bits on every machine, without the C library's.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r is its series to r^12 (error below 2e-16), n goes into the exponent. Each operation is one
 * rounded multiplication or addition, in the order in which it is written. 0 gives exactly 1; results below 2^-1022 are
 * subnormal, below 2^-1075 they are 0. */
#ifndef TREADLE_GENERATE_EXPONENTIAL_H
#define TREADLE_GENERATE_EXPONENTIAL_H

#include <stdint.h>

/* to[i] = e^((x[i] - largest) * scale), where x[i] <= largest and scale > 0; of x[i] = -inf 0. */
void treadle_exponentials(double *to, const double *x, double largest, double scale, int64_t count);

#endif

/* Values for tests of the engines' arithmetic: numbers from a seed, and comparisons that print where the first difference is. */
#ifndef TREADLE_TESTS_NN_VALUES_H
#define TREADLE_TESTS_NN_VALUES_H

#include "base/random.h"

#include <stddef.h>

/* About normal: the sum of 12 even numbers of [-1/2, 1/2), times `spread`. */
float test_normal(treadle_random *random, float spread);
void test_fill(treadle_random *random, float *values, size_t count, float spread);

/* The same bits; where both are NaN, any. Fails with `what` and the place. */
void test_same_bits(const char *what, const float *made, const float *wanted, size_t count);

/* A number of the bits of all values: recorded ones show that every compiler and machine makes the same. */
uint64_t test_digest(uint64_t digest, const float *values, size_t count);

/* How many units in the last place of fp32 a value is from the true one. */
double test_ulp(float made, double wanted);

#endif

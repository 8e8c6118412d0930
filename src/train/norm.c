#include "train/norm.h"

#include <limits.h>
#include <math.h>

enum { UNIT_BITS = 60 };

void treadle_norm_begin(treadle_norm *norm) { *norm = (treadle_norm){.exponent = INT_MIN, .finite = true}; }

void treadle_norm_look(treadle_norm *norm, const float *values, int64_t count) {
  float largest = 0;
  int exponent;
  for (int64_t i = 0; i < count; i++) {
    float size = fabsf(values[i]);
    if (!(size <= 3.402823466e38f)) norm->finite = false;
    if (size > largest) largest = size;
  }
  if (largest == 0) return;
  frexpf(norm->finite ? largest : 1, &exponent);
  if (exponent > norm->exponent) norm->exponent = exponent;
}

void treadle_norm_add(treadle_norm *norm, const float *values, int64_t count) {
  if (!norm->finite || norm->exponent == INT_MIN) return;
  const double scale = ldexp(1, UNIT_BITS / 2 - norm->exponent);
  for (int64_t i = 0; i < count; i++) {
    double value = (double)values[i] * scale; /* exact, and so is its square, which is at most 2^60 */
    uint64_t square = (uint64_t)(value * value), low = norm->low + square;
    norm->high += low < square;
    norm->low = low;
  }
}

void treadle_norm_join(treadle_norm *norm, const treadle_norm *other, bool sums) {
  uint64_t low = norm->low + other->low;
  norm->finite = norm->finite && other->finite;
  if (!sums) {
    if (other->exponent > norm->exponent) norm->exponent = other->exponent;
    return;
  }
  norm->high += other->high + (low < norm->low);
  norm->low = low;
}

double treadle_norm_value(const treadle_norm *norm) {
  if (!norm->finite) return NAN;
  if (norm->exponent == INT_MIN) return 0;
  double sum = ldexp((double)norm->high, 64) + (double)norm->low;
  return ldexp(sqrt(sum), norm->exponent - UNIT_BITS / 2);
}

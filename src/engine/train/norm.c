#include "train/norm.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum {
  UNIT_BITS = 60,
  BLOCK = 8, /* squares whose sum has no carry */
  AHEAD =
      512, /* elements: what is fetched while others are taken, since not every processor does so by itself */
  LINE = 16,
  SIZE_BITS = 0x7fffffff,
  INFINITE_BITS = 0x7f800000
};

void treadle_norm_begin(treadle_norm *norm) { *norm = (treadle_norm){.exponent = INT_MIN, .finite = true}; }

void treadle_norm_look(treadle_norm *norm, const float *values, int64_t count) {
  int32_t largest = 0; /* sizes are in the order of their bits */
  float size;
  int exponent;
  for (int64_t at = 0; at < count; at += LINE) {
    __builtin_prefetch(values + at + AHEAD);
    for (int64_t i = at; i < count && i < at + LINE; i++) {
      int32_t bits;
      memcpy(&bits, &values[i], sizeof bits);
      bits &= SIZE_BITS;
      largest = bits > largest ? bits : largest;
    }
  }
  if (largest == 0) return;
  if (largest >= INFINITE_BITS) norm->finite = false;
  memcpy(&size, &largest, sizeof size);
  frexpf(norm->finite ? size : 1, &exponent);
  if (exponent > norm->exponent) norm->exponent = exponent;
}

/* The value is exact, and so is its square, which is at most 2^60. */
static uint64_t square_of(float value, double scale) {
  double scaled = (double)value * scale;
  return (uint64_t)(int64_t)(scaled * scaled);
}

static void add_block(treadle_norm *norm, uint64_t sum) {
  uint64_t low = norm->low + sum;
  norm->high += low < sum;
  norm->low = low;
}

void treadle_norm_add(treadle_norm *norm, const float *values, int64_t count) {
  if (!norm->finite || norm->exponent == INT_MIN) return;
  const double scale = ldexp(1, UNIT_BITS / 2 - norm->exponent);
  int64_t i = 0;
  for (; i + BLOCK <= count; i += BLOCK) {
    uint64_t sum = 0;
    __builtin_prefetch(values + i + AHEAD);
    for (int64_t k = 0; k < BLOCK; k++) sum += square_of(values[i + k], scale);
    add_block(norm, sum);
  }
  for (; i < count; i++) add_block(norm, square_of(values[i], scale));
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

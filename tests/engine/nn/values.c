#include "nn/values.h"

#include "test.h"

#include <math.h>

float test_normal(treadle_random *random, float spread) {
  float sum = -6.0f;
  for (int i = 0; i < 12; i++) sum += (float)treadle_random_below(random, 1 << 20) / (float)(1 << 20);
  return sum * spread;
}

void test_fill(treadle_random *random, float *values, size_t count, float spread) {
  for (size_t i = 0; i < count; i++) values[i] = test_normal(random, spread);
}

void test_same_bits(const char *what, const float *made, const float *wanted, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint32_t a, b;
    memcpy(&a, &made[i], sizeof a);
    memcpy(&b, &wanted[i], sizeof b);
    if (a == b || (isnan(made[i]) && isnan(wanted[i]))) continue;
    fail_msg("%s: value %zu of %zu is %a, not %a", what, i, count, (double)made[i], (double)wanted[i]);
  }
}

uint64_t test_digest(uint64_t digest, const float *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    digest = treadle_mix64(digest ^ bits);
  }
  return digest;
}

double test_ulp(float made, double wanted) {
  int exponent;
  frexp(wanted, &exponent);
  return fabs((double)made - wanted) / ldexp(1.0, exponent - 24);
}

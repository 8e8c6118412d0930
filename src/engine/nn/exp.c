/* Series with enough terms that what is left out is below half a unit of double; arguments are made small first. */
#include "nn/exp.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint64_t wide_bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float treadle_exp(float x) {
  if (x < TREADLE_EXP_LEAST) return 0.0f;
  if (x > TREADLE_EXP_MOST) return INFINITY;
  float rounded = x * TREADLE_EXP_LOG2E + TREADLE_EXP_ROUND;
  float n = rounded - TREADLE_EXP_ROUND;
  float r = x - n * TREADLE_EXP_LN2_HIGH;
  r = r - n * TREADLE_EXP_LN2_LOW;
  float q = r * TREADLE_EXP_Q4 + TREADLE_EXP_Q3;
  q = q * r + TREADLE_EXP_Q2;
  q = q * r + TREADLE_EXP_Q1;
  q = q * r + TREADLE_EXP_Q0;
  float power = 1.0f + (r + (r * r) * q);
  return float_of(bits_of(power) + (bits_of(rounded) << 23));
}

float treadle_sigmoid(float x) { return 1.0f / (1.0f + treadle_exp(-x)); }

/* x = 2^k m, m between the root of 1/2 and that of 2; with s = (m - 1) / (m + 1), ln m = 2 (s + s^3/3 + s^5/5 + ...). */
double treadle_log(double x) {
  enum { TERMS = 12, FRACTION = 52, BIAS = 1023 };
  static const double ln2_high = 0x1.62e42fefp-1, ln2_low = 0x1.473de6af278edp-34;
  if (x != x || x < 0.0) return NAN;
  if (x == 0.0) return -INFINITY;
  if (x == INFINITY) return x;
  int k = 0;
  if (x < 0x1p-1022) { /* subnormal */
    x *= 0x1p54;
    k = -54;
  }
  uint64_t bits = wide_bits_of(x);
  k += (int)(bits >> FRACTION) - BIAS;
  double m = double_of((bits & ((UINT64_C(1) << FRACTION) - 1)) | (uint64_t)BIAS << FRACTION);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    k++;
  }
  double s = (m - 1.0) / (m + 1.0), square = s * s, sum = 0.0;
  for (int i = TERMS; i > 0; i--) sum = (sum + 1.0 / (2 * i + 1)) * square;
  return k * ln2_high + (2.0 * s + (2.0 * s * sum + k * ln2_low));
}

/* e^x as treadle_exp, with the series of e^r. */
static double exp_wide(double x) {
  enum { TERMS = 14, FRACTION = 52 };
  static const double ln2_high = 0x1.62e42fefp-1, ln2_low = 0x1.473de6af278edp-34;
  double rounded = x * 0x1.71547652b82fep+0 + 0x1.8p+52, n = rounded - 0x1.8p+52;
  double r = (x - n * ln2_high) - n * ln2_low, sum = 1.0;
  for (int i = TERMS; i > 0; i--) sum = 1.0 + sum * r / i;
  return double_of(wide_bits_of(sum) + (wide_bits_of(rounded) << FRACTION));
}

double treadle_power(double base, double exponent) { return exp_wide(exponent * treadle_log(base)); }

/* angle = n pi/2 + r, |r| <= pi/4. pi/2 is the sum of three parts, the first two of 28 bits: times n they are exact. */
void treadle_sine(double angle, double *sine_p, double *cosine_p) {
  enum { TERMS = 9 };
  double rounded = angle * 0x1.45f306dc9c883p-1 + 0x1.8p+52, n = rounded - 0x1.8p+52;
  double r = ((angle - n * 0x1.921fb54p+0) - n * 0x1.10b461p-30) - n * 0x1.a62633145c06ep-58;
  double square = r * r, sine = 1.0, cosine = 1.0;
  for (int i = TERMS; i > 0; i--) {
    sine = 1.0 - sine * square / (2 * i * (2 * i + 1));
    cosine = 1.0 - cosine * square / (2 * i * (2 * i - 1));
  }
  sine *= r;
  uint64_t quarter = wide_bits_of(rounded) & 3;
  double first = quarter & 1 ? cosine : sine, second = quarter & 1 ? sine : cosine;
  *sine_p = quarter & 2 ? -first : first;
  *cosine_p = (quarter + 1) & 2 ? -second : second;
}

/* e^x of many values: one loop without branches, which compilers make vectors of; compiled once for every processor and once for
 * those with AVX2, with the same bits, because nothing is contracted (-ffp-contract=off). */
#include "generate/exponential.h"

#include "base/processor.h"

#include <string.h>

#define LEAST    (-746.0)  /* e^x is 0 from here on */
#define ROUND    0x1.8p+52 /* added to n it leaves n in the lowest bits */
#define LOG2E    0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42feep-1 /* 32 bits: times n exact */
#define LN2_LOW  0x1.a39ef35793c76p-33

/* The exponent is raised by RAISE while it is put together, and lowered by a multiplication, which rounds subnormal results. */
enum { RAISE = 600 };
#define LOWER 0x1p-600

static inline __attribute__((always_inline)) double power(double x) {
  x = x > LEAST ? x : LEAST;
  double rounded = x * LOG2E + ROUND, n = rounded - ROUND;
  double r = (x - n * LN2_HIGH) - n * LN2_LOW;
  double e = 1.0 / 479001600;
  e = e * r + 1.0 / 39916800;
  e = e * r + 1.0 / 3628800;
  e = e * r + 1.0 / 362880;
  e = e * r + 1.0 / 40320;
  e = e * r + 1.0 / 5040;
  e = e * r + 1.0 / 720;
  e = e * r + 1.0 / 120;
  e = e * r + 1.0 / 24;
  e = e * r + 1.0 / 6;
  e = e * r + 1.0 / 2;
  e = e * r + 1.0;
  e = e * r + 1.0;
  uint64_t bits, exponent;
  memcpy(&bits, &e, sizeof bits);
  memcpy(&exponent, &rounded, sizeof exponent);
  bits += (exponent + RAISE) << 52;
  memcpy(&e, &bits, sizeof e);
  return e * LOWER;
}

static inline __attribute__((always_inline)) void powers(double *restrict to, const double *restrict x,
                                                         double largest, double scale, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = power((x[i] - largest) * scale);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void powers_avx2(double *to, const double *x, double largest,
                                                        double scale, int64_t count) {
  powers(to, x, largest, scale, count);
}

void treadle_exponentials(double *to, const double *x, double largest, double scale, int64_t count) {
  if (treadle_processor_has(TREADLE_PROCESSOR_AVX2))
    powers_avx2(to, x, largest, scale, count);
  else
    powers(to, x, largest, scale, count);
}
#else
void treadle_exponentials(double *to, const double *x, double largest, double scale, int64_t count) {
  powers(to, x, largest, scale, count);
}
#endif

/* Arithmetic on numbers that come from outside: sizes, counts and positions of files, configs, layouts and peers.
 *
 * Each function says whether the result fits into 63 bits and no operand or result is negative where none may be; then and
 * only then it is stored. Who asks words the refusal, with the numbers. `treadle_wide` is for products inside of a formula whose
 * result fits: positions times counts. */
#ifndef TREADLE_BASE_CHECKED_H
#define TREADLE_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef __int128 treadle_wide;

/* a * b, a + b, both from 0 on. */
static inline bool treadle_mul_fits(int64_t a, int64_t b, int64_t *product_p) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return false;
  *product_p = product;
  return true;
}

static inline bool treadle_add_fits(int64_t a, int64_t b, int64_t *sum_p) {
  int64_t sum;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum)) return false;
  *sum_p = sum;
  return true;
}

/* The product of `count` numbers from 0 on; of none: 1. A 0 among them gives 0, however large the others are. */
static inline bool treadle_product_fits(const int64_t *numbers, int count, int64_t *product_p) {
  int64_t product = 1;
  bool fits = true, zero = false;
  for (int i = 0; i < count; i++) {
    if (numbers[i] < 0) return false;
    zero = zero || numbers[i] == 0;
    fits = fits && treadle_mul_fits(product, numbers[i], &product);
  }
  if (zero) product = 0;
  if (!fits && !zero) return false;
  *product_p = product;
  return true;
}

/* a rounded up to a multiple of `unit` > 0. */
static inline bool treadle_round_up_fits(int64_t a, int64_t unit, int64_t *rounded_p) {
  int64_t sum;
  if (!treadle_add_fits(a, unit - 1, &sum)) return false;
  *rounded_p = sum / unit * unit;
  return true;
}

#endif

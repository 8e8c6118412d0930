/* Divisors: Euclid's algorithm, and what a message names instead of a number that does not divide. */
#ifndef TREADLE_BASE_DIVISOR_H
#define TREADLE_BASE_DIVISOR_H

#include <stdint.h>

/* The greatest common divisor of two numbers from 0 on; of a and 0: a. */
static inline int64_t treadle_common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

enum { TREADLE_DIVISORS_ROOM = 128 };

/* "tp=4 and tp=6 do": the numbers next to `at` that divide number, for a message that says that `at`, the value of `name`, does not; below and
 * above it, or one of both. with > 1: only those that divide `with`, or that it divides. text is [TREADLE_DIVISORS_ROOM], and is returned. */
const char *treadle_divisors_near(const char *name, int64_t number, int64_t at, int64_t with, char *text);

#endif

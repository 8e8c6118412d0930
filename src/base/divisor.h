/* Euclid's algorithm. */
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

#endif

/* The norm of all gradients: squares are added as integers, so that neither order nor ranks change a bit. */
#ifndef TREADLE_TRAIN_NORM_H
#define TREADLE_TRAIN_NORM_H

#include <stdbool.h>
#include <stdint.h>

/* A square is rounded to a multiple of 4^exponent / 2^60, where 2^exponent is above all values. */
typedef struct treadle_norm {
  int exponent;       /* of the largest value; INT_MIN: all are 0 */
  bool finite;        /* no value is NaN or infinite */
  uint64_t low, high; /* the sum, in these units */
} treadle_norm;

void treadle_norm_begin(treadle_norm *norm);
/* First of all values: the exponent. Then, when it is that of all ranks, their squares. */
void treadle_norm_look(treadle_norm *norm, const float *values, int64_t count);
void treadle_norm_add(treadle_norm *norm, const float *values, int64_t count);
/* Of both: first the larger exponent; then, where they have the same one, the sum of both sums. */
void treadle_norm_join(treadle_norm *norm, const treadle_norm *other, bool sums);
double treadle_norm_value(const treadle_norm *norm); /* NaN: not finite */

#endif

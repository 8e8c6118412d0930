/* The three loops of blocks of fp8 by AVX2 and F16C: for blocks whose rows are dense on both sides and whole vectors.
 * What they compute, and the twin for all other blocks, is in quantise.c. */
#ifndef TREADLE_MEMORY_QUANTISE_FAST_H
#define TREADLE_MEMORY_QUANTISE_FAST_H

#include "memory/quantise.h"

static inline const char *treadle_matrix_row(treadle_matrix matrix, int64_t row) {
  return (const char *)matrix.base + row * matrix.row_stride;
}
static inline char *treadle_matrix_into(treadle_matrix matrix, int64_t row) {
  return (char *)matrix.into + row * matrix.row_stride;
}

/* Fetches `bytes` of a row that comes some rows after this one, where there is one: rows of a block are far apart, and the
 * processor's own prefetch knows nothing of the next. */
static inline void treadle_matrix_prefetch(treadle_matrix matrix, int64_t row, int64_t rows,
                                           int64_t bytes) {
  enum { AHEAD = 12, LINE = 64 };
  if (row + AHEAD >= rows) return;
  for (int64_t at = 0; at < bytes; at += LINE)
    __builtin_prefetch(treadle_matrix_row(matrix, row + AHEAD) + at);
}

/* Can they be used for a block of values of this type? */
bool treadle_quantise_fast_takes(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                 int64_t columns);

/* The bits, as fp32, of the largest magnitude; of any NaN where there is one. */
uint32_t treadle_quantise_fast_largest(treadle_matrix values, treadle_dtype dtype, int64_t rows,
                                       int64_t columns);
/* Values over scale, clamped, as codes. No value is NaN. */
void treadle_quantise_fast_encode(treadle_matrix codes, treadle_matrix values, treadle_dtype dtype,
                                  int64_t rows, int64_t columns, float scale);
/* Codes times scale; every NaN is 0x7fc00000 before it becomes the type's. scale * 256 is finite. */
void treadle_quantise_fast_decode(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                  int64_t rows, int64_t columns, float scale);

#endif

/* Products of fp32 matrices that both lie row by row, as sums of outer products: y[r][c] = the sum over k of a[k][r] * b[k][c]. Nothing is turned;
 * only panels are packed, so that a tile reads both of them one after the other.
 *
 * The order of additions: a chain of fused multiply-adds over k in ascending order, from 0. Each result is by itself, so tiles, which differ from
 * processor to processor, change no bit. */
#ifndef TREADLE_NN_OUTER_H
#define TREADLE_NN_OUTER_H

#include <stdbool.h>
#include <stdint.h>

enum { TREADLE_OUTER_ROWS_MOST = 8, TREADLE_OUTER_COLUMNS_MOST = 48 };

typedef struct treadle_outer_ops {
  const char *name;
  bool (*supported)(void);
  int rows, columns; /* of a tile */
  /* Into y, rows `stride` apart, of a [count, rows] and b [count, columns]; the product is added onto what y had, or takes its place. */
  void (*tile)(float *y, int64_t stride, bool adds, const float *a, const float *b, int64_t count);
  /* a [count, rows] from rows `stride` apart. */
  void (*take)(float *a, const float *from, int64_t stride, int64_t count);
} treadle_outer_ops;

/* As for treadle_row_ops. */
const treadle_outer_ops *treadle_outer_ops_for(const char *kernels);

#endif

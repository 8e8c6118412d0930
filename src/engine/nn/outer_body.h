/* A tile of outer products (nn/outer.h) in lanes. OUTER_ROWS and OUTER_VECTORS say how many sums registers hold. */
#ifndef TREADLE_NN_OUTER_BODY_H
#define TREADLE_NN_OUTER_BODY_H

#include "nn/outer.h"

#include <string.h>

LANES_CODE static void outer_take(float *a, const float *from, int64_t stride, int64_t count) {
  for (int64_t k = 0; k < count; k++) {
    __builtin_prefetch(from + (k + 16) * stride);
    memcpy(a + k * OUTER_ROWS, from + k * stride, OUTER_ROWS * sizeof *a);
  }
}

LANES_CODE static void outer_tile(float *y, int64_t stride, bool adds, const float *a, const float *b,
                                  int64_t count) {
  lanes sum[OUTER_ROWS][OUTER_VECTORS];
  LANES_UNROLLED
  for (int r = 0; r < OUTER_ROWS; r++) {
    LANES_UNROLLED
    for (int v = 0; v < OUTER_VECTORS; v++) sum[r][v] = lanes_all(0.0f);
  }
  for (int64_t k = 0; k < count; k++, a += OUTER_ROWS, b += OUTER_VECTORS * LANES) {
    lanes x[OUTER_VECTORS];
    LANES_UNROLLED
    for (int v = 0; v < OUTER_VECTORS; v++) x[v] = lanes_load(b + v * LANES);
    LANES_UNROLLED
    for (int r = 0; r < OUTER_ROWS; r++) {
      lanes all = lanes_all(a[r]);
      LANES_UNROLLED
      for (int v = 0; v < OUTER_VECTORS; v++) sum[r][v] = lanes_fma(all, x[v], sum[r][v]);
    }
  }
  LANES_UNROLLED
  for (int r = 0; r < OUTER_ROWS; r++) {
    LANES_UNROLLED
    for (int v = 0; v < OUTER_VECTORS; v++) {
      float *at = y + r * stride + v * LANES;
      lanes_store(at, adds ? lanes_add(lanes_load(at), sum[r][v]) : sum[r][v]);
    }
  }
}

#define OUTER_OPS(text, supported)                                                                         \
  { text, supported, OUTER_ROWS, OUTER_VECTORS *LANES, outer_tile, outer_take }

#endif

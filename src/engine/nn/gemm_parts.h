/* What the kernels share: bf16, which rows of weights are whose part, where leaves and sums lie. */
#ifndef TREADLE_NN_GEMM_PARTS_H
#define TREADLE_NN_GEMM_PARTS_H

#include "base/larger.h"
#include "nn/gemm.h"

#include <string.h>

extern const treadle_gemm_kernel treadle_gemm_plain, treadle_gemm_avx2, treadle_gemm_avx512,
    treadle_gemm_amx;

static inline int64_t treadle_gemm_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }
static inline int64_t treadle_gemm_width(treadle_gemm_inner inner) {
  return (int64_t)inner.range.leaves * inner.leaf;
}

static inline float treadle_gemm_widen(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* Part `index` of `count` of `units`: from *begin_p, returns its end. */
static inline int64_t treadle_gemm_part(int64_t units, int32_t index, int32_t count, int64_t *begin_p) {
  *begin_p = units * index / count;
  return units * (index + 1) / count;
}

/* Up to `each` rows of weights of one segment, which a kernel takes together: a panel. */
typedef struct treadle_gemm_panel {
  const char *weights; /* of its first row */
  const char *gates;   /* of a gated product */
  int64_t stride;      /* bytes */
  int64_t rows, next;  /* its own; those of the segment that come after them */
  int64_t column;
} treadle_gemm_panel;

/* Goes through the panels of part `index` of `count`; treadle_gemm_next is false after the last. */
typedef struct treadle_gemm_walk {
  const treadle_gemm_product *product;
  int64_t each, left; /* rows of a panel; panels that are left */
  int32_t segment;
  int64_t row; /* of the segment, where the next panel begins */
} treadle_gemm_walk;

treadle_gemm_walk treadle_gemm_panels(const treadle_gemm_product *product, int64_t each, int32_t index,
                                      int32_t count);
bool treadle_gemm_next(treadle_gemm_walk *walk, treadle_gemm_panel *panel_p);

/* Lines of memory that a kernel will read soon: those of the panel after this one, row by row, a few at a time. */
typedef struct treadle_gemm_ahead {
  const char *row;      /* the next line is at row + at */
  int64_t at, bytes;    /* of a row */
  int64_t rows, stride; /* that are left, with this one */
} treadle_gemm_ahead;

static inline treadle_gemm_ahead treadle_gemm_ahead_of(const treadle_gemm_panel *panel,
                                                       treadle_gemm_inner inner) {
  return (treadle_gemm_ahead){.row = panel->weights + panel->rows * panel->stride,
                              .bytes = treadle_gemm_width(inner) * (inner.dtype == TREADLE_BF16 ? 2 : 4),
                              .rows = treadle_smaller(panel->next, panel->rows),
                              .stride = panel->stride};
}

static inline void treadle_gemm_fetch(treadle_gemm_ahead *ahead, int64_t lines) {
  enum { LINE_BYTES = 64 };
  for (; lines > 0 && ahead->rows > 0; lines--) {
    __builtin_prefetch(ahead->row + ahead->at, 0, 3);
    ahead->at += LINE_BYTES;
    if (ahead->at < ahead->bytes) continue;
    ahead->at = 0;
    ahead->row += ahead->stride;
    ahead->rows--;
  }
}

#endif

/* How gemm_amx.c wants x: rounded to bf16, in tiles; of a fine product, also what rounding has left, rounded in turn. */
#ifndef TREADLE_NN_GEMM_AMX_FORM_H
#define TREADLE_NN_GEMM_AMX_FORM_H

#include "nn/gemm_parts.h"
#include "nn/gemm_turn.h"

#include <math.h>

#define AMX_CODE __attribute__((target("amx-tile,amx-bf16,avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define AMX_PART AMX_CODE __attribute__((always_inline)) static inline

enum {
  STEP = 32,        /* elements of the inner dimension in a tile */
  SIDE = 16,        /* rows of a tile */
  LINE = 64,        /* bytes of a row of a full tile */
  PANEL = 2 * SIDE, /* rows of weights at once */
  LONG = 12,        /* steps of a leaf that is taken in halves */
  GATED_PARTS = 3,  /* of the work at a gated tile that is done */
  MANY_TURNS = 2,   /* pairs of blocks of x, from which on it is */
  AHEAD = 4 * SIDE, /* columns */
  NEAR = 768 << 10, /* bytes of packed x that are to stay in the second-level cache */
};

/* Rows are taken in blocks of 16, or all in one where there are fewer. [block][leaf][step][16 pairs][row of the block][2]; rows of the
 * last block that x does not have are 0, and so are elements that an earlier step had. In a fine product each block is followed by one
 * of what is left of its rows. */

typedef struct form {
  int64_t width;  /* rows of a block, 1 to 16 */
  int64_t blocks; /* of rows */
  int64_t steps;  /* of a leaf */
  int64_t parts;  /* of a block: 1, or 2 in a fine product */
  int64_t tile_bytes, leaf_bytes, part_bytes, block_bytes;
} form;

static form form_of(treadle_gemm_inner inner, int64_t rows) {
  form f = {.width = treadle_smaller(rows, SIDE), .steps = (inner.leaf + STEP - 1) / STEP};
  f.blocks = rows ? (rows + f.width - 1) / f.width : 0;
  f.parts = inner.fine ? 2 : 1;
  f.tile_bytes = f.width * LINE;
  f.leaf_bytes = f.tile_bytes * f.steps;
  f.part_bytes = f.leaf_bytes * inner.range.leaves;
  f.block_bytes = f.part_bytes * f.parts;
  return f;
}

/* Where a step begins in its leaf. */
static int64_t step_at(treadle_gemm_inner inner, int64_t step) {
  return treadle_smaller(step * STEP, inner.leaf - STEP);
}

static size_t packed_bytes(treadle_gemm_inner inner, int64_t rows) {
  form f = form_of(inner, rows);
  return (size_t)(f.block_bytes * f.blocks);
}

/* What rounding leaves of x: nothing where that is infinite. */
AMX_PART __m512 left_of(__m512 x) {
  __m512i bits = _mm512_and_si512(treadle_gemm_round(x), _mm512_set1_epi32((int)0xffff0000));
  __m512 whole = _mm512_castsi512_ps(bits);
  __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(whole), _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
  return _mm512_maskz_sub_ps(finite, x, whole);
}

/* 32 elements as 16 pairs, or what rounding leaves of them (part 1); the first `skipped` are 0. */
AMX_PART __m512i pairs_of(const float *x, int64_t skipped, int64_t part) {
  static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  uint32_t taken = UINT32_MAX << skipped;
  __m512 low = _mm512_maskz_loadu_ps((__mmask16)taken, x);
  __m512 high = _mm512_maskz_loadu_ps((__mmask16)(taken >> 16), x + 16);
  if (part) {
    low = left_of(low);
    high = left_of(high);
  }
  return _mm512_permutex2var_epi16(treadle_gemm_round(low), _mm512_loadu_si512(upper),
                                   treadle_gemm_round(high));
}

AMX_PART void pack_tile(char *to, const float *x, int64_t stride, int64_t rows, int64_t width,
                        int64_t skipped, int64_t part) {
  __m512i row[SIDE];
  if (width == 1) {
    _mm512_storeu_si512(to, pairs_of(x, skipped, part));
    return;
  }
  for (int64_t i = 0; i < rows; i++) {
    _mm_prefetch((const char *)(x + i * stride + AHEAD), _MM_HINT_T0);
    _mm_prefetch((const char *)(x + i * stride + AHEAD + SIDE), _MM_HINT_T0);
  }
#pragma GCC unroll 16
  for (int i = 0; i < SIDE; i++)
    row[i] = i < rows ? pairs_of(x + i * stride, skipped, part) : _mm512_setzero_si512();
  treadle_gemm_turn(row);
  __mmask16 written = (__mmask16)((1u << width) - 1);
#pragma GCC unroll 16
  for (int pair = 0; pair < SIDE; pair++)
    _mm512_mask_storeu_epi32(to + pair * width * (int64_t)sizeof(float), written, row[pair]);
}

/* 16 elements in the upper half of each word, whose lower half is 0. What comes behind them is fetched meanwhile. */
AMX_PART __m512i upper_halves(const void *row, treadle_dtype dtype, int64_t column, __mmask16 there) {
  if (!row) return _mm512_setzero_si512();
  _mm_prefetch((const char *)row + (column + AHEAD) * (dtype == TREADLE_BF16 ? 2 : 4), _MM_HINT_T0);
  if (dtype == TREADLE_BF16)
    return _mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, (const uint16_t *)row + column)), 16);
  __m512i bits = treadle_gemm_round(_mm512_maskz_loadu_ps(there, (const float *)row + column));
  return _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000));
}

/* The same tile of x that lies turned: pairs are of rows that lie one above the other, so nothing is exchanged. */
AMX_PART void pack_turned_tile(char *to, const treadle_gemm_source *source, int64_t at, int64_t column,
                               int64_t width, int64_t skipped) {
  int64_t columns = treadle_smaller(source->rows - column, width);
  __mmask16 there = (__mmask16)((1u << columns) - 1), written = (__mmask16)((1u << width) - 1);
  const void *const *rows = source->turned + at;
  for (int64_t pair = 0; pair < SIDE; pair++) {
    const void *even = 2 * pair < skipped ? NULL : rows[2 * pair];
    const void *odd = 2 * pair + 1 < skipped ? NULL : rows[2 * pair + 1];
    __m512i low = upper_halves(even, source->turned_dtype, column, there);
    __m512i high = upper_halves(odd, source->turned_dtype, column, there);
    _mm512_mask_storeu_epi32(to + pair * width * (int64_t)sizeof(float), written,
                             _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
  }
}

/* Steps one after the other, each for all blocks: so rows are read from one end to the other. Parts are cut between steps. */
AMX_CODE static void pack_turned(const treadle_gemm_source *source, void *packed, int32_t index,
                                 int32_t count) {
  form f = form_of(source->inner, source->rows);
  int64_t unit, end = treadle_gemm_part(f.steps * source->inner.range.leaves, index, count, &unit);
  for (; unit < end; unit++) {
    int64_t leaf = unit / f.steps, step = unit % f.steps, at = step_at(source->inner, step);
    char *to = (char *)packed + leaf * f.leaf_bytes + step * f.tile_bytes;
    for (int64_t block = 0; block < f.blocks; block++, to += f.block_bytes)
      pack_turned_tile(to, source, leaf * source->inner.leaf + at, block * f.width, f.width,
                       step * STEP - at);
  }
}

AMX_CODE static void pack_whole(char *to, const float *x, int64_t stride, int64_t rows, int64_t width,
                                int64_t skipped) {
  pack_tile(to, x, stride, rows, width, skipped, 0);
}

AMX_CODE static void pack_left(char *to, const float *x, int64_t stride, int64_t rows, int64_t width,
                               int64_t skipped) {
  pack_tile(to, x, stride, rows, width, skipped, 1);
}

/* Parts are cut between leaves of blocks. */
AMX_CODE static void pack(const treadle_gemm_source *source, void *packed, int32_t index, int32_t count) {
  form f = form_of(source->inner, source->rows);
  int64_t leaves = source->inner.range.leaves, unit;
  int64_t end = treadle_gemm_part(f.blocks * leaves, index, count, &unit);
  if (source->turned) {
    pack_turned(source, packed, index, count);
    return;
  }
  for (; unit < end; unit++) {
    int64_t row = unit / leaves * f.width, rows = treadle_smaller(source->rows - row, f.width);
    const float *x = source->x + row * source->stride + unit % leaves * source->inner.leaf;
    char *to = (char *)packed + unit / leaves * f.block_bytes + unit % leaves * f.leaf_bytes;
    for (int64_t step = 0; step < f.steps; step++, to += f.tile_bytes) {
      int64_t at = step_at(source->inner, step);
      pack_whole(to, x + at, source->stride, rows, f.width, step * STEP - at);
      if (f.parts > 1)
        pack_left(to + f.part_bytes, x + at, source->stride, rows, f.width, step * STEP - at);
    }
  }
}

#endif

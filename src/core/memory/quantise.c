/* Block quantisation. A block is decoded into a buffer, 64 KiB of fp32 in the second-level cache, measured there,
 * divided and encoded row by row. The loops are written once, and compiled for AVX2 too. Blocks that lie as they mostly
 * do need no buffer: quantise_fast.c. */
#include "memory/quantise.h"

#include "base/dtype.h"
#include "memory/cast.h"
#include "memory/copy_stream.h"
#include "memory/quantise_fast.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { BLOCK = TREADLE_BLOCK_ROW_SIDE, SMALL = 16 };

/* ---- The loops ---- */

#define BODY static inline __attribute__((always_inline))

/* The bits of magnitudes are in the order of their values, NaN last. */
BODY uint32_t largest(const float *values, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return (uint32_t)most;
}

BODY void divide(float *values, int64_t count, float scale) {
  for (int64_t i = 0; i < count; i++) {
    float value = values[i] / scale;
    value = value > 448.0f ? 448.0f : value;
    values[i] = value < -448.0f ? -448.0f : value;
  }
}

BODY void multiply(float *values, int64_t count, float scale) {
  const uint32_t bits = 0x7fc00000;
  float nan;
  memcpy(&nan, &bits, sizeof nan);
  for (int64_t i = 0; i < count; i++) {
    float value = values[i] * scale;
    values[i] = value != value ? nan : value;
  }
}

typedef struct loops {
  uint32_t (*largest)(const float *values, int64_t count);
  void (*divide)(float *values, int64_t count, float scale);
  void (*multiply)(float *values, int64_t count, float scale);
} loops;

#define LOOPS(name, target)                                                                                \
  target static uint32_t name##_largest(const float *v, int64_t count) { return largest(v, count); }       \
  target static void name##_divide(float *v, int64_t count, float scale) { divide(v, count, scale); }      \
  target static void name##_multiply(float *v, int64_t count, float scale) { multiply(v, count, scale); }  \
  static const loops name = {name##_largest, name##_divide, name##_multiply};

LOOPS(plain, )
#if defined(__x86_64__)
LOOPS(fast, __attribute__((target("avx2"))))
#else
LOOPS(fast, )
#endif

static const loops *loops_of(treadle_mover mover) { return mover == TREADLE_MOVER_STREAM ? &fast : &plain; }

/* ---- Rows ---- */

static void cast_row(treadle_cast cast, void *to, const void *from, int64_t count, treadle_mover mover) {
  if (mover == TREADLE_MOVER_STREAM)
    treadle_cast_run(cast, to, from, (size_t)count);
  else
    treadle_dtype_convert(to, cast.to, from, cast.from, (size_t)count);
}

/* A row as fp32. */
static void read_row(float *to, treadle_matrix from, treadle_cast cast, int64_t row, int64_t columns,
                     treadle_mover mover) {
  char buffer[BLOCK * sizeof(float)];
  const char *begin = treadle_matrix_row(from, row);
  size_t each = treadle_dtype_bytes(cast.from);
  if (from.column_stride != (int64_t)each) {
    for (int64_t i = 0; i < columns; i++)
      memcpy(buffer + (size_t)i * each, begin + i * from.column_stride, each);
    begin = buffer;
  }
  cast_row(cast, to, begin, columns, mover);
}

static void write_row(treadle_matrix to, treadle_cast cast, int64_t row, const float *from, int64_t columns,
                      treadle_mover mover) {
  _Alignas(64) char buffer[BLOCK * sizeof(float)];
  char *begin = treadle_matrix_into(to, row);
  size_t each = treadle_dtype_bytes(cast.to);
  cast_row(cast, buffer, from, columns, mover);
  if (to.column_stride != (int64_t)each)
    for (int64_t i = 0; i < columns; i++)
      memcpy(begin + i * to.column_stride, buffer + (size_t)i * each, each);
  else if (mover == TREADLE_MOVER_STREAM)
    treadle_stream_lines(begin, buffer, (size_t)columns * each);
  else
    memcpy(begin, buffer, (size_t)columns * each);
}

/* ---- Blocks ---- */

typedef struct quantise { /* of one block */
  treadle_matrix to, from;
  treadle_dtype from_dtype;
  int64_t rows, columns;
  treadle_mover mover;
} quantise;

/* values: room for [rows, columns]; the fast loops do not use it. */
static void quantise_with(const quantise *q, float *scale_p, float *values) {
  const treadle_cast in = {.to = TREADLE_FP32, .from = q->from_dtype};
  const treadle_cast out = {.to = TREADLE_FP8_E4M3, .from = TREADLE_FP32};
  int64_t rows = q->rows, columns = q->columns;
  bool dense = q->mover == TREADLE_MOVER_STREAM &&
               treadle_quantise_fast_takes(q->from, q->from_dtype, q->to, columns);
  const loops *run = loops_of(q->mover);
  uint32_t bits = dense ? treadle_quantise_fast_largest(q->from, q->from_dtype, rows, columns) : 0;
  float amax, scale;
  for (int64_t row = 0; row < rows && !dense; row++) {
    treadle_matrix_prefetch(q->from, row, rows, columns * q->from.column_stride);
    read_row(values + row * columns, q->from, in, row, columns, q->mover);
    uint32_t most = run->largest(values + row * columns, columns);
    bits = most > bits ? most : bits;
  }
  bool finite = bits < 0x7f800000;
  if (bits > 0x7f800000) bits = 0x7fc00000;
  memcpy(&amax, &bits, sizeof amax);
  scale = finite ? amax / 448.0f : amax;
  if (scale == 0) scale = 1;
  *scale_p = scale;
  if (dense && finite) {
    treadle_quantise_fast_encode(q->to, q->from, q->from_dtype, rows, columns, scale);
    return;
  }
  if (finite)
    run->divide(values, rows * columns, scale);
  else
    for (int64_t i = 0; i < rows * columns; i++) values[i] = NAN;
  for (int64_t row = 0; row < rows; row++)
    write_row(q->to, out, row, values + row * columns, columns, q->mover);
}

/* Two sizes of room: models of tiny blocks have millions of them, and sanitizers touch all of a stack frame. */
static __attribute__((noinline)) void quantise_small(const quantise *q, float *scale_p) {
  _Alignas(64) float values[SMALL * SMALL];
  quantise_with(q, scale_p, values);
}

static __attribute__((noinline)) void quantise_large(const quantise *q, float *scale_p) {
  _Alignas(64) float values[BLOCK * BLOCK];
  quantise_with(q, scale_p, values);
}

void treadle_quantise_block(treadle_matrix to, float *scale_p, treadle_matrix from,
                            treadle_dtype from_dtype, int64_t rows, int64_t columns, treadle_mover mover) {
  const quantise q = {
      .to = to, .from = from, .from_dtype = from_dtype, .rows = rows, .columns = columns, .mover = mover};
  assert(rows > 0 && rows <= BLOCK && columns > 0 && columns <= BLOCK);
  if (rows <= SMALL && columns <= SMALL)
    quantise_small(&q, scale_p);
  else
    quantise_large(&q, scale_p);
}

void treadle_dequantise_block(treadle_matrix to, treadle_dtype to_dtype, treadle_matrix from, float scale,
                              int64_t rows, int64_t columns, treadle_mover mover) {
  _Alignas(64) float values[BLOCK];
  const treadle_cast in = {.to = TREADLE_FP32, .from = TREADLE_FP8_E4M3};
  const treadle_cast out = {.to = to_dtype, .from = TREADLE_FP32};
  assert(rows > 0 && rows <= BLOCK && columns > 0 && columns <= BLOCK);
  if (mover == TREADLE_MOVER_STREAM && isfinite(scale * 256) &&
      treadle_quantise_fast_takes(to, to_dtype, from, columns)) {
    treadle_quantise_fast_decode(to, to_dtype, from, rows, columns, scale);
    return;
  }
  for (int64_t row = 0; row < rows; row++) {
    treadle_matrix_prefetch(from, row, rows, columns * from.column_stride);
    read_row(values, from, in, row, columns, mover);
    loops_of(mover)->multiply(values, columns, scale);
    write_row(to, out, row, values, columns, mover);
  }
}

/* ---- Strips ---- */

static void make_block(const treadle_strip *strip, int64_t number, treadle_mover mover) {
  const int64_t first = number == 0 ? 0 : number * strip->width - strip->skip,
                end = (number + 1) * strip->width - strip->skip,
                columns = (end < strip->columns ? end : strip->columns) - first;
  const treadle_matrix values = treadle_matrix_at(strip->values, first * strip->values.column_stride),
                       codes = treadle_matrix_at(strip->codes, first * strip->codes.column_stride),
                       at = treadle_matrix_at(strip->scales, number * strip->scales.column_stride);
  float scale;
  if (strip->back) {
    memcpy(&scale, at.base, sizeof scale);
    treadle_dequantise_block(values, strip->dtype, codes, scale, strip->rows, columns, mover);
  } else {
    treadle_quantise_block(codes, &scale, values, strip->dtype, strip->rows, columns, mover);
    memcpy(at.into, &scale, sizeof scale);
  }
}

void treadle_strip_make(const treadle_strip *strip, treadle_mover mover) {
  for (int64_t i = 0; i < treadle_strip_blocks(strip); i++) make_block(strip, i, mover);
}

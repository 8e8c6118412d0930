/* Blocks of fp8 with a scale: kernel treadle_cuda_blocks. The format is that of memory/quantise.h. Values are read
 * twice, the second time out of a cache: once to find the largest, once to encode them. */
#ifndef TREADLE_MEMORY_BLOCK_CUDA_H
#define TREADLE_MEMORY_BLOCK_CUDA_H

#include "memory/value_cuda.h"

enum { INFINITE = 0x7f800000, NAN_BITS = 0x7fc00000 };

/* A block of values. */
typedef struct block_of_values {
  uint64_t values, codes, scale;                              /* addresses */
  int64_t values_row, values_column, codes_row, codes_column; /* strides, bytes */
  uint32_t rows, columns;
  uint8_t dtype, back;
} block_of_values;

/* What a block of threads has taken; shared.
 *   largest  of the values that each thread has seen, then [0] of all: the bits of the magnitude, whose order is that
 *            of values, NaN last */
typedef struct block_work {
  treadle_cuda_strip strip;
  block_of_values block;
  uint32_t largest[TREADLE_CUDA_THREADS];
  float scale;
} block_work;

CODE treadle_cuda_block block_at(const treadle_cuda_blocks_args *args, uint32_t i) {
  return TREADLE_CUDA_AT(const treadle_cuda_block, args->blocks)[i];
}

CODE void take_strip(block_work *w, const treadle_cuda_blocks_args *args, uint32_t i, uint32_t t) {
  take(&w->strip, args->strips + block_at(args, i).strip * (uint64_t)sizeof w->strip, sizeof w->strip, t);
}

/* The first block lacks columns in front, the last one at its end: skip = 32 and 128 columns in blocks of 128 are 96 and
 * 32. */
CODE void place_block(block_work *w, const treadle_cuda_blocks_args *args, uint32_t i, uint32_t t) {
  if (t != 0) return;
  const treadle_cuda_strip *s = &w->strip;
  const uint32_t number = block_at(args, i).number;
  const uint32_t first = number == 0 ? 0 : number * s->width - s->skip,
                 end = (number + 1) * s->width - s->skip;
  block_of_values *b = &w->block;
  b->values = s->values + (uint64_t)((int64_t)first * s->values_column);
  b->codes = s->codes + (uint64_t)((int64_t)first * s->codes_column);
  b->scale = s->scales + (uint64_t)((int64_t)number * s->scales_column);
  b->values_row = s->values_row;
  b->values_column = s->values_column;
  b->codes_row = s->codes_row;
  b->codes_column = s->codes_column;
  b->rows = s->rows;
  b->columns = (end < s->columns ? end : s->columns) - first;
  b->dtype = s->dtype;
  b->back = s->back;
}

/* ---- Where values lie ---- */

/* Do rows consist of eights of values that can be loaded and stored at once? */
CODE uint32_t is_dense(const block_of_values *b) {
  const uint64_t bytes = bytes_of(b->dtype), all = bytes == 1 ? 8 : 16;
  return b->columns % 8 == 0 && b->values_column == (int64_t)bytes && b->codes_column == 1 &&
         (b->values | (uint64_t)b->values_row) % all == 0 && (b->codes | (uint64_t)b->codes_row) % 8 == 0;
}

typedef struct block_place {
  uint64_t value, code; /* addresses */
} block_place;

/* Of unit number `unit`, which has `width` values of a row. */
CODE block_place place_in_block(const block_of_values *b, uint32_t width, uint32_t unit) {
  const uint32_t units = b->columns / width;
  const int64_t row = unit / units, column = unit % units * width;
  block_place place;
  place.value = b->values + (uint64_t)(row * b->values_row + column * b->values_column);
  place.code = b->codes + (uint64_t)(row * b->codes_row + column * b->codes_column);
  return place;
}

/* The bits of fp32 of a unit's values. */
CODE void read_values(const block_of_values *b, uint32_t width, uint64_t address, uint32_t *values) {
  const uint32_t bytes = bytes_of(b->dtype);
  if (width == 8) {
    load_eight(address, bytes, values);
    decode_eight(b->dtype, values);
  } else {
    values[0] = decode(b->dtype, load_any(address, bytes));
  }
}

/* ---- Values to codes ---- */

CODE uint32_t largest_of(const block_work *w, uint32_t width, uint32_t t) {
  enum { BOTH = 2 };
  const uint32_t units = w->block.rows * w->block.columns / width;
  uint32_t largest = 0;
  for (uint32_t unit = t; unit < units; unit += BOTH * TREADLE_CUDA_THREADS) {
    uint32_t values[BOTH][8];
    UNROLL for (uint32_t i = 0; i < BOTH; i++) { /* the last one may be looked at twice */
      uint32_t at = unit + i * TREADLE_CUDA_THREADS < units ? unit + i * TREADLE_CUDA_THREADS : unit;
      read_values(&w->block, width, place_in_block(&w->block, width, at).value, values[i]);
    }
    UNROLL for (uint32_t i = 0; i < BOTH; i++) UNROLL for (uint32_t k = 0; k < width; k++) {
      uint32_t magnitude = values[i][k] & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  return largest;
}

CODE void find_largest(block_work *w, uint32_t t) {
  w->largest[t] = is_dense(&w->block) ? largest_of(w, 8, t) : largest_of(w, 1, t);
}

CODE void fold_largest(block_work *w, uint32_t half, uint32_t t) {
  if (t < half && w->largest[t + half] > w->largest[t]) w->largest[t] = w->largest[t + half];
}

CODE void write_scale(block_work *w, uint32_t t) {
  if (t != 0) return;
  const uint32_t largest = w->largest[0];
  uint32_t bits = is_nan(largest) ? (uint32_t)NAN_BITS : largest;
  if (largest < INFINITE) bits = bits_of(float_of(largest) / 448.0f);
  if (bits == 0) bits = bits_of(1.0f);
  w->scale = float_of(bits);
  store_any(w->block.scale, 4, bits);
}

CODE uint32_t code_of(uint32_t bits, float scale) {
  float value = float_of(bits) / scale;
  value = value > 448.0f ? 448.0f : value;
  return fp8_of_bits(bits_of(value < -448.0f ? -448.0f : value));
}

CODE void write_codes_of(const block_work *w, uint32_t width, uint32_t t) {
  const uint32_t units = w->block.rows * w->block.columns / width;
  const uint32_t finite = w->largest[0] < INFINITE;
  for (uint32_t unit = t; unit < units; unit += TREADLE_CUDA_THREADS) {
    const block_place place = place_in_block(&w->block, width, unit);
    uint32_t values[8];
    read_values(&w->block, width, place.value, values);
    UNROLL for (uint32_t k = 0; k < width; k++) values[k] = finite ? code_of(values[k], w->scale) : 0x7f;
    if (width == 8)
      store_eight(place.code, 1, values);
    else
      store(place.code, 1, values[0]);
  }
}

CODE void write_codes(const block_work *w, uint32_t t) {
  if (is_dense(&w->block))
    write_codes_of(w, 8, t);
  else
    write_codes_of(w, 1, t);
}

/* ---- Codes to values ---- */

CODE uint32_t value_of(uint32_t code, float scale) {
  uint32_t bits = bits_of(float_of(bits_of_fp8(code)) * scale);
  return is_nan(bits) ? (uint32_t)NAN_BITS : bits;
}

CODE void write_values_of(const block_of_values *b, uint32_t width, uint32_t t) {
  const uint32_t units = b->rows * b->columns / width, bytes = bytes_of(b->dtype);
  const float scale = float_of(load_any(b->scale, 4));
  for (uint32_t unit = t; unit < units; unit += TREADLE_CUDA_THREADS) {
    const block_place place = place_in_block(b, width, unit);
    uint32_t values[8];
    if (width == 8)
      load_eight(place.code, 1, values);
    else
      values[0] = load(place.code, 1);
    UNROLL for (uint32_t k = 0; k < width; k++) values[k] = value_of(values[k], scale);
    if (width == 8) {
      encode_eight(b->dtype, values);
      store_eight(place.value, bytes, values);
    } else {
      store_any(place.value, bytes, encode(b->dtype, values[0]));
    }
  }
}

CODE void write_values(const block_work *w, uint32_t t) {
  if (is_dense(&w->block))
    write_values_of(&w->block, 8, t);
  else
    write_values_of(&w->block, 1, t);
}

#endif

/* Rows of any length, 16 lanes at a time: reading and writing what is left of one. Included behind the lanes. */
#ifndef TREADLE_NN_LANES_ROWS_H
#define TREADLE_NN_LANES_ROWS_H

#include "base/dtype.h"

LANES_PART lanes load(const float *from, int64_t left) {
  return left >= LANES ? lanes_load(from) : lanes_load_part(from, (int)left);
}

LANES_PART void store(float *to, lanes x, int64_t left) {
  if (left >= LANES)
    lanes_store(to, x);
  else
    lanes_store_part(to, x, (int)left);
}

/* What comes some lines later, since not every processor fetches ahead by itself. */
LANES_PART void fetch(const float *at) {
  enum { AHEAD = 256 };
  __builtin_prefetch(at + AHEAD);
}

/* dtype is a constant where this is called, fp32 or bf16. */
LANES_PART lanes load_as(treadle_dtype dtype, const void *from, int64_t at, int64_t left) {
  if (dtype == TREADLE_FP32) return load((const float *)from + at, left);
  const uint16_t *bf16 = (const uint16_t *)from + at;
  return left >= LANES ? lanes_load_bf16(bf16) : lanes_load_bf16_part(bf16, (int)left);
}

#endif

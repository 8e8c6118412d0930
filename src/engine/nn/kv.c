/* Writing keys and values. Keys of one row are rounded as a whole, and then their elements go to their places; those of several rows are
 * turned 16 by 16. */
#include "nn/kv.h"

#include "nn/rows.h"

#include <string.h>

enum { MOST_DIM = 65536, MOST_TOKENS = 65536, PART = 256, TURNED = 16 /* rows */ };

treadle_status treadle_kv_check(const treadle_kv_shape *s) {
  if (s->dtype != TREADLE_FP32 && s->dtype != TREADLE_BF16)
    REFUSE("a cache of %s: keys and values are fp32 or bf16", treadle_dtype_name(s->dtype));
  if (s->heads < 1 || s->heads > MOST_DIM)
    REFUSE("%lld key-value heads: a cache has 1 to %d", (long long)s->heads, MOST_DIM);
  if (s->key_dim < 1 || s->key_dim > MOST_DIM || s->value_dim < 1 || s->value_dim > MOST_DIM)
    REFUSE("keys of %lld values and values of %lld: a cache has 1 to %d", (long long)s->key_dim,
           (long long)s->value_dim, MOST_DIM);
  if (s->shared && (s->value_dim > s->key_dim || s->heads != 1))
    REFUSE("%lld heads with values of %lld in keys of %lld: they do not fit", (long long)s->heads,
           (long long)s->value_dim, (long long)s->key_dim);
  if (s->block_tokens < 1 || s->block_tokens > MOST_TOKENS)
    REFUSE("blocks of %lld tokens: they have 1 to %d", (long long)s->block_tokens, MOST_TOKENS);
  return TREADLE_OK;
}

int64_t treadle_kv_token_bytes(const treadle_kv_shape *shape) {
  int64_t dims = shape->shared ? shape->key_dim : shape->key_dim + shape->value_dim;
  return shape->heads * dims * (int64_t)treadle_dtype_bytes(shape->dtype);
}

int64_t treadle_kv_block_bytes(const treadle_kv_shape *shape) {
  return treadle_kv_token_bytes(shape) * shape->block_tokens;
}

/* `count` values side by side, or `step` elements apart. */
static void write_run(treadle_dtype dtype, char *to, int64_t step, const float *from, int64_t count) {
  const treadle_row_ops *ops = treadle_row_ops_choose();
  if (step == 1) {
    ops->narrow(to, dtype, from, count);
    return;
  }
  for (int64_t part = 0; part < count; part += PART) {
    int64_t end = count - part < PART ? count : part + PART;
    uint16_t rounded[PART];
    if (dtype == TREADLE_BF16) ops->narrow(rounded, dtype, from + part, end - part);
    for (int64_t i = part; i < end; i++) {
      if (dtype == TREADLE_BF16)
        memcpy(to + i * step * 2, &rounded[i - part], 2);
      else
        memcpy(to + i * step * 4, &from[i], 4);
    }
  }
}

/* Keys of up to TURNED rows whose slots follow each other, side by side dimension by dimension. */
static void write_keys(const treadle_kv_shape *shape, char *to, const treadle_kv_rows *rows, int64_t row,
                       int64_t head, int64_t count) {
  const float *key = rows->keys + row * rows->key_stride + head * shape->key_dim;
  if (count == 1)
    write_run(shape->dtype, to, shape->block_tokens, key, shape->key_dim);
  else
    treadle_row_ops_choose()->turn(to, shape->dtype, shape->block_tokens, key, rows->key_stride, count,
                                   shape->key_dim);
}

/* A row of `count` values, in slot `slot`. */
static void write_row(treadle_dtype dtype, char *to, int64_t slot, const float *from, int64_t count) {
  write_run(dtype, to + slot * count * (int64_t)treadle_dtype_bytes(dtype), 1, from, count);
}

void treadle_kv_write(const treadle_kv_shape *shape, const treadle_kv_blocks *blocks,
                      const treadle_kv_rows *rows) {
  int64_t bytes = (int64_t)treadle_dtype_bytes(shape->dtype), tokens = shape->block_tokens, count;
  for (int64_t row = 0; row < rows->count; row += count) {
    int64_t position = rows->position + row, slot = position % tokens, left = rows->count - row;
    count = left < TURNED ? left : TURNED;
    count = count < tokens - slot ? count : tokens - slot;
    for (int64_t head = 0; head < shape->heads; head++) {
      char *to = treadle_kv_head(shape, blocks, head, position);
      char *values = shape->shared ? to : to + shape->key_dim * tokens * bytes;
      const float *from =
          shape->shared ? rows->keys + head * shape->key_dim : rows->values + head * shape->value_dim;
      int64_t stride = shape->shared ? rows->key_stride : rows->value_stride;
      if (!shape->shared) write_keys(shape, to + slot * bytes, rows, row, head, count);
      for (int64_t i = 0; i < count; i++)
        write_row(shape->dtype, values, slot + i, from + (row + i) * stride,
                  shape->shared ? shape->key_dim : shape->value_dim);
    }
  }
}

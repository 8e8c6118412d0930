/* Writing keys and values: a row is rounded as a whole, and then its elements go to their places. */
#include "nn/kv.h"

#include "nn/rows.h"

#include <string.h>

enum { MOST_DIM = 65536, MOST_TOKENS = 65536, PART = 256 };

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

void treadle_kv_write(const treadle_kv_shape *shape, const treadle_kv_blocks *blocks,
                      const treadle_kv_rows *rows) {
  int64_t bytes = (int64_t)treadle_dtype_bytes(shape->dtype), tokens = shape->block_tokens;
  for (int64_t row = 0; row < rows->count; row++) {
    int64_t position = rows->position + row, slot = position % tokens;
    for (int64_t head = 0; head < shape->heads; head++) {
      char *to = treadle_kv_head(shape, blocks, head, position);
      const float *key = rows->keys + row * rows->key_stride + head * shape->key_dim;
      if (shape->shared) {
        write_run(shape->dtype, to + slot * shape->key_dim * bytes, 1, key, shape->key_dim);
        continue;
      }
      write_run(shape->dtype, to + slot * bytes, tokens, key, shape->key_dim);
      char *values = to + shape->key_dim * tokens * bytes;
      write_run(shape->dtype, values + slot * shape->value_dim * bytes, 1,
                rows->values + row * rows->value_stride + head * shape->value_dim, shape->value_dim);
    }
  }
}

/* Keys and values of past tokens: what lies where in a block of the cache, and how they get there.
 *
 * A block has block_tokens positions of one layer: those of the whole sequence from b * block_tokens on are in the block whose
 * number stands at place b of the sequence's table. Positions are slots of a block, position % block_tokens. For each
 * key-value head that the rank has, one after the other:
 *
 *   keys    [key_dim, block_tokens]     a dimension's values side by side, so that one vector has 16 keys
 *   values  [block_tokens, value_dim]
 *
 * Where values are shared with keys (MLA: the row of a token is the latent and the rotated part, its value the latent, and there
 * is one head), there is nothing but rows:
 *
 *   rows    [block_tokens, key_dim]     a value is the first value_dim of a row
 *
 * Elements are bf16, rounded to the nearest even, or fp32. Slots that no token was written to are never used, whatever they hold. */
#ifndef TREADLE_NN_KV_H
#define TREADLE_NN_KV_H

#include "base/dtype.h"

#include <stdbool.h>

typedef struct treadle_kv_shape {
  int64_t heads;     /* key-value heads of this rank */
  int64_t key_dim;   /* of one head */
  int64_t value_dim; /* at most key_dim where values are shared */
  int64_t block_tokens;
  treadle_dtype dtype; /* fp32 or bf16 */
  bool shared;
} treadle_kv_shape;

/* Where the blocks of one layer and one sequence lie. The bytes between two blocks are the caller's choice: one layer beside
 * another, or all layers of a block together. */
typedef struct treadle_kv_blocks {
  char *base;           /* block 0; a multiple of 64 is fastest */
  int64_t stride;       /* bytes from block to block */
  const int32_t *table; /* block numbers of the sequence */
} treadle_kv_blocks;

/* Tokens whose keys and values are written. */
typedef struct treadle_kv_rows {
  const float *keys,
      *values; /* [count, heads * key_dim], [count, heads * value_dim]; values: NULL where shared */
  int64_t key_stride, value_stride; /* values from row to row */
  int64_t position, count;          /* of the first; their number */
} treadle_kv_rows;

/* Refuses what no cache can be. */
treadle_status treadle_kv_check(const treadle_kv_shape *shape);
/* Bytes of one token, and of a block, in one layer. */
int64_t treadle_kv_token_bytes(const treadle_kv_shape *shape);
int64_t treadle_kv_block_bytes(const treadle_kv_shape *shape);

/* The address of a head's keys (or rows) and values in the block of a position, which is a number of a whole sequence. */
static inline char *treadle_kv_head(const treadle_kv_shape *shape, const treadle_kv_blocks *blocks,
                                    int64_t head, int64_t position) {
  int64_t dims = shape->shared ? shape->key_dim : shape->key_dim + shape->value_dim;
  int64_t bytes = shape->dtype == TREADLE_FP32 ? 4 : 2;
  return blocks->base + blocks->table[position / shape->block_tokens] * blocks->stride +
         head * dims * shape->block_tokens * bytes;
}

/* Rounds and writes. Threads may write different tokens, or heads, at once. */
void treadle_kv_write(const treadle_kv_shape *shape, const treadle_kv_blocks *blocks,
                      const treadle_kv_rows *rows);

#endif

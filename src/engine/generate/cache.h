/* The blocks of a KV cache, by number: who uses them, and what can be shared. It knows no bytes.
 *
 * A block holds the keys and values of `block_tokens` tokens that follow each other, for all layers. When all its tokens are known it
 * has a hash of 128 bits, which stands for these tokens and all before them, and for the version of the weights; tokens are not
 * compared. A sequence that begins with the
 * same tokens uses the same blocks. A block that nobody uses keeps its content until it is taken for something else: the one that
 * has been unused for longest goes first.
 *
 * A rank of a replica makes the same calls as the others and so has the same tables. */
#ifndef TREADLE_GENERATE_CACHE_H
#define TREADLE_GENERATE_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct treadle_cache_block {
  treadle_hash_pair hash; /* of its tokens and those before */
  bool published;         /* it is found by its hash */
  int32_t users;          /* sequences */
  int32_t newer, older;   /* unused blocks, in the order in which they became so; -1 */
  int32_t same;           /* the next block in the list of its hash; -1 */
} treadle_cache_block;

typedef struct treadle_cache {
  int32_t block_tokens;
  int32_t count, used, most_used; /* blocks; those with users; most of these at any time */
  bool shares;
  treadle_cache_block *blocks;
  int32_t oldest, newest; /* of the unused; -1: none */
  int32_t *heads;         /* by hash: the first block; -1 */
  uint64_t mask;
} treadle_cache;

/* Blocks from 0 to count - 1, all unused. share off: no block is used by two sequences. */
treadle_status treadle_cache_init(treadle_cache *cache, int32_t count, int32_t block_tokens, bool shares);
void treadle_cache_release(treadle_cache *cache);

static inline int32_t treadle_cache_unused(const treadle_cache *cache) {
  return cache->count - cache->used;
}

/* The hash of a full block behind one with hash `before` (the first: the version in place of a hash). */
treadle_hash_pair treadle_cache_hash(treadle_hash_pair before, const int32_t *tokens, int32_t count);

/* A block with this hash, with one user more; -1: there is none. */
int32_t treadle_cache_share(treadle_cache *cache, treadle_hash_pair hash);
/* An unused block, with one user; -1: there is none. What was in it is gone. */
int32_t treadle_cache_take(treadle_cache *cache);
/* From now on others find the block by this hash. */
void treadle_cache_publish(treadle_cache *cache, int32_t block, treadle_hash_pair hash);
/* One user less. */
void treadle_cache_leave(treadle_cache *cache, int32_t block);

#endif

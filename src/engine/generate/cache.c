#include "generate/cache.h"

#include "base/alloc.h"

#include <assert.h>

treadle_status treadle_cache_init(treadle_cache *cache, int32_t count, int32_t block_tokens, bool shares) {
  size_t heads = 16;
  while (heads < (size_t)count) heads *= 2;
  *cache = (treadle_cache){.block_tokens = block_tokens, .count = count, .shares = shares};
  cache->oldest = cache->newest = -1;
  cache->mask = heads - 1;
  cache->blocks = treadle_alloc_array((size_t)count + 1, sizeof *cache->blocks);
  cache->heads = treadle_alloc_array(heads, sizeof *cache->heads);
  if (!cache->blocks || !cache->heads) {
    treadle_cache_release(cache);
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a table of %d blocks", count);
  }
  for (size_t i = 0; i < heads; i++) cache->heads[i] = -1;
  cache->used = count;
  for (int32_t b = count - 1; b >= 0; b--) { /* the first is taken first */
    cache->blocks[b] = (treadle_cache_block){.users = 1, .newer = -1, .older = -1, .same = -1};
    treadle_cache_leave(cache, b);
  }
  cache->most_used = 0;
  return TREADLE_OK;
}

void treadle_cache_release(treadle_cache *cache) {
  treadle_free(cache->blocks);
  treadle_free(cache->heads);
  *cache = (treadle_cache){0};
}

treadle_hash_pair treadle_cache_hash(treadle_hash_pair before, const int32_t *tokens, int32_t count) {
  return treadle_hash_behind(before, tokens, (size_t)count * sizeof *tokens);
}

/* ---- Unused blocks: a list from the oldest to the newest; what nobody can share comes first, the last one used before all, since its
 * memory is near ---- */

static void unlist(treadle_cache *cache, int32_t block) {
  treadle_cache_block *b = &cache->blocks[block];
  if (b->older >= 0)
    cache->blocks[b->older].newer = b->newer;
  else
    cache->oldest = b->newer;
  if (b->newer >= 0)
    cache->blocks[b->newer].older = b->older;
  else
    cache->newest = b->older;
  b->newer = b->older = -1;
}

static void add_user(treadle_cache *cache, int32_t block) {
  if (cache->blocks[block].users++ > 0) return;
  unlist(cache, block);
  if (++cache->used > cache->most_used) cache->most_used = cache->used;
}

void treadle_cache_leave(treadle_cache *cache, int32_t block) {
  treadle_cache_block *b = &cache->blocks[block];
  assert(b->users > 0);
  if (--b->users > 0) return;
  cache->used--;
  b->older = b->published ? cache->newest : -1;
  b->newer = b->published ? -1 : cache->oldest;
  *(b->older >= 0 ? &cache->blocks[b->older].newer : &cache->oldest) = block;
  *(b->newer >= 0 ? &cache->blocks[b->newer].older : &cache->newest) = block;
}

/* ---- Hashes ---- */

static int32_t *head_of(treadle_cache *cache, treadle_hash_pair hash) {
  return &cache->heads[hash.low & cache->mask];
}

static void forget(treadle_cache *cache, int32_t block) {
  treadle_cache_block *b = &cache->blocks[block];
  if (!b->published) return;
  int32_t *at = head_of(cache, b->hash);
  while (*at != block) at = &cache->blocks[*at].same;
  *at = b->same;
  b->same = -1;
  b->published = false;
}

int32_t treadle_cache_share(treadle_cache *cache, treadle_hash_pair hash) {
  if (!cache->shares) return -1;
  int32_t block = *head_of(cache, hash);
  while (block >= 0 && !treadle_hash_pair_equal(cache->blocks[block].hash, hash))
    block = cache->blocks[block].same;
  if (block >= 0) add_user(cache, block);
  return block;
}

void treadle_cache_publish(treadle_cache *cache, int32_t block, treadle_hash_pair hash) {
  treadle_cache_block *b = &cache->blocks[block];
  if (!cache->shares || (b->published && treadle_hash_pair_equal(b->hash, hash))) return;
  forget(cache, block);
  int32_t *head = head_of(cache, hash);
  b->hash = hash;
  b->published = true;
  b->same = *head;
  *head = block;
}

int32_t treadle_cache_take(treadle_cache *cache) {
  int32_t block = cache->oldest;
  if (block < 0) return -1;
  forget(cache, block);
  add_user(cache, block);
  return block;
}

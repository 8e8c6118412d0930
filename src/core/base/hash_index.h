/* An index by hash: from a 64-bit hash to a number (an index into somebody's array). What is compared are hashes alone, so they
 * stand for what they are made of. A zeroed struct is an empty index. */
#ifndef TREADLE_BASE_HASH_INDEX_H
#define TREADLE_BASE_HASH_INDEX_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct treadle_hash_index {
  struct treadle_hash_index_entry *entries;
  size_t capacity, count;
} treadle_hash_index;

/* Room for this many hashes in all, so that an index of known size does not grow step by step. */
treadle_status treadle_hash_index_reserve(treadle_hash_index *hash_index, size_t count);
/* The number of a hash; one that is not there yet is put there with the number `fresh`, 0 or more. */
treadle_status treadle_hash_index_put(treadle_hash_index *hash_index, uint64_t hash, int32_t fresh,
                                      int32_t *number_p);
int32_t treadle_hash_index_find(const treadle_hash_index *hash_index, uint64_t hash); /* -1: not there */
void treadle_hash_index_clear(treadle_hash_index *hash_index);                        /* keeps its room */
void treadle_hash_index_release(treadle_hash_index *hash_index);

#endif

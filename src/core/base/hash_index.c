/* Open addressing with linear probing over a power of two of entries, at most half full. Nothing is ever removed, so a probe ends
 * at the first free entry. */
#include "base/hash_index.h"

#include "base/alloc.h"

#include <string.h>

struct treadle_hash_index_entry {
  uint64_t hash;
  int32_t number; /* plus one; 0: free */
};

/* The entry of the hash, or the free one where it belongs. */
static struct treadle_hash_index_entry *entry_of(const treadle_hash_index *hash_index, uint64_t hash) {
  size_t mask = hash_index->capacity - 1, at = (size_t)hash & mask;
  while (hash_index->entries[at].number != 0 && hash_index->entries[at].hash != hash) at = (at + 1) & mask;
  return &hash_index->entries[at];
}

treadle_status treadle_hash_index_reserve(treadle_hash_index *hash_index, size_t count) {
  treadle_hash_index grown = {.capacity = hash_index->capacity ? hash_index->capacity : 16,
                              .count = hash_index->count};
  while (grown.capacity / 2 < count) grown.capacity *= 2;
  if (grown.capacity == hash_index->capacity) return TREADLE_OK;
  grown.entries = treadle_alloc_array(grown.capacity, sizeof *grown.entries);
  if (!grown.entries) return treadle_fail(TREADLE_NO_MEMORY, "no memory for an index of %zu hashes", count);
  for (size_t i = 0; i < hash_index->capacity; i++)
    if (hash_index->entries[i].number)
      *entry_of(&grown, hash_index->entries[i].hash) = hash_index->entries[i];
  treadle_free(hash_index->entries);
  *hash_index = grown;
  return TREADLE_OK;
}

treadle_status treadle_hash_index_put(treadle_hash_index *hash_index, uint64_t hash, int32_t fresh,
                                      int32_t *number_p) {
  treadle_status status = treadle_hash_index_reserve(hash_index, hash_index->count + 1);
  if (status != TREADLE_OK) return status;
  struct treadle_hash_index_entry *entry = entry_of(hash_index, hash);
  if (entry->number == 0) {
    *entry = (struct treadle_hash_index_entry){hash, fresh + 1};
    hash_index->count++;
  }
  *number_p = entry->number - 1;
  return TREADLE_OK;
}

int32_t treadle_hash_index_find(const treadle_hash_index *hash_index, uint64_t hash) {
  return hash_index->count == 0 ? -1 : entry_of(hash_index, hash)->number - 1;
}

void treadle_hash_index_clear(treadle_hash_index *hash_index) {
  if (hash_index->count > 0)
    memset(hash_index->entries, 0, hash_index->capacity * sizeof *hash_index->entries);
  hash_index->count = 0;
}

void treadle_hash_index_release(treadle_hash_index *hash_index) {
  treadle_free(hash_index->entries);
  *hash_index = (treadle_hash_index){0};
}

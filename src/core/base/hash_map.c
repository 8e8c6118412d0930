/* Open addressing with linear probing over a power of two of slots, at most two thirds full. Nothing is
 * ever removed, so a probe ends at the first empty slot. */
#include "base/hash_map.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <string.h>

struct treadle_hash_slot {
  const char *key; /* NULL: empty */
  uint64_t hash;
  int64_t value;
};

/* The slot that has the key, or the empty one where it belongs. capacity > 0, one slot is empty. */
static struct treadle_hash_slot *find(struct treadle_hash_slot *slots, size_t capacity, const char *key,
                                      uint64_t hash) {
  for (size_t at = hash & (capacity - 1);; at = (at + 1) & (capacity - 1)) {
    struct treadle_hash_slot *slot = &slots[at];
    if (!slot->key || (slot->hash == hash && strcmp(slot->key, key) == 0)) return slot;
  }
}

static treadle_status grow(treadle_hash_map *map, size_t capacity) {
  struct treadle_hash_slot *slots = treadle_alloc_array(capacity, sizeof *slots);
  if (!slots) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a map of %zu names", capacity);
  for (size_t i = 0; i < map->capacity; i++) {
    const struct treadle_hash_slot *old = &map->slots[i];
    if (old->key) *find(slots, capacity, old->key, old->hash) = *old;
  }
  treadle_free(map->slots);
  map->slots = slots;
  map->capacity = capacity;
  return TREADLE_OK;
}

treadle_status treadle_hash_map_reserve(treadle_hash_map *map, size_t count) {
  size_t capacity = map->capacity ? map->capacity : 16;
  while (count > capacity / 3 * 2) capacity *= 2;
  return capacity > map->capacity ? grow(map, capacity) : TREADLE_OK;
}

treadle_status treadle_hash_map_put(treadle_hash_map *map, const char *key, int64_t value) {
  treadle_status status = treadle_hash_map_reserve(map, map->count + 1);
  if (status != TREADLE_OK) return status;
  uint64_t hash = treadle_hash_text(key, 0);
  struct treadle_hash_slot *slot = find(map->slots, map->capacity, key, hash);
  if (!slot->key) {
    slot->key = key;
    slot->hash = hash;
    map->count++;
  }
  slot->value = value;
  return TREADLE_OK;
}

int64_t treadle_hash_map_get(const treadle_hash_map *map, const char *key, int64_t otherwise) {
  if (map->capacity == 0) return otherwise;
  const struct treadle_hash_slot *slot = find(map->slots, map->capacity, key, treadle_hash_text(key, 0));
  return slot->key ? slot->value : otherwise;
}

void treadle_hash_map_release(treadle_hash_map *map) {
  treadle_free(map->slots);
  *map = (treadle_hash_map){0};
}

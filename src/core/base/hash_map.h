/* A hash map from text to a number (an index into somebody's array). A zeroed struct is an empty map.
 * Keys are not copied: they live as long as the map. */
#ifndef TREADLE_BASE_HASH_MAP_H
#define TREADLE_BASE_HASH_MAP_H

#include "base/status.h"

#include <stdint.h>

typedef struct treadle_hash_map {
  struct treadle_hash_slot *slots;
  size_t capacity, count;
} treadle_hash_map;

/* Room for this many names in all, so that a map of known size does not grow step by step. */
treadle_status treadle_hash_map_reserve(treadle_hash_map *map, size_t count);
treadle_status treadle_hash_map_put(treadle_hash_map *map, const char *key, int64_t value); /* overwrites */
int64_t treadle_hash_map_get(const treadle_hash_map *map, const char *key, int64_t otherwise);
void treadle_hash_map_release(treadle_hash_map *map);

#endif

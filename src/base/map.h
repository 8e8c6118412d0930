/* A hash map from text to a number (an index into somebody's array). A zeroed struct is an empty map.
 * Keys are not copied: they live as long as the map. */
#ifndef TREADLE_BASE_MAP_H
#define TREADLE_BASE_MAP_H

#include "base/status.h"

#include <stdint.h>

typedef struct treadle_map {
  struct treadle_map_slot *slots;
  size_t capacity, count;
} treadle_map;

/* Room for so many names in all, so that a map of known size does not grow step by step. */
treadle_status treadle_map_reserve(treadle_map *map, size_t count);
treadle_status treadle_map_put(treadle_map *map, const char *key, int64_t value); /* overwrites */
int64_t treadle_map_get(const treadle_map *map, const char *key, int64_t otherwise);
void treadle_map_release(treadle_map *map);

#endif

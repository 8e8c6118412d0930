/* What a store has: values by key. */
#ifndef TREADLE_MEET_STORE_MAP_H
#define TREADLE_MEET_STORE_MAP_H

#include "base/array.h"
#include "base/hash_map.h"
#include "wire/buffer.h"

typedef struct treadle_store_entry {
  char *key;
  treadle_wire_bytes *value;
} treadle_store_entry;

/* A zeroed struct is an empty one. */
typedef struct treadle_store_map {
  TREADLE_ARRAY(treadle_store_entry) entries;
  treadle_hash_map index;
  size_t bytes; /* of all keys and values */
} treadle_store_map;

/* In place of what was there. Refused: all together would have more than 256 MiB. */
treadle_status treadle_store_map_set(treadle_store_map *map, const char *key, const void *value,
                                     size_t bytes);
treadle_wire_bytes *treadle_store_map_get(const treadle_store_map *map,
                                          const char *key); /* NULL: not there */
void treadle_store_map_release(treadle_store_map *map);

#endif

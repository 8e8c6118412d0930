/* Values by key. One that is being sent outlives its place here. */
#include "meet/store_map.h"

#include <string.h>

static const size_t most_bytes = (size_t)256 << 20;

static treadle_status add_key(treadle_store_map *map, const char *key, int64_t *at_p) {
  treadle_status status = TREADLE_OK;
  size_t length = strlen(key);
  treadle_store_entry entry = {.key = treadle_alloc(length + 1)};
  if (!entry.key) return treadle_fail(TREADLE_NO_MEMORY, "store: memory is out");
  memcpy(entry.key, key, length);
  *at_p = (int64_t)map->entries.count;
  status = treadle_array_push(&map->entries, entry);
  if (status == TREADLE_OK) {
    status = treadle_hash_map_put(&map->index, entry.key, *at_p);
    if (status != TREADLE_OK) map->entries.count--;
  }
  if (status == TREADLE_OK)
    map->bytes += length;
  else
    treadle_free(entry.key);
  return status;
}

treadle_status treadle_store_map_set(treadle_store_map *map, const char *key, const void *value,
                                     size_t bytes) {
  treadle_status status = TREADLE_OK;
  treadle_wire_bytes *made = NULL, *before = treadle_store_map_get(map, key);
  size_t others = map->bytes - (before ? before->bytes : 0), more = before ? 0 : strlen(key);
  if (others + more + bytes > most_bytes)
    REFUSE("the store is full: it has %zu bytes, and takes %zu at most", map->bytes, most_bytes);
  int64_t at = treadle_hash_map_get(&map->index, key, -1);
  made = treadle_wire_bytes_make(bytes);
  if (!made) return treadle_fail(TREADLE_NO_MEMORY, "store: memory is out");
  if (bytes) memcpy(made->data, value, bytes);
  if (at < 0) TRY(add_key(map, key, &at));
  map->entries.items[at].value = made;
  map->bytes += bytes - (before ? before->bytes : 0);
  made = before;
out:
  treadle_wire_bytes_drop(made);
  return status;
}

treadle_wire_bytes *treadle_store_map_get(const treadle_store_map *map, const char *key) {
  int64_t at = treadle_hash_map_get(&map->index, key, -1);
  return at < 0 ? NULL : map->entries.items[at].value;
}

void treadle_store_map_release(treadle_store_map *map) {
  for (size_t i = 0; i < map->entries.count; i++) {
    treadle_free(map->entries.items[i].key);
    treadle_wire_bytes_drop(map->entries.items[i].value);
  }
  treadle_array_release(&map->entries);
  treadle_hash_map_release(&map->index);
  map->bytes = 0;
}

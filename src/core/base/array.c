/* The one function behind TREADLE_ARRAY: capacity grows by half, from 8. */
#include "base/array.h"

#include <stdint.h>
#include <string.h>

treadle_status treadle_array_grow(void **items_p, size_t *capacity_p, size_t count, size_t each_bytes) {
  if (count < *capacity_p) return TREADLE_OK;
  size_t capacity = *capacity_p < 8 ? 8 : *capacity_p + *capacity_p / 2;
  if (capacity > SIZE_MAX / each_bytes)
    return treadle_fail(TREADLE_NO_MEMORY, "an array of %zu items of %zu bytes is too large", capacity,
                        each_bytes);
  /* items_p points to a pointer of another type: memcpy reads and writes it whatever the type is. */
  void *items;
  memcpy(&items, items_p, sizeof items);
  items = treadle_realloc(items, capacity * each_bytes);
  if (!items)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for an array of %zu items of %zu bytes", capacity,
                        each_bytes);
  memcpy(items_p, &items, sizeof items);
  *capacity_p = capacity;
  return TREADLE_OK;
}

/* Growing arrays of plain structs.
 *
 *   typedef TREADLE_ARRAY(treadle_piece) treadle_pieces;
 *   treadle_pieces pieces = {0};
 *   TRY(treadle_array_push(&pieces, piece));
 *   for (size_t i = 0; i < pieces.count; i++) use(pieces.items[i]);
 *   treadle_array_release(&pieces);
 */
#ifndef TREADLE_BASE_ARRAY_H
#define TREADLE_BASE_ARRAY_H

#include "base/alloc.h"
#include "base/status.h"

#define TREADLE_ARRAY(type)                                                                                \
  struct {                                                                                                 \
    type *items;                                                                                           \
    size_t count, capacity;                                                                                \
  }

/* Makes room for one more item of each_bytes; TREADLE_NO_MEMORY leaves the array as it was. */
treadle_status treadle_array_grow(void **items_p, size_t *capacity_p, size_t count, size_t each_bytes);

#define treadle_array_push(array, item)                                                                    \
  ((array)->count < (array)->capacity ||                                                                   \
           treadle_array_grow((void **)&(array)->items, &(array)->capacity, (array)->count,                \
                              sizeof *(array)->items) == TREADLE_OK                                        \
       ? ((array)->items[(array)->count++] = (item), TREADLE_OK)                                           \
       : TREADLE_NO_MEMORY)

#define treadle_array_release(array)                                                                       \
  do {                                                                                                     \
    treadle_free((array)->items);                                                                          \
    (array)->items = NULL;                                                                                 \
    (array)->count = (array)->capacity = 0;                                                                \
  } while (0)

#endif

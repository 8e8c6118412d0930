/* Pieces by their first axis: sorted by start, with the farthest end so far, so that both ends of what may meet a box are found
 * by halving. */
#include "layout/near.h"

#include <stdlib.h>

enum { FEW = 32 };

static int by_start(const void *a, const void *b) {
  const treadle_near_entry *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->piece > y->piece) - (x->piece < y->piece);
}

static int by_number(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

treadle_status treadle_near_make(treadle_near *near, const treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  bool sorted = true;
  near->entries.count = near->found.count = 0;
  if (pieces->count <= FEW) {
    for (size_t i = 0; i < pieces->count; i++) TRY(treadle_array_push(&near->found, (int32_t)i));
    goto out;
  }
  for (size_t i = 0; i < pieces->count; i++) {
    const treadle_box *box = &pieces->items[i].box;
    sorted = sorted && (i == 0 || pieces->items[i - 1].box.start[0] <= box->start[0]);
    TRY(treadle_array_push(
        &near->entries, ((treadle_near_entry){box->start[0], box->start[0] + box->size[0], (int32_t)i})));
  }
  treadle_near_entry *entries = near->entries.items;
  if (!sorted) qsort(entries, near->entries.count, sizeof *entries, by_start);
  for (size_t i = 1; i < near->entries.count; i++)
    if (entries[i].reach < entries[i - 1].reach) entries[i].reach = entries[i - 1].reach;
out:
  return status;
}

void treadle_near_release(treadle_near *near) {
  treadle_array_release(&near->entries);
  treadle_array_release(&near->found);
}

treadle_status treadle_near_find(treadle_near *near, const treadle_box *box, size_t below,
                                 const int32_t **found_p, size_t *count_p) {
  treadle_status status = TREADLE_OK;
  size_t count = near->entries.count, low = 0, high = count;
  int64_t end = box->start[0] + box->size[0];
  if (count == 0) { /* few: all of them */
    *count_p = near->found.count < below ? near->found.count : below;
    *found_p = near->found.items;
    return TREADLE_OK;
  }
  while (low < high) { /* the first that reaches into the box */
    size_t middle = low + (high - low) / 2;
    if (near->entries.items[middle].reach <= box->start[0])
      low = middle + 1;
    else
      high = middle;
  }
  bool ascending = true;
  near->found.count = 0;
  for (; low < count && near->entries.items[low].start < end; low++) {
    int32_t piece = near->entries.items[low].piece;
    if ((size_t)piece >= below) continue;
    ascending = ascending && (near->found.count == 0 || near->found.items[near->found.count - 1] < piece);
    TRY(treadle_array_push(&near->found, piece));
  }
  if (!ascending) qsort(near->found.items, near->found.count, sizeof(int32_t), by_number);
out:
  *found_p = near->found.items;
  *count_p = near->found.count;
  return status;
}

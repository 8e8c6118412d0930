/* Pieces by their first axis: sorted by start, each with the largest end of it and all before it. So binary search finds the first
 * and the last piece that may overlap a box. */
#include "layout/piece_index.h"

#include <stdlib.h>

enum { FEW = 32 };

static int by_start(const void *a, const void *b) {
  const treadle_piece_index_entry *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->piece > y->piece) - (x->piece < y->piece);
}

static int by_number(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

treadle_status treadle_piece_index_make(treadle_piece_index *piece_index, const treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  bool sorted = true;
  piece_index->entries.count = piece_index->found.count = 0;
  if (pieces->count <= FEW) {
    for (size_t i = 0; i < pieces->count; i++) TRY(treadle_array_push(&piece_index->found, (int32_t)i));
    goto out;
  }
  for (size_t i = 0; i < pieces->count; i++) {
    const treadle_box *box = &pieces->items[i].box;
    sorted = sorted && (i == 0 || pieces->items[i - 1].box.start[0] <= box->start[0]);
    TRY(treadle_array_push(
        &piece_index->entries,
        ((treadle_piece_index_entry){box->start[0], box->start[0] + box->size[0], (int32_t)i})));
  }
  treadle_piece_index_entry *entries = piece_index->entries.items;
  if (!sorted) qsort(entries, piece_index->entries.count, sizeof *entries, by_start);
  for (size_t i = 1; i < piece_index->entries.count; i++)
    if (entries[i].reach < entries[i - 1].reach) entries[i].reach = entries[i - 1].reach;
out:
  return status;
}

void treadle_piece_index_release(treadle_piece_index *piece_index) {
  treadle_array_release(&piece_index->entries);
  treadle_array_release(&piece_index->found);
}

treadle_status treadle_piece_index_find(treadle_piece_index *piece_index, const treadle_box *box,
                                        size_t below, const int32_t **found_p, size_t *count_p) {
  treadle_status status = TREADLE_OK;
  size_t count = piece_index->entries.count, low = 0, high = count;
  int64_t end = box->start[0] + box->size[0];
  if (count == 0) { /* few: all of them */
    *count_p = piece_index->found.count < below ? piece_index->found.count : below;
    *found_p = piece_index->found.items;
    return TREADLE_OK;
  }
  while (low < high) { /* the first that reaches into the box */
    size_t middle = low + (high - low) / 2;
    if (piece_index->entries.items[middle].reach <= box->start[0])
      low = middle + 1;
    else
      high = middle;
  }
  bool ascending = true;
  piece_index->found.count = 0;
  for (; low < count && piece_index->entries.items[low].start < end; low++) {
    int32_t piece = piece_index->entries.items[low].piece;
    if ((size_t)piece >= below) continue;
    ascending = ascending && (piece_index->found.count == 0 ||
                              piece_index->found.items[piece_index->found.count - 1] < piece);
    TRY(treadle_array_push(&piece_index->found, piece));
  }
  if (!ascending) qsort(piece_index->found.items, piece_index->found.count, sizeof(int32_t), by_number);
out:
  *found_p = piece_index->found.items;
  *count_p = piece_index->found.count;
  return status;
}

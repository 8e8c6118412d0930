/* Ranks of a node: which of them have a cell, and their pieces of a tensor. */
#include "plan/near.h"

#include <stdlib.h>

void treadle_near_init(treadle_near *near, const treadle_nodes *nodes, int64_t rank) {
  *near = (treadle_near){.rank = rank, .from.tensor = -1, .to.tensor = -1};
  if (!nodes || nodes->count < 2) return;
  int32_t node = nodes->of[rank];
  near->nodes = nodes;
  near->ranks = nodes->list + nodes->first[node];
  near->count = treadle_nodes_size(nodes, node);
}

static void release_pieces(treadle_near_pieces *list) {
  treadle_array_release(&list->pieces);
  treadle_array_release(&list->rank);
  treadle_piece_index_release(&list->index);
}

void treadle_near_release(treadle_near *near) {
  release_pieces(&near->from);
  release_pieces(&near->to);
  treadle_array_release(&near->has);
  treadle_array_release(&near->wants);
  treadle_array_release(&near->share);
  treadle_array_release(&near->rest);
  treadle_array_release(&near->spare);
}

/* Puts a seat in its place by rank; a rank that has the cell twice gets its first holder. */
static treadle_status insert(treadle_seats *seats, int32_t rank, int64_t holder) {
  treadle_status status = TREADLE_OK;
  size_t at = seats->count;
  while (at > 0 && seats->items[at - 1].rank > rank) at--;
  if (at > 0 && seats->items[at - 1].rank == rank) return TREADLE_OK;
  TRY(treadle_array_push(seats, ((treadle_seat){rank, holder})));
  for (size_t i = seats->count - 1; i > at; i--) seats->items[i] = seats->items[i - 1];
  seats->items[at] = (treadle_seat){rank, holder};
out:
  return status;
}

/* Holders are asked for their ranks, or ranks whether they are holders, whichever are fewer. */
treadle_status treadle_near_find(const treadle_near *near, const treadle_layout *layout,
                                 const treadle_cell *cell, treadle_seats *seats) {
  treadle_status status = TREADLE_OK;
  const treadle_nodes *nodes = near->nodes;
  seats->count = 0;
  if (cell->holders <= near->count) {
    for (int64_t holder = 0; holder < cell->holders; holder++) {
      int64_t rank = treadle_cell_rank(layout, cell, holder);
      if (nodes->of[rank] == nodes->of[near->rank]) TRY(insert(seats, (int32_t)rank, holder));
    }
    goto out;
  }
  for (int32_t i = 0; i < near->count; i++) {
    int64_t holder = treadle_cell_find(layout, cell, near->ranks[i]);
    if (holder >= 0) TRY(treadle_array_push(seats, ((treadle_seat){near->ranks[i], holder})));
  }
out:
  return status;
}

static int by_offset(const void *a, const void *b) {
  const treadle_piece *x = a, *y = b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

treadle_status treadle_near_list(const treadle_near *near, const treadle_layout *layout, int32_t tensor,
                                 treadle_near_pieces *list) {
  treadle_status status = TREADLE_OK;
  if (list->tensor == tensor) return TREADLE_OK;
  list->pieces.count = list->rank.count = 0;
  list->tensor = -1;
  for (int32_t i = 0; i < near->count; i++) {
    size_t first = list->pieces.count;
    TRY(treadle_layout_pieces_of(layout, near->ranks[i], tensor, &list->pieces));
    size_t count = list->pieces.count - first;
    if (count > 1) qsort(list->pieces.items + first, count, sizeof *list->pieces.items, by_offset);
    for (size_t k = 0; k < count; k++) TRY(treadle_array_push(&list->rank, near->ranks[i]));
  }
  TRY(treadle_piece_index_make(&list->index, &list->pieces));
  list->tensor = tensor;
out:
  return status;
}

/* Explicit pieces: what a rank has, and who has a box. */
#include "layout/explicit.h"

#include <stdio.h>

static const treadle_explicit *explicit_of(const treadle_layout *layout) { return layout->state; }

static treadle_status given_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_explicit *explicit = explicit_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  for (size_t i = explicit->rank_first[at]; i < explicit->rank_first[at + 1]; i++)
    TRY(treadle_array_push(pieces, explicit->by_rank[i].piece));
out:
  return status;
}

static treadle_status given_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                      treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_explicit *explicit = explicit_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  for (size_t i = explicit->tensor_first[tensor]; i < explicit->tensor_first[tensor + 1]; i++)
    if (explicit->by_tensor[i].rank == at) TRY(treadle_array_push(pieces, explicit->by_tensor[i].piece));
out:
  return status;
}

static bool contains(const treadle_box *outer, const treadle_box *inner) {
  treadle_box common;
  return treadle_box_meet(outer, inner, &common) && treadle_box_equal(&common, inner);
}

/* Counts the ranks whose pieces contain the cell, ascending, each once, up to number `holder`, whose piece is
 * *piece_p; all of them when holder is -1. */
static int64_t walk_holders(const treadle_explicit *explicit, const treadle_cell *cell, int64_t holder,
                            const treadle_rank_piece **piece_p) {
  int64_t count = 0, last = -1;
  for (size_t i = explicit->tensor_first[cell->tensor]; i < explicit->tensor_first[cell->tensor + 1]; i++) {
    const treadle_rank_piece *owned = &explicit->by_tensor[i];
    if (owned->rank == last || !contains(&owned->piece.box, &cell->box)) continue;
    last = owned->rank;
    *piece_p = owned;
    if (count++ == holder) break;
  }
  return count;
}

static treadle_status given_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                  treadle_cells *cells) {
  treadle_status status = TREADLE_OK;
  const treadle_explicit *explicit = explicit_of(layout);
  const treadle_borders *edges = &explicit->edges[tensor];
  int32_t first[TREADLE_MAX_AXES], end[TREADLE_MAX_AXES], at[TREADLE_MAX_AXES];
  int axes = layout->model->tensors[tensor].naxes;
  if (explicit->tensor_first[tensor] == explicit->tensor_first[tensor + 1])
    return TREADLE_OK; /* scales of no codes */
  for (int a = 0; a < axes; a++) {
    first[a] = 0;
    while (edges->at[a][first[a] + 1] <= box->start[a]) first[a]++;
    end[a] = first[a];
    while (end[a] + 1 < edges->count[a] && edges->at[a][end[a]] < box->start[a] + box->size[a]) end[a]++;
    at[a] = first[a];
  }
  for (;;) {
    treadle_cell cell = {.tensor = tensor,
                         .dtype = treadle_layout_dtype(layout, &layout->model->tensors[tensor]),
                         .box = treadle_box_whole(&layout->model->tensors[tensor])};
    for (int a = 0; a < axes; a++) {
      cell.box.start[a] = edges->at[a][at[a]];
      cell.box.size[a] = edges->at[a][at[a] + 1] - cell.box.start[a];
    }
    const treadle_rank_piece *piece;
    cell.holders = walk_holders(explicit, &cell, -1, &piece);
    TRY(treadle_array_push(cells, cell));
    int a = axes - 1;
    while (a >= 0 && ++at[a] == end[a]) at[a] = first[a], a--;
    if (a < 0) break;
  }
out:
  return status;
}

static int64_t given_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder) {
  const treadle_rank_piece *piece = NULL;
  walk_holders(explicit_of(layout), cell, holder, &piece);
  return treadle_order_physical(&layout->order, piece->rank);
}

static int64_t given_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  for (int64_t holder = 0; holder < cell->holders; holder++)
    if (given_cell_rank(layout, cell, holder) == rank) return holder;
  return -1;
}

static int64_t given_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                                 const int64_t **stride_p) {
  const treadle_rank_piece *owned = NULL;
  walk_holders(explicit_of(layout), cell, holder, &owned);
  const treadle_piece *piece = &owned->piece;
  int64_t offset = piece->offset;
  for (int a = 0; a < TREADLE_MAX_AXES; a++)
    offset += (cell->box.start[a] - piece->box.start[a]) * piece->stride[a];
  *stride_p = piece->stride;
  return offset;
}

static uint64_t given_placement(const treadle_layout *layout, int32_t tensor) {
  return explicit_of(layout)->placement[tensor];
}

static const treadle_storage *given_storages(const treadle_layout *layout, int64_t rank, int32_t *count_p) {
  const treadle_explicit *explicit = explicit_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  *count_p = explicit->storage_first[at + 1] - explicit->storage_first[at];
  return explicit->storages + explicit->storage_first[at];
}

static int32_t given_public_count(const treadle_layout *layout, int64_t rank) {
  int32_t count;
  given_storages(layout, rank, &count);
  return count;
}

static void given_storage_name(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                               int64_t expert, char *text, size_t capacity) {
  (void)rank, (void)expert;
  const treadle_explicit *explicit = explicit_of(layout);
  snprintf(text, capacity, "%s", explicit->names[storage - explicit->storages]);
}

static int64_t given_window_bytes(const treadle_layout *layout, int64_t rank) {
  return explicit_of(layout)->window_bytes[treadle_order_layout(&layout->order, rank)];
}

static int64_t given_window_bytes_max(const treadle_layout *layout) {
  return explicit_of(layout)->window_bytes_max;
}

static uint64_t given_coordinate(const treadle_layout *layout, int64_t rank) {
  return (uint64_t)treadle_order_layout(&layout->order, rank); /* nobody is known to be alike */
}

static void given_destroy(treadle_layout *layout) {
  treadle_explicit *explicit = layout->state;
  treadle_arena_release(&explicit->arena);
  treadle_free(explicit);
}

const treadle_layout_ops treadle_explicit_ops = {
    .pieces = given_pieces,
    .pieces_of = given_pieces_of,
    .cells = given_cells,
    .cell_rank = given_cell_rank,
    .cell_find = given_cell_find,
    .cell_locate = given_cell_locate,
    .placement = given_placement,
    .storages = given_storages,
    .public_count = given_public_count,
    .storage_name = given_storage_name,
    .window_bytes = given_window_bytes,
    .window_bytes_max = given_window_bytes_max,
    .coordinate = given_coordinate,
    .destroy = given_destroy,
};

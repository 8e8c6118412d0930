/* Where the values of blocks are read: on this rank, on the other ranks of its node, on others. */
#include "plan/block_rows_parts.h"

#include "base/hash.h"

#include <string.h>

enum { MAX_CANDIDATES = 8 };

/* One rank that has all that is wanted; else the first's.
 * If one rank gives all values of a block, they count a byte each, as the codes that it could have made
 * (plan/block_rows.h). So a common holder is worth a search, which looks at a few ranks at the most. */
static int64_t choose_for_all(const treadle_block_row_walk *w, int64_t expert) {
  const treadle_cell *first = &w->wanted.items[0].cell;
  int64_t candidates = treadle_smaller(first->holders, MAX_CANDIDATES);
  for (int64_t k = 0; k < candidates && w->wanted.count > 1; k++) {
    int64_t rank = treadle_block_rows_holder(w, first, expert, k);
    size_t i = 1;
    while (i < w->wanted.count && treadle_cell_find(w->from, &w->wanted.items[i].cell, rank) >= 0) i++;
    if (i == w->wanted.count) return rank;
  }
  return treadle_block_rows_holder(w, first, expert, 0);
}

/* What a rank has of a cell.
 * Its box is the cell, and strides are those at that holder. */
static treadle_piece piece_of(const treadle_layout *from, const treadle_cell *cell, int64_t rank) {
  const int64_t *stride;
  treadle_piece piece = {.tensor = cell->tensor, .dtype = cell->dtype, .add = cell->add, .box = cell->box};
  piece.offset = treadle_cell_locate(from, cell, treadle_cell_find(from, cell, rank), &stride);
  memcpy(piece.stride, stride, sizeof piece.stride);
  return piece;
}

/* What this rank has of a rectangle; the rest goes to w->rest.
 * A piece takes its part out of every box that is left, before the next piece is asked: what two pieces have
 * is taken from the first. */
static treadle_status take_own(treadle_block_row_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  w->rest.count = 0;
  TRY(treadle_block_rows_turn(w, of->expert));
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->rest));
  for (size_t k = 0; k < w->here.count; k++) {
    const treadle_piece *piece = &w->here.items[k];
    for (size_t i = 0; i < w->rest.count; i++) {
      treadle_box part;
      if (treadle_box_meet(&w->rest.items[i], &piece->box, &part)) {
        const treadle_block_row_values own = {part, *piece, w->rank};
        TRY(treadle_array_push(&w->sources, own));
      }
    }
    TRY(treadle_boxes_subtract(&w->rest, &piece->box, &w->spare));
  }
out:
  return status;
}

/* ---- The node ---- */

/* A part that pieces of the node's ranks have, which are in no cell; what they have not goes to w->rest. */
static treadle_status take_pieces(treadle_block_row_walk *w, const treadle_box *part) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = w->near;
  const int32_t *found;
  size_t count;
  near->share.count = 0;
  w->uneven = true;
  TRY(treadle_array_push(&near->share, *part));
  TRY(treadle_near_list(near, w->from, w->tensor, &near->from));
  TRY(treadle_piece_index_find(&near->from.index, part, SIZE_MAX, &found, &count));
  for (size_t k = 0; k < count && near->share.count > 0; k++) {
    const treadle_piece *piece = &near->from.pieces.items[found[k]];
    if (piece->dtype == TREADLE_FP8_E4M3) continue;
    for (size_t i = 0; i < near->share.count; i++) {
      treadle_block_row_values source = {.piece = *piece, .rank = near->from.rank.items[found[k]]};
      if (treadle_box_meet(&near->share.items[i], &piece->box, &source.box))
        TRY(treadle_array_push(&w->sources, source));
    }
    TRY(treadle_boxes_subtract(&near->share, &piece->box, &w->spare));
  }
  for (size_t i = 0; i < near->share.count; i++) TRY(treadle_array_push(&w->rest, near->share.items[i]));
out:
  return status;
}

/* Of a cell, from the rank of the node that was asked last where it has that, too. */
static treadle_status take_cell(treadle_block_row_walk *w, const treadle_cell *cell,
                                const treadle_box *part, int64_t expert, int64_t *last) {
  const treadle_seats *has = &w->near->has;
  uint64_t turn = treadle_hash_more((uint64_t)w->tensor, (uint64_t)w->rank) + (uint64_t)expert;
  int64_t rank = has->items[turn % has->count].rank;
  for (size_t i = 0; i < has->count; i++)
    if (has->items[i].rank == *last) rank = *last;
  *last = rank;
  const treadle_block_row_values source = {*part, piece_of(w->from, cell, rank), rank};
  return treadle_array_push(&w->sources, source);
}

/* What other ranks of the node have of w->rest; what none of them has stays there. */
static treadle_status take_near(treadle_block_row_walk *w, int64_t expert) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = w->near;
  int64_t last = -1;
  near->rest.count = 0;
  for (size_t i = 0; i < w->rest.count; i++) TRY(treadle_array_push(&near->rest, w->rest.items[i]));
  w->rest.count = 0;
  for (size_t i = 0; i < near->rest.count; i++) {
    w->cells.count = 0;
    TRY(treadle_layout_cells(w->from, w->tensor, &near->rest.items[i], &w->cells));
    for (size_t k = 0; k < w->cells.count; k++) {
      const treadle_cell *cell = &w->cells.items[k];
      treadle_box part;
      if (!treadle_box_meet(&near->rest.items[i], &cell->box, &part)) continue;
      TRY(treadle_near_find(near, w->from, cell, &near->has));
      if (near->has.count > 0)
        TRY(take_cell(w, cell, &part, expert, &last));
      else if (!treadle_cell_is_plain(w->from, cell))
        TRY(take_pieces(w, &part));
      else
        TRY(treadle_array_push(&w->rest, part));
    }
  }
out:
  return status;
}

/* ---- Others ---- */

/* What is left, cut by cells of the source layout. The rank that was chosen for all of them is kept while
 * it holds the cell at hand; else another holder follows, which is tried first for the next cell. */
static treadle_status take_others(treadle_block_row_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  w->wanted.count = 0;
  for (size_t i = 0; i < w->rest.count; i++) {
    w->cells.count = 0;
    TRY(treadle_layout_cells(w->from, w->tensor, &w->rest.items[i], &w->cells));
    for (size_t k = 0; k < w->cells.count; k++) {
      treadle_block_row_want wish = {.cell = w->cells.items[k]};
      if (treadle_box_meet(&w->rest.items[i], &wish.cell.box, &wish.box))
        TRY(treadle_array_push(&w->wanted, wish));
    }
  }
  if (w->wanted.count == 0) goto out;
  int64_t rank = choose_for_all(w, of->expert);
  for (size_t i = 0; i < w->wanted.count; i++) {
    const treadle_cell *cell = &w->wanted.items[i].cell;
    if (i > 0 && treadle_cell_find(w->from, cell, rank) < 0)
      rank = treadle_block_rows_holder(w, cell, of->expert, 0);
    const treadle_block_row_values source = {w->wanted.items[i].box, piece_of(w->from, cell, rank), rank};
    TRY(treadle_array_push(&w->sources, source));
  }
out:
  return status;
}

treadle_status treadle_block_rows_find_sources(treadle_block_row_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  w->sources.count = 0;
  w->uneven = false;
  TRY(take_own(w, of));
  if (w->near->nodes && w->rest.count > 0) TRY(take_near(w, of->expert));
  TRY(take_others(w, of));
out:
  return status;
}

/* Finds the sources of all of a matrix, where they are of one rank; else leaves off with the first block
 * row that has two. Turn 0 asks for the first block row, turn 1 for all of the matrix: where there are
 * many sources the first one mostly shows it, at less cost. */
treadle_status treadle_block_rows_find_whole(treadle_block_row_walk *w, const treadle_rectangle *all,
                                             bool *simple_p) {
  treadle_status status = TREADLE_OK;
  treadle_rectangle first = *all;
  first.rows = treadle_smaller(all->rows, w->blocks.high);
  *simple_p = true;
  for (int whole = 0; whole < 2 && *simple_p; whole++) {
    TRY(treadle_block_rows_find_sources(w, whole ? all : &first));
    for (size_t k = 1; k < w->sources.count; k++)
      *simple_p = *simple_p && w->sources.items[k].rank == w->sources.items[0].rank;
    if (all->rows == first.rows) break;
  }
out:
  return status;
}

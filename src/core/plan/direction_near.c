/* Sources on several nodes: first those of this rank's node, and what none of it has enters it once.
 *
 * A box that lies in one cell of each layout has rows. The node's ranks that want it are the holders of its destination cell there: each
 * pulls one share of the rows. So 12 rows that ranks 4, 5 and 6 of a node want, and none of it has, are rows 0-3 for rank 4, 4-7 for rank 5
 * and 8-11 for rank 6, or the same turned round, by tensor. Rank 5 pulls rows 4-7 from ranks of other nodes, and copies rows 0-3 from where
 * rank 4 has put them, rows 8-11 from rank 6. All of a box's rows have the same wave on every rank. So a relay reads in the wave in which its
 * source has pulled.
 *
 * What a rank of the node has of the box, in whatever piece, is read there by all, and is in no share. A copy that is cut in
 * another way than its cell (a tied head) takes no share, but where no holder of the cell is on the node: then its ranks take turns, and
 * each pulls what none before it does. */
#include "plan/direction_parts.h"

#include "base/dtype.h"
#include "base/hash.h"

enum { SHARES_OF_A_PAGE = 64 }; /* a share has so much of a page at least, where there are several */

/* ---- What the node has ---- */

/* Values that are not those of blocks: the same in every piece. */
static bool is_as_good(const treadle_piece *piece, const treadle_cell *cell) {
  return piece->dtype == cell->dtype ||
         (piece->dtype != TREADLE_FP8_E4M3 && cell->dtype != TREADLE_FP8_E4M3);
}

/* Takes from w->rest what pieces of the node's other ranks have, beginning with another piece for each tensor and reader. Holders
 * of the cell are none of them: these are copies that are cut in another way. */
static treadle_status take_near_held(treadle_walk *w, const treadle_cell *cell) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = &w->near;
  const int32_t *found;
  size_t count;
  TRY(treadle_near_list(near, w->from, cell->tensor, &near->from));
  TRY(treadle_piece_index_find(&near->from.index, &cell->box, SIZE_MAX, &found, &count));
  uint64_t begin_at = treadle_hash_more((uint64_t)cell->tensor, (uint64_t)w->rank);
  for (size_t k = 0; k < count && w->rest.count > 0; k++) {
    size_t number = (size_t)found[(begin_at + k) % count];
    const treadle_piece *piece = &near->from.pieces.items[number];
    const treadle_source from = treadle_source_of(piece, near->from.rank.items[number], false);
    if (from.rank == w->rank || !is_as_good(piece, cell)) continue;
    TRY(treadle_walk_take_source(w, &from));
  }
out:
  return status;
}

/* ---- What it wants ---- */

/* Takes from `boxes` what another rank of the node gets, as relays; the rest stays. Where that rank has an element twice it pulls the
 * first. One that it gets in another type is pulled here, too: a value is narrowed once. */
static treadle_status take_relayed(treadle_walk *w, int32_t rank, treadle_boxes *boxes,
                                   const treadle_cell *cell) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = &w->near;
  const int32_t *found;
  size_t count;
  TRY(treadle_near_list(near, w->to, cell->tensor, &near->to));
  TRY(treadle_piece_index_find(&near->to.index, &cell->box, SIZE_MAX, &found, &count));
  for (size_t k = 0; k < count && boxes->count > 0; k++) {
    const treadle_piece *piece = &near->to.pieces.items[found[k]];
    bool any = false;
    if (near->to.rank.items[found[k]] != rank) continue;
    treadle_source from = treadle_source_of(piece, rank, true);
    from.wire = (uint8_t)treadle_dtype_narrower_bytes(cell->dtype, piece->dtype);
    for (size_t i = 0; i < boxes->count; i++) {
      treadle_box part;
      if (!treadle_box_meet(&boxes->items[i], &piece->box, &part)) continue;
      any = true;
      if (piece->dtype == w->piece->dtype)
        TRY(treadle_walk_emit_waves(w, &part, &from));
      else
        TRY(treadle_walk_take_stripes(w, &part, cell, NULL, TREADLE_MAX_STRIPES));
    }
    if (any) TRY(treadle_boxes_subtract(boxes, &piece->box, &w->spare));
  }
out:
  return status;
}

/* The two cells whose common box is at hand. */
typedef struct cell_pair {
  const treadle_cell *from, *to;
} cell_pair;

/* The same of boxes in a cell that each of its holders has in one place. */
static treadle_status relay(treadle_walk *w, const treadle_seat *seat, const treadle_box *box,
                            const cell_pair *cells) {
  const treadle_cell *to = cells->to;
  treadle_source from = {.rank = seat->rank,
                         .twin = true,
                         .wire = (uint8_t)treadle_dtype_narrower_bytes(cells->from->dtype, to->dtype),
                         .dtype = to->dtype,
                         .add = to->add,
                         .box = &to->box};
  from.offset = treadle_cell_locate(w->to, to, seat->holder, &from.stride);
  return treadle_walk_emit_waves(w, box, &from);
}

/* One rank's share of the common box: rows [first, end). */
typedef struct share {
  const treadle_seat *seat;
  int64_t first, end;
  int64_t stripes; /* at the most */
} share;

/* What of w->rest is in a share. */
static treadle_status take_share(treadle_walk *w, const share *of, const cell_pair *cells) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = &w->near;
  bool plain = cells->to->dtype == w->piece->dtype && treadle_cell_is_plain(w->to, cells->to);
  near->share.count = near->rest.count = 0;
  TRY(treadle_box_range(&w->common.box, 0, w->common.last_row_axis, of->first, of->end, &near->share));
  for (size_t i = 0; i < w->rest.count * near->share.count; i++) {
    const treadle_box *rest = &w->rest.items[i / near->share.count];
    treadle_box part;
    if (!treadle_box_meet(rest, &near->share.items[i % near->share.count], &part)) continue;
    if (of->seat->rank == w->rank)
      TRY(treadle_walk_take_stripes(w, &part, cells->from, NULL, of->stripes));
    else if (plain)
      TRY(relay(w, of->seat, &part, cells));
    else
      TRY(treadle_array_push(&near->rest, part));
  }
  if (near->rest.count > 0) TRY(take_relayed(w, of->seat->rank, &near->rest, cells->from));
out:
  return status;
}

/* Where the turn begins among those that share a box: small boxes of one tensor are not all of one rank. */
static uint64_t turn_of(const treadle_walk *w, int32_t tensor) {
  uint64_t turn = treadle_hash_more((uint64_t)tensor, (uint64_t)w->near.nodes->of[w->rank]);
  for (int a = 0; a <= w->common.last_row_axis; a++)
    turn = treadle_hash_more(turn, (uint64_t)w->common.box.start[a]);
  return turn;
}

/* Shares are cut from the common box of the cells, which is the same for all; as many as there are ranks that want it, but none so small
 * that it costs more than it spreads. */
static treadle_status take_shares(treadle_walk *w, const cell_pair *cells) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = &w->near;
  int64_t rows = w->common.rows, least = w->lanes->page_bytes / SHARES_OF_A_PAGE;
  uint64_t n = near->wants.count, turn = turn_of(w, cells->to->tensor);
  int64_t bytes = rows * w->common.row_elems *
                  (int64_t)treadle_dtype_narrower_bytes(cells->from->dtype, cells->to->dtype);
  int64_t shares = bytes / least < (int64_t)n ? bytes / least : (int64_t)n;
  if (shares > rows) shares = rows;
  if (shares < 1) shares = 1;
  int64_t stripes =
      shares < TREADLE_MAX_STRIPES ? TREADLE_MAX_STRIPES / shares : 1; /* shares are stripes, too */
  for (int64_t k = 0; k < shares; k++) {
    const share one = {&near->wants.items[(turn + (uint64_t)k) % n], rows * k / shares,
                       rows * (k + 1) / shares, stripes};
    TRY(take_share(w, &one, cells));
  }
out:
  return status;
}

/* No holder of the destination cell is on the node: this rank's piece is a copy that is cut in another way. */
static treadle_status take_turns(treadle_walk *w, const treadle_cell *cell) {
  treadle_status status = TREADLE_OK;
  const treadle_near *near = &w->near;
  uint64_t turn = turn_of(w, cell->tensor);
  for (int32_t k = 0; k < near->count && w->rest.count > 0; k++) {
    int32_t rank = near->ranks[(turn + (uint64_t)k) % (uint64_t)near->count];
    if (rank == w->rank) break;
    TRY(take_relayed(w, rank, &w->rest, cell));
  }
  for (size_t i = 0; i < w->rest.count; i++)
    TRY(treadle_walk_take_stripes(w, &w->rest.items[i], cell, NULL, TREADLE_MAX_STRIPES));
out:
  return status;
}

treadle_status treadle_walk_take_near(treadle_walk *w, const treadle_cell *from_cell,
                                      const treadle_cell *to_cell) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = &w->near;
  TRY(treadle_near_find(near, w->from, from_cell, &near->has));
  if (near->has.count > 0) {
    for (size_t i = 0; i < w->rest.count; i++)
      TRY(treadle_walk_take_stripes(w, &w->rest.items[i], from_cell, &near->has, TREADLE_MAX_STRIPES));
    goto out;
  }
  if (!treadle_cell_is_plain(w->from, from_cell)) TRY(take_near_held(w, from_cell));
  if (w->rest.count == 0) goto out;
  const cell_pair cells = {from_cell, to_cell};
  if (!near->found) TRY(treadle_near_find(near, w->to, to_cell, &near->wants));
  near->found = true;
  TRY(near->wants.count > 0 ? take_shares(w, &cells) : take_turns(w, from_cell));
out:
  return status;
}

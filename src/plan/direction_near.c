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

#include "base/hash.h"

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
    treadle_source from = {.rank = near->from.rank.items[number],
                           .dtype = piece->dtype,
                           .add = piece->add,
                           .box = &piece->box,
                           .offset = piece->offset,
                           .stride = piece->stride};
    bool any = false;
    if (from.rank == w->rank || !is_as_good(piece, cell)) continue;
    for (size_t i = 0; i < w->rest.count; i++) {
      treadle_box part;
      if (!treadle_box_meet(&w->rest.items[i], &piece->box, &part)) continue;
      TRY(treadle_walk_emit_waves(w, &part, &from));
      any = true;
    }
    if (any) TRY(treadle_boxes_subtract(&w->rest, &piece->box, &w->spare));
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
    treadle_source from = {.rank = rank,
                           .twin = true,
                           .wire = (uint8_t)treadle_dtype_narrower_bytes(cell->dtype, piece->dtype),
                           .dtype = piece->dtype,
                           .add = piece->add,
                           .box = &piece->box,
                           .offset = piece->offset,
                           .stride = piece->stride};
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

/* The part of w->rest in one share, which is that of a rank. */
static treadle_status take_share(treadle_walk *w, const treadle_box *share, int32_t rank,
                                 const treadle_cell *cell) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = &w->near;
  int64_t most = TREADLE_MAX_STRIPES / (int64_t)near->wants.count; /* shares are stripes as well */
  near->rest.count = 0;
  for (size_t i = 0; i < w->rest.count; i++) {
    treadle_box part;
    if (!treadle_box_meet(&w->rest.items[i], share, &part)) continue;
    if (rank == w->rank)
      TRY(treadle_walk_take_stripes(w, &part, cell, NULL, most > 1 ? most : 1));
    else
      TRY(treadle_array_push(&near->rest, part));
  }
  if (near->rest.count > 0) TRY(take_relayed(w, rank, &near->rest, cell));
out:
  return status;
}

/* Shares are cut from the common box of the cells, which is the same for all. */
static treadle_status take_shares(treadle_walk *w, const treadle_cell *cell) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = &w->near;
  const treadle_box *common = &w->common.box;
  int last_axis = treadle_last_row_axis(&w->from->model->tensors[cell->tensor]);
  int64_t rows = 1, n = (int64_t)near->wants.count;
  for (int a = 0; a <= last_axis; a++) rows *= common->size[a];
  uint64_t turn = treadle_hash_more((uint64_t)cell->tensor, (uint64_t)near->nodes->of[w->rank]);
  for (int64_t k = 0; k < n; k++) {
    int32_t rank = near->wants.items[(turn + (uint64_t)k) % (uint64_t)n].rank;
    near->share.count = 0;
    if (rows * k / n == rows * (k + 1) / n) continue;
    TRY(treadle_box_range(common, 0, last_axis, rows * k / n, rows * (k + 1) / n, &near->share));
    for (size_t i = 0; i < near->share.count; i++) TRY(take_share(w, &near->share.items[i], rank, cell));
  }
out:
  return status;
}

/* No holder of the destination cell is on the node: this rank's piece is a copy that is cut in another way. */
static treadle_status take_turns(treadle_walk *w, const treadle_cell *cell) {
  treadle_status status = TREADLE_OK;
  const treadle_near *near = &w->near;
  uint64_t turn = treadle_hash_more((uint64_t)cell->tensor, (uint64_t)near->nodes->of[w->rank]);
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
  TRY(take_near_held(w, from_cell));
  if (w->rest.count == 0) goto out;
  TRY(treadle_near_find(near, w->to, to_cell, &near->wants));
  TRY(near->wants.count > 0 ? take_shares(w, from_cell) : take_turns(w, from_cell));
out:
  return status;
}

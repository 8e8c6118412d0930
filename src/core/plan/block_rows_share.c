/* Values that are made of blocks, over several nodes: ranks of a node that have the same piece share its rows of blocks.
 *
 * What the node has no codes of enters it once, to the rank whose row it is. That one turns it into values, and the others copy these from its
 * window when what came in the wave is there. All find the same shares, by the rows' numbers. */
#include "plan/block_rows_parts.h"

#include "base/hash.h"

/* Is it the first one of its rank with any of these elements? Those behind it are copies within the window, which come last. */
static bool is_first(const treadle_near_pieces *list, size_t number) {
  const treadle_piece *piece = &list->pieces.items[number];
  treadle_box met;
  for (size_t i = 0; i < list->pieces.count; i++)
    if (list->rank.items[i] == list->rank.items[number] && list->pieces.items[i].offset < piece->offset &&
        treadle_box_meet(&list->pieces.items[i].box, &piece->box, &met))
      return false;
  return true;
}

treadle_status treadle_block_rows_find_sharers(treadle_block_row_walk *w, const treadle_piece *piece) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = w->near;
  treadle_box corner = piece->box;
  w->sharers.count = w->cells.count = 0;
  if (!near->nodes || w->codes.count > 0) return TREADLE_OK; /* or they are made of codes of this window */
  for (int a = 0; a < TREADLE_MAX_AXES; a++) corner.size[a] = 1;
  TRY(treadle_layout_cells(w->to, w->tensor, &corner, &w->cells));
  TRY(treadle_near_find(near, w->to, &w->cells.items[0], &near->wants));
  if (near->wants.count < 2) return TREADLE_OK;
  TRY(treadle_near_list(near, w->to, w->tensor, &near->to));
  for (size_t i = 0; i < near->to.pieces.count; i++) {
    const treadle_piece *other = &near->to.pieces.items[i];
    const treadle_block_row_sharer sharer = {near->to.rank.items[i],
                                             near->to.rank.items[i] == w->rank ? NULL : other};
    if (treadle_box_equal(&other->box, &piece->box) && other->dtype == piece->dtype &&
        other->add == piece->add && is_first(&near->to, i))
      TRY(treadle_array_push(&w->sharers, sharer));
  }
out:
  return status;
}

/* Rows of blocks that a piece has in all go to sharers in as many stretches. */
const treadle_block_row_sharer *treadle_block_rows_sharer(const treadle_block_row_walk *w,
                                                          const treadle_piece *piece, int64_t expert,
                                                          int64_t down, int64_t *end_p) {
  int64_t count = (int64_t)w->sharers.count, rows = 1;
  *end_p = w->blocks.down;
  if (count < 2) return NULL;
  for (int a = w->blocks.first_row; a < w->blocks.first_column; a++) rows *= piece->box.size[a];
  int64_t high = w->blocks.high, stretch = ((rows + high - 1) / high + count - 1) / count;
  uint64_t turn = treadle_hash_more((uint64_t)w->tensor, (uint64_t)w->near->nodes->of[w->rank]);
  turn += (uint64_t)expert + (uint64_t)(down / stretch);
  *end_p = treadle_smaller(w->blocks.down, (down / stretch + 1) * stretch);
  const treadle_block_row_sharer *sharer = &w->sharers.items[turn % (uint64_t)count];
  return sharer->piece ? sharer : NULL;
}

treadle_status treadle_block_rows_relay(treadle_block_row_walk *w, const treadle_block_row_sharer *sharer,
                                        const treadle_piece *piece, const treadle_box *box,
                                        const treadle_rectangle *of, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_piece *there = sharer->piece;
  w->boxes.count = 0;
  if (w->sink->of_source) return TREADLE_OK;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->boxes));
  for (size_t i = 0; i < w->boxes.count; i++) {
    treadle_box met;
    if (!treadle_box_meet(&w->boxes.items[i], box, &met)) continue;
    treadle_op op = {.wave = wave,
                     .source = sharer->rank,
                     .twin = true,
                     .wire = 1, /* it came as codes */
                     .from_dtype = (uint8_t)piece->dtype,
                     .to_dtype = (uint8_t)piece->dtype,
                     .tensor = w->tensor,
                     .storage = piece->storage,
                     .from = treadle_box_offset(&met, &there->box, there->stride, there->offset),
                     .to = treadle_box_offset(&met, &piece->box, piece->stride, piece->offset),
                     .elems = treadle_box_elems(&met)};
    treadle_op_set_dims(&op, &met, w->blocks.tensor->naxes, there->stride, piece->stride);
    TRY(treadle_cuts_add(&w->sink->cuts, 1));
    TRY(w->sink->take(w->sink, &op));
  }
out:
  return status;
}

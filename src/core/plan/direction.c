/* Making the ops of one rank in one direction.
 *
 * Each destination piece is cut by the cells of both layouts. The common box of two cells has rows, and rows have waves.
 * Then a source is chosen for each part: a copy that this window has already, else this rank's own memory, else the holders
 * of the cell. Rows are striped over these evenly; the first holder depends on tensor and rank. Who holds a stripe is
 * computed from the cell alone, so a sender can compute its receivers. With several nodes, see near.h.
 *
 * Example: rank 1 of megatron:tp=2 wants rows 4-7 of a matrix [8, 16] that vllm:tp=4 cuts into two rows each. Its piece lies in one
 * cell of its own layout and meets two of the other one, rows 4-5 and rows 6-7. So two boxes are taken, each from the holders of its
 * cell, and each becomes one op for every wave that its rows have.
 *
 * Invariant, proved for every piece: the boxes of its ops tile its box (cover it without overlaps). */
#include "plan/direction_parts.h"

#include "base/dtype.h"

#include <assert.h>
#include <inttypes.h>

/* ---- The step of copies ---- */

static bool takes_all(const treadle_layout *from, const treadle_layout *to, int32_t tensor) {
  (void)from, (void)to, (void)tensor;
  return true;
}

static treadle_making by_copies(const void *self, const treadle_piece *piece) {
  (void)self, (void)piece;
  return TREADLE_MAKING_COPIES;
}

/* By rows of w->common.
 * Rows are those of the common box, row-major over its row axes. Rows [row, end) of one wave are a few
 * boxes, of which only what lies in `box` is taken. A common box of 8 rows in 4 waves, with atoms of 2 rows,
 * and a box with rows 3 to 6: row 3 is of wave 1, rows 4 and 5 of wave 2, row 6 of wave 3. */
static treadle_status cut_rows(void *self, int32_t tensor, const treadle_box *box, treadle_step_emit take,
                               void *context) {
  treadle_status status = TREADLE_OK;
  treadle_walk *w = self;
  const treadle_common *common = &w->common;
  int64_t last[TREADLE_MAX_AXES];
  (void)tensor;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) last[a] = box->start[a] + box->size[a] - 1;
  int64_t row = treadle_common_row(common, box->start), last_row = treadle_common_row(common, last);
  while (row <= last_row) {
    int64_t end;
    int32_t wave = treadle_common_wave(common, w->lanes->waves, row, &end);
    if (end > last_row && row <= treadle_common_row(common, box->start)) { /* all of it in one wave */
      TRY(take(context, box, wave));
      break;
    }
    w->waves.count = 0;
    TRY(treadle_box_range(&common->box, 0, common->last_row_axis, row, end, &w->waves));
    for (size_t i = 0; i < w->waves.count; i++) {
      treadle_box part;
      if (treadle_box_meet(&w->waves.items[i], box, &part)) TRY(take(context, &part, wave));
    }
    row = end;
  }
out:
  return status;
}

static const treadle_step copies_step = {.name = "copies",
                                         .takes = takes_all,
                                         .by_cells = true,
                                         .alone = true,
                                         .cut = cut_rows,
                                         .making = by_copies};

static const treadle_step *const steps[] = {&treadle_block_rows_step, &copies_step};

/* Turns to the step of a tensor. */
static void choose_step(treadle_walk *w, int32_t tensor) {
  void *const selves[] = {&w->block_rows, w};
  size_t i = 0;
  while (!steps[i]->takes(w->from, w->to, tensor)) i++;
  w->step = steps[i];
  w->self = selves[i];
}

/* ---- Pieces ---- */

/* Lanes have the pair in the order of the plan; on the way back the cells change places. */
static treadle_common common_of(const treadle_walk *w, int32_t tensor, const treadle_cell *from,
                                const treadle_cell *to) {
  bool turned = w->from != w->lanes->from;
  return treadle_lanes_common(w->lanes, tensor, turned ? to : from, turned ? from : to);
}

/* What no copy within the window has is the step's to make. */
static treadle_status make_piece(treadle_walk *w, const treadle_piece *piece, treadle_making making) {
  treadle_status status = TREADLE_OK;
  w->rest.count = 0;
  TRY(treadle_array_push(&w->rest, piece->box));
  if (making == TREADLE_MAKING_PIECE)
    TRY(treadle_walk_take_held(w, &piece->box, &w->values, &w->near_values, true));
  TRY(w->step->make_piece(w->self, piece, &w->rest));
out:
  return status;
}

/* Where only what one rank has is wanted: narrows a box to what its pieces span of it. False: they have nothing of it.
 * Rows 0-9, of which pieces have 2-3 and 6-7, become rows 2-7. */
static treadle_status narrow(treadle_walk *w, treadle_box *box, bool *any_p) {
  treadle_status status;
  const treadle_pieces *pieces = w->sink->of_source ? &w->lent : &w->held;
  treadle_piece_index *index = w->sink->of_source ? &w->near_lent : &w->near_held;
  const treadle_box whole = *box;
  const int32_t *found;
  size_t count;
  *any_p = false;
  TRY(treadle_piece_index_find(index, &whole, SIZE_MAX, &found, &count));
  for (size_t k = 0; k < count; k++) {
    treadle_box part;
    if (!treadle_box_meet(&whole, &pieces->items[found[k]].box, &part)) continue;
    for (int a = 0; *any_p && a < TREADLE_MAX_AXES; a++) {
      int64_t end = box->start[a] + box->size[a], part_end = part.start[a] + part.size[a];
      if (box->start[a] < part.start[a]) part.start[a] = box->start[a];
      part.size[a] = (end > part_end ? end : part_end) - part.start[a];
    }
    *box = part;
    *any_p = true;
  }
out:
  return status;
}

/* Bytes alone: what this window or this rank has already, and all else as a sum. Whoever has it, it moves the same bytes, so
 * nobody is asked. */
static treadle_status count_piece(treadle_walk *w, const treadle_piece *piece) {
  treadle_status status = TREADLE_OK;
  int64_t elems = 0;
  treadle_dtype there = treadle_layout_dtype(w->from, &w->from->model->tensors[piece->tensor]);
  w->rest.count = 0;
  TRY(treadle_array_push(&w->rest, piece->box));
  if (w->copies.count > 1) TRY(treadle_walk_take_held(w, &piece->box, &w->copies, &w->near_copies, true));
  TRY(treadle_walk_take_held(w, &piece->box, &w->held, &w->near_held, false));
  TRY(treadle_cuts_add(&w->sink->cuts, w->rest.count));
  for (size_t i = 0; i < w->rest.count; i++) elems += treadle_box_elems(&w->rest.items[i]);
  w->sink->take_sum(w->sink, piece->tensor,
                    elems * (int64_t)treadle_dtype_narrower_bytes(there, piece->dtype),
                    elems * (int64_t)treadle_dtype_bytes(piece->dtype));
out:
  return status;
}

/* Destination cells outside, source cells of each inside: so each box that is taken lies in one cell of
 * each layout, as lanes want it. With own_only boxes are narrowed first, so that cells nobody wants are
 * not asked for. */
static treadle_status take_piece(treadle_walk *w, const treadle_piece *piece) {
  treadle_status status = TREADLE_OK;
  w->piece = piece;
  w->done.count = w->to_cells.count = 0;
  /* No sources are wanted, and waves do not follow from cells: the whole box is cut at once. */
  if (w->sink->no_sources && !w->step->by_cells) {
    const treadle_source none = {.rank = -1, .dtype = piece->dtype, .add = piece->add};
    return treadle_walk_emit_waves(w, &piece->box, &none);
  }
  treadle_making making = w->sink->no_sources ? TREADLE_MAKING_COPIES : w->step->making(w->self, piece);
  bool some = w->sink->own_only || w->sink->of_source;
  if (making != TREADLE_MAKING_COPIES) return make_piece(w, piece, making);
  if (w->sink->counting) return count_piece(w, piece);
  treadle_box held = piece->box;
  bool here = true;
  if (some) TRY(narrow(w, &held, &here));
  if (!here) goto out;
  TRY(treadle_layout_cells(w->to, piece->tensor, &held, &w->to_cells));
  for (size_t i = 0; i < w->to_cells.count; i++) {
    treadle_box wanted;
    if (!treadle_box_meet(&w->to_cells.items[i].box, &piece->box, &wanted)) continue;
    treadle_box looked_at = wanted;
    bool any = true;
    if (some) TRY(narrow(w, &looked_at, &any));
    if (!any) continue;
    w->near.found = false;
    w->from_cells.count = 0;
    TRY(treadle_layout_cells(w->from, piece->tensor, &looked_at, &w->from_cells));
    TRY(treadle_cuts_add(&w->sink->cuts, w->from_cells.count));
    for (size_t k = 0; k < w->from_cells.count; k++) {
      treadle_box box;
      const treadle_cell *cell = &w->from_cells.items[k];
      if (!treadle_box_meet(&wanted, &cell->box, &box)) continue;
      if (w->sink->of_source && treadle_cell_find(w->from, cell, w->sink->source) < 0) continue;
      w->common = common_of(w, piece->tensor, cell, &w->to_cells.items[i]);
      TRY(treadle_walk_take_box(w, &box, cell, &w->to_cells.items[i]));
    }
  }
  if (!w->sink->no_sources && !some && !treadle_box_tiles(&piece->box, w->done.items, w->done.count)) {
    status = treadle_fail(TREADLE_DIFFERENT,
                          "plan: rank %" PRId64 ": the copies of %s do not write every "
                          "element of its piece once",
                          w->rank, w->to->model->tensors[piece->tensor].name);
    goto out;
  }
out:
  return status;
}

/* All pieces of a tensor, which stand in w->copies. */
static treadle_status take_tensor(treadle_walk *w, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  bool made = false;
  w->held.count = w->values.count = 0;
  choose_step(w, tensor);
  if (!w->sink->no_sources) {
    if (w->step->making(w->self, &w->copies.items[0]) == TREADLE_MAKING_ELSEWHERE) return TREADLE_OK;
    if (w->sink->own_only && !w->step->alone) return TREADLE_OK;
    TRY(w->sink->figures ? treadle_layout_bundles_of(w->from, w->rank, tensor, &w->held)
                         : treadle_layout_pieces_of(w->from, w->rank, tensor, &w->held));
    if (w->sink->own_only && w->held.count == 0) return TREADLE_OK;
    if (w->sink->of_source) {
      w->lent.count = 0;
      TRY(treadle_layout_pieces_of(w->from, w->sink->source, tensor, &w->lent));
      TRY(treadle_piece_index_make(&w->near_lent, &w->lent));
    }
    for (size_t i = 0; i < w->copies.count; i++)
      if (w->copies.items[i].dtype != TREADLE_FP8_E4M3)
        TRY(treadle_array_push(&w->values, w->copies.items[i]));
    TRY(treadle_piece_index_make(&w->near_held, &w->held));
    TRY(treadle_piece_index_make(&w->near_copies, &w->copies));
    TRY(treadle_piece_index_make(&w->near_values, &w->values));
  }
  for (size_t i = 0; i < w->copies.count; i++) {
    const treadle_piece *piece = &w->copies.items[i];
    if (w->sink->no_sources || w->step->making(w->self, piece) != TREADLE_MAKING_TENSOR) {
      TRY(take_piece(w, piece));
    } else if (!made) {
      TRY(w->step->make_tensor(w->self, tensor));
      made = true;
    }
  }
out:
  return status;
}

static treadle_status note_wave(void *context, const treadle_box *box, int32_t wave) {
  (void)box;
  *(int32_t *)context = wave;
  return TREADLE_OK;
}

/* The wave of the last element of a piece: a box with rows 4-7 and columns 0-15 is asked for element (7, 15). */
static treadle_status last_wave(treadle_walk *w, const treadle_piece *piece, int32_t *wave_p) {
  treadle_status status = TREADLE_OK;
  treadle_box corner = piece->box;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    corner.start[a] += corner.size[a] - 1;
    corner.size[a] = 1;
  }
  choose_step(w, piece->tensor);
  if (w->step->by_cells) {
    w->to_cells.count = w->from_cells.count = 0;
    TRY(treadle_layout_cells(w->to, piece->tensor, &corner, &w->to_cells));
    TRY(treadle_layout_cells(w->from, piece->tensor, &corner, &w->from_cells));
    assert(w->to_cells.count == 1 && w->from_cells.count == 1);
    w->common = common_of(w, piece->tensor, &w->from_cells.items[0], &w->to_cells.items[0]);
  }
  TRY(w->step->cut(w->self, piece->tensor, &corner, note_wave, wave_p));
out:
  return status;
}

/* A fill takes the wave of the last data before it in the same storage tensor, or the last wave. So padding behind the rows of a
 * vocabulary is written with the last row. */
static treadle_status take_fill(treadle_walk *w, size_t index) {
  treadle_status status = TREADLE_OK;
  const treadle_piece *fill = &w->pieces->items[index], *before = NULL;
  for (size_t i = index; i-- > 0 && w->pieces->items[i].storage == fill->storage;) {
    const treadle_piece *piece = &w->pieces->items[i];
    if (piece->tensor >= 0 && piece->offset < fill->offset && (!before || piece->offset > before->offset))
      before = piece;
  }
  int32_t wave = w->lanes->waves - 1;
  if (before) TRY(last_wave(w, before, &wave));
  treadle_op op = treadle_fill_op(fill);
  op.wave = wave;
  TRY(w->sink->take(w->sink, &op));
out:
  return status;
}

treadle_status treadle_direction_walk(const treadle_lanes *lanes, const treadle_layout *from,
                                      const treadle_layout *to, int64_t rank, treadle_sink *sink) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  TRY(treadle_layout_pieces(to, rank, &pieces));
  TRY(treadle_direction_walk_pieces(lanes, from, to, rank, &pieces, sink));
out:
  treadle_array_release(&pieces);
  return status;
}

/* Tensors of which this rank holds anything, those with fp8 blocks aside: of others nothing is copied
 * within the rank. Experts that lie alike are one piece on both sides. */
treadle_status treadle_direction_walk_own(const treadle_lanes *lanes, const treadle_layout *from,
                                          const treadle_layout *to, int64_t rank, treadle_sink *sink) {
  treadle_status status = TREADLE_OK;
  treadle_pieces held = {0}, pieces = {0};
  sink->own_only = sink->figures = true;
  for (int32_t t = 0; t < to->model->tensor_count; t++) {
    if (treadle_is_in_block_rows(from, to, t)) continue;
    held.count = 0;
    TRY(treadle_layout_bundles_of(from, rank, t, &held));
    if (held.count > 0) TRY(treadle_layout_bundles_of(to, rank, t, &pieces));
  }
  TRY(treadle_direction_walk_pieces(lanes, from, to, rank, &pieces, sink));
out:
  treadle_array_release(&held);
  treadle_array_release(&pieces);
  return status;
}

treadle_status treadle_direction_walk_pieces(const treadle_lanes *lanes, const treadle_layout *from,
                                             const treadle_layout *to, int64_t rank,
                                             const treadle_pieces *pieces, treadle_sink *sink) {
  treadle_status status = TREADLE_OK;
  treadle_walk w = {.lanes = lanes, .from = from, .to = to, .rank = rank, .sink = sink, .pieces = pieces};
  treadle_piece_lists lists = {0};
  sink->cuts = (treadle_cuts){.from = from, .to = to, .rank = rank, .all = sink->cuts.all};
  treadle_near_init(&w.near, sink->nodes, rank);
  treadle_block_row_walk_init(&w.block_rows, lanes, from, to, rank, sink);
  w.block_rows.near = &w.near;
  w.block_rows.lent = &w.lent;
  TRY(treadle_piece_lists_make(pieces, to->model->tensor_count, &lists));
  for (size_t i = 0; i < pieces->count; i++) {
    int32_t tensor = pieces->items[i].tensor;
    /* All pieces of a tensor are taken at the place of its first one, in the order in which they are
     * listed. */
    if (tensor < 0) {
      TRY(take_fill(&w, i));
    } else if (lists.first[tensor] == (int32_t)i) {
      w.copies.count = 0;
      for (int32_t k = (int32_t)i; k >= 0; k = lists.next[k])
        TRY(treadle_array_push(&w.copies, pieces->items[k]));
      TRY(take_tensor(&w, tensor));
    }
  }
out:
  treadle_block_row_walk_release(&w.block_rows);
  treadle_piece_lists_release(&lists);
  treadle_array_release(&w.held);
  treadle_array_release(&w.copies);
  treadle_array_release(&w.values);
  treadle_piece_index_release(&w.near_held);
  treadle_piece_index_release(&w.near_copies);
  treadle_piece_index_release(&w.near_values);
  treadle_array_release(&w.lent);
  treadle_piece_index_release(&w.near_lent);
  treadle_near_release(&w.near);
  treadle_array_release(&w.to_cells);
  treadle_array_release(&w.from_cells);
  treadle_array_release(&w.rest);
  treadle_array_release(&w.spare);
  treadle_array_release(&w.stripe);
  treadle_array_release(&w.waves);
  treadle_array_release(&w.done);
  return status;
}

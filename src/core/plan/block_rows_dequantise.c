/* Block rows of one rank: values dequantised from blocks. */
/* For each rectangle [rows, columns] of a destination piece: block row by block row, in each from left to
 * right, as far as codes and scales of one source reach. Block rows below that are read alike join the
 * run. */
#include "plan/block_rows_parts.h"

#include "base/hash.h"

#include <assert.h>
#include <inttypes.h>

/* Blocks of a row of blocks may be on as many ranks as the columns are cut into, row by row the same ones. Of replicas
 * each expert has another: what is kept of a rank is cheap to make, and there is an end to it. */
enum { MAX_LENDERS = 64 };

/* Where the codes of an element are read: in this window, on this rank, or on another. */
typedef struct code_source {
  int64_t rank;
  bool twin;
  const treadle_placed_rectangle *codes, *scales;
  int64_t row_end, column_end; /* from there on a rank of this node may have them, which this one is not */
} code_source;

/* ---- Other ranks ---- */

/* What a rank that was asked before has of an expert. */
static treadle_status turn_to_expert(const treadle_block_row_walk *w, treadle_block_row_source *lender,
                                     int64_t expert) {
  treadle_status status = TREADLE_OK;
  if (lender->expert == expert) return TREADLE_OK;
  const treadle_blocks of_scales = treadle_blocks_of(w->from->model, w->blocks.tensor->scale);
  lender->expert = -1;
  TRY(treadle_blocks_places(&w->blocks, &lender->codes_held, expert, true, &lender->codes));
  TRY(treadle_blocks_places(&of_scales, &lender->scales_held, expert, false, &lender->scales));
  lender->expert = expert;
out:
  return status;
}

/* Turns to a rank, and to what it has of an expert.
 * Lenders are a circle: the search begins behind the one asked last, and the one met longest ago is given
 * up. */
static treadle_status turn_to_lender(treadle_block_row_walk *w, int64_t rank, int64_t expert) {
  treadle_status status = TREADLE_OK;
  size_t count = w->lenders.all.count;
  for (size_t i = 1; i <= count; i++) {
    size_t at = (w->lenders.last + i) % count; /* mostly the one that came next the last time */
    if (w->lenders.all.items[at].rank != rank) continue;
    w->lenders.last = at;
    return turn_to_expert(w, &w->lenders.all.items[at], expert);
  }
  if (count < MAX_LENDERS && w->lenders.next == count)
    TRY(treadle_array_push(&w->lenders.all, (treadle_block_row_source){.rank = -1}));
  treadle_block_row_source *lender = &w->lenders.all.items[w->lenders.next];
  w->lenders.last = w->lenders.next;
  w->lenders.next = (w->lenders.next + 1) % MAX_LENDERS;
  /* Nobody's until all of it is there, so that a failure leaves none that is half made. */
  lender->rank = lender->expert = -1;
  lender->codes_held.count = lender->scales_held.count = 0;
  TRY(treadle_layout_pieces_of(w->from, rank, w->tensor, &lender->codes_held));
  TRY(treadle_layout_pieces_of(w->from, rank, w->blocks.tensor->scale, &lender->scales_held));
  TRY(turn_to_expert(w, lender, expert));
  lender->rank = rank;
out:
  return status;
}

static bool has_lender(const treadle_block_row_walk *w) {
  return w->lenders.all.count > 0 && w->lenders.all.items[w->lenders.last].rank >= 0;
}

/* The codes of an element on the rank that was asked last, NULL: none there. */
static treadle_status ask_lender(treadle_block_row_walk *w, int64_t expert, int64_t row, int64_t column,
                                 code_source *source_p) {
  treadle_status status = TREADLE_OK;
  treadle_block_row_source *lender = &w->lenders.all.items[w->lenders.last];
  TRY(turn_to_expert(w, lender, expert));
  *source_p = (code_source){.rank = lender->rank, .row_end = INT64_MAX, .column_end = INT64_MAX};
  source_p->codes = treadle_placed_find(&lender->codes, expert, row, column);
  source_p->scales =
      treadle_placed_find(&lender->scales, expert, row / w->blocks.high, column / w->blocks.wide);
out:
  return status;
}

/* ---- Block rows ---- */

/* Rows and columns of the cell, where they are one axis each. */
static void end_with(const treadle_block_row_walk *w, const treadle_cell *cell, code_source *source) {
  const treadle_blocks *b = &w->blocks;
  source->row_end = source->column_end = 0; /* unknown */
  if (treadle_block_rows_plain(b))
    source->row_end = cell->box.start[b->first_row] + cell->box.size[b->first_row];
  if (b->tensor->naxes - b->first_column == 1)
    source->column_end = cell->box.start[b->first_column] + cell->box.size[b->first_column];
}

/* Over nodes: a rank of this node, else the one that was asked last, else another holder. */
static treadle_status ask_near(treadle_block_row_walk *w, const treadle_cell *cell, int64_t expert,
                               int64_t row, int64_t column, code_source *source_p) {
  treadle_status status = TREADLE_OK;
  treadle_near *near = w->near;
  uint64_t turn = treadle_hash_more((uint64_t)w->tensor, (uint64_t)w->rank) + (uint64_t)expert;
  source_p->codes = NULL;
  TRY(treadle_near_find(near, w->from, cell, &near->has));
  if (near->has.count > 0) {
    int64_t rank = near->has.items[turn % near->has.count].rank;
    for (size_t i = 0; i < near->has.count; i++)
      if (has_lender(w) && near->has.items[i].rank == w->lenders.all.items[w->lenders.last].rank)
        rank = near->has.items[i].rank;
    TRY(turn_to_lender(w, rank, expert));
    return ask_lender(w, expert, row, column, source_p);
  }
  if (has_lender(w)) TRY(ask_lender(w, expert, row, column, source_p));
  if (!source_p->codes) {
    TRY(turn_to_lender(w, treadle_block_rows_holder(w, cell, expert, 0), expert));
    TRY(ask_lender(w, expert, row, column, source_p));
  }
  end_with(w, cell, source_p);
out:
  return status;
}

/* In the order of their cost: codes that this window has or gets, those of this rank, those of the rank
 * that was asked last, those of a holder of the element's cell. So neighbouring elements are read from one
 * rank where that has them. */
static treadle_status find_source(treadle_block_row_walk *w, int64_t expert, int64_t row, int64_t column,
                                  code_source *source_p) {
  treadle_status status = TREADLE_OK;
  int64_t down = row / w->blocks.high, across = column / w->blocks.wide;
  *source_p = (code_source){.rank = w->rank, .twin = true, .row_end = INT64_MAX, .column_end = INT64_MAX};
  source_p->codes = treadle_placed_find(&w->codes, expert, row, column);
  source_p->scales = treadle_placed_find(&w->scales, expert, down, across);
  if (source_p->codes) return TREADLE_OK;
  *source_p = (code_source){.rank = w->rank, .row_end = INT64_MAX, .column_end = INT64_MAX};
  source_p->codes = treadle_placed_find(&w->own_codes, expert, row, column);
  source_p->scales = treadle_placed_find(&w->own_scales, expert, down, across);
  if (source_p->codes) return TREADLE_OK;
  if (has_lender(w) && !w->near->nodes) TRY(ask_lender(w, expert, row, column, source_p));
  if (source_p->codes) return TREADLE_OK;
  const treadle_rectangle point = {expert, row, 1, column, 1};
  w->boxes.count = w->cells.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, &point, &w->boxes));
  TRY(treadle_layout_cells(w->from, w->tensor, &w->boxes.items[0], &w->cells));
  assert(w->cells.count == 1);
  if (w->near->nodes) {
    TRY(ask_near(w, &w->cells.items[0], expert, row, column, source_p));
  } else {
    TRY(turn_to_lender(w, treadle_block_rows_holder(w, &w->cells.items[0], expert, 0), expert));
    TRY(ask_lender(w, expert, row, column, source_p));
  }
  if (!source_p->codes)
    status =
        treadle_fail(TREADLE_DIFFERENT, "plan: rank %" PRId64 ": rank %" PRId64 " has no codes of %s there",
                     w->rank, source_p->rank, treadle_block_rows_name(w));
out:
  return status;
}

/* Lowers *end_p to where codes of the expert begin.
 * From there on a nearer source may serve. */
static void end_at(const treadle_placed_rectangles *codes, const treadle_rectangle *of, int64_t *end_p) {
  size_t i, end = treadle_placed_of(codes, of->expert, &i);
  for (; i < end; i++)
    if (codes->items[i].of.row > of->row) *end_p = treadle_smaller(*end_p, codes->items[i].of.row);
}

/* How many block rows from this one on, up to row `end`, have these columns on the same source, one step
 * further each. Nothing is nearer than this window's own codes, and nothing but these is nearer than this
 * rank's. */
static int64_t alike_block_rows(const treadle_block_row_walk *w, const treadle_block_row_columns *columns,
                                int64_t end) {
  const treadle_blocks *b = &w->blocks;
  const treadle_rectangle *of = &columns->of;
  int64_t down = of->row / b->high;
  if (!treadle_block_rows_plain(b) || of->rows < b->high) return 1;
  end = treadle_smaller(end, columns->codes.of.row + columns->codes.of.rows);
  end = treadle_smaller(end, (columns->scales.of.row + columns->scales.of.rows) * b->high);
  if (!columns->twin) end_at(&w->codes, of, &end);
  if (columns->rank != w->rank) end_at(&w->own_codes, of, &end);
  end = treadle_smaller(end, columns->row_end);
  return end / b->high > down ? end / b->high - down : 1;
}

/* A block row, and those that follow it, from one source.
 * Scratch is [of->rows, of->columns]; each part is where a box of it meets the box that is wanted. */
static treadle_status dequantise_columns(treadle_block_row_walk *w, const treadle_piece *piece,
                                         const treadle_box *box, const treadle_block_row_columns *columns,
                                         int32_t wave, int32_t count) {
  treadle_status status = TREADLE_OK;
  const treadle_rectangle *of = &columns->of;
  w->parts.count = w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->boxes));
  for (size_t i = 0; i < w->boxes.count; i++) {
    treadle_box met;
    if (!treadle_box_meet(&w->boxes.items[i], box, &met)) continue;
    treadle_block_row_part part = treadle_block_rows_part(w, of, &met, piece, piece->dtype, false);
    part.op.source = (int32_t)columns->rank;
    part.op.twin = columns->twin;
    part.op.add = piece->add;
    part.op.storage = piece->storage;
    if (treadle_block_rows_plain(&w->blocks))
      part.step = w->blocks.high * piece->stride[w->blocks.first_row];
    if (columns->rank != w->rank) part.moved = part.op.elems;
    TRY(treadle_array_push(&w->parts, part));
  }
  if (columns->rank != w->rank) {
    int64_t down = of->row / w->blocks.high;
    /* The scale of a block counts once for the tensor. find_columns has seen to it that each of the
     * `count` block rows has as many fresh ones as the first; the first part carries them. */
    int64_t fresh =
        treadle_scale_set_fresh(&w->scale_set, &w->blocks, of->expert, down, of->column, of->columns);
    w->parts.items[0].moved += fresh * (int64_t)sizeof(float);
    for (int32_t i = 0; i < count; i++)
      treadle_scale_set_add(&w->scale_set, &w->blocks, of->expert, down + i, of->column, of->columns);
  }
  treadle_block_row block_row = treadle_block_rows_add(w, of, &columns->codes, &columns->scales);
  block_row.wave = wave;
  block_row.count = count;
  block_row.storage = piece->storage;
  block_row.twin = columns->twin;
  block_row.value_dtype = (uint8_t)piece->dtype;
  block_row.parts = (int64_t)w->parts.count;
  TRY(treadle_cuts_add(&w->sink->cuts, TREADLE_CUTS_OF_BLOCK_ROW + w->parts.count));
  TRY(w->sink->take_block_row(w->sink, &block_row, w->parts.items));
out:
  return status;
}

/* Appends the columns of a block row by where they are read; *count_p: this many block rows from this one on, up to row `end_row`, are
 * read alike. */
static treadle_status find_columns(treadle_block_row_walk *w, const treadle_rectangle *block_row,
                                   int64_t end_row, int64_t *count_p) {
  treadle_status status = TREADLE_OK;
  int64_t wide = w->blocks.wide, end = block_row->column + block_row->columns;
  *count_p = INT32_MAX;
  for (treadle_block_row_columns next = {.of = *block_row}; next.of.column < end;
       next.of.column += next.of.columns) {
    code_source source;
    treadle_rectangle *of = &next.of;
    TRY(find_source(w, of->expert, of->row, of->column, &source));
    if (!source.scales) {
      status = treadle_fail(TREADLE_DIFFERENT,
                            "plan: rank %" PRId64 ": rank %" PRId64
                            " has codes of %s without the scale of their block",
                            w->rank, source.rank, treadle_block_rows_name(w));
      goto out;
    }
    assert(source.codes->column_stride == 1);
    /* Codes may end inside of the block row: then it has fewer rows here, and the caller takes the rest.
     * Scales count blocks: their last column ends at (column + columns) * wide of the weight. */
    const treadle_rectangle *there = &source.codes->of, *scales = &source.scales->of;
    of->rows = treadle_smaller(block_row->rows, there->row + there->rows - of->row);
    if (source.row_end > of->row) of->rows = treadle_smaller(of->rows, source.row_end - of->row);
    of->columns = treadle_smaller(end, there->column + there->columns);
    of->columns = treadle_smaller(of->columns, (scales->column + scales->columns) * wide);
    if (source.column_end > of->column) of->columns = treadle_smaller(of->columns, source.column_end);
    of->columns -= of->column;
    next.row_end = source.row_end;
    next.rank = source.rank;
    next.twin = source.twin;
    next.codes = *source.codes;
    next.scales = *source.scales;
    *count_p = treadle_smaller(*count_p, alike_block_rows(w, &next, end_row));
    TRY(treadle_array_push(&w->columns, next));
  }
  int64_t down = block_row->row / w->blocks.high, signatures = 1; /* so that they count alike, too */
  while (signatures < *count_p &&
         treadle_scale_set_equal(&w->scale_set, &w->blocks, block_row->expert, down, down + signatures,
                                 block_row->column, block_row->columns))
    signatures++;
  *count_p = signatures;
out:
  return status;
}

/* The block rows from this one on, up to row `end`, that are alike; *row_p is the row after them.
 * w->columns is a stack: [first, end) is of this call, what is below goes behind it and is gone when it is
 * done. The items are copied, since the array may move meanwhile. */
static treadle_status dequantise_block_rows(treadle_block_row_walk *w, const treadle_piece *piece,
                                            const treadle_box *box, const treadle_rectangle *block_row,
                                            int64_t end_row, int64_t *row_p) {
  treadle_status status = TREADLE_OK;
  int64_t wave_end, share_end, count, after;
  int32_t wave;
  size_t first = w->columns.count; /* those before are of the block row that this one is the rest of */
  TRY(treadle_block_rows_wave(w, block_row->expert, block_row->row / w->blocks.high, &wave, &wave_end));
  const treadle_block_row_sharer *sharer =
      treadle_block_rows_sharer(w, piece, block_row->expert, block_row->row / w->blocks.high, &share_end);
  wave_end = treadle_smaller(wave_end, share_end);
  TRY(find_columns(w, block_row, treadle_smaller(end_row, wave_end * w->blocks.high), &count));
  for (size_t i = first, end = w->columns.count; i < end; i++) {
    const treadle_block_row_columns columns = w->columns.items[i];
    const treadle_rectangle *of = &columns.of;
    if (sharer && w->near->nodes->of[columns.rank] != w->near->nodes->of[w->rank]) {
      treadle_rectangle all = *of;
      all.rows += (count - 1) * w->blocks.high;
      TRY(treadle_block_rows_relay(w, sharer, piece, box, &all, wave));
    } else {
      TRY(dequantise_columns(w, piece, box, &columns, wave, (int32_t)count));
    }
    const treadle_rectangle below = {of->expert, of->row + of->rows, block_row->rows - of->rows, of->column,
                                     of->columns};
    if (below.rows > 0) /* of a block that is on several ranks, the rest */
      TRY(dequantise_block_rows(w, piece, box, &below, end_row, &after));
  }
  *row_p = block_row->row + block_row->rows + (count - 1) * w->blocks.high;
  w->columns.count = first;
out:
  return status;
}

treadle_status treadle_block_rows_dequantise(treadle_block_row_walk *w, const treadle_piece *piece,
                                             const treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_placed_rectangles places = {0};
  TRY(treadle_block_rows_start_sources(w, piece->tensor));
  TRY(treadle_block_rows_find_sharers(w, piece));
  if (w->blocks.high > TREADLE_BLOCK_ROW_SIDE || w->blocks.wide > TREADLE_BLOCK_ROW_SIDE)
    return treadle_fail(TREADLE_REFUSED,
                        "plan: %s has fp8 blocks of %" PRId64 " x %" PRId64 "; %d x %d at the most",
                        treadle_block_rows_name(w), w->blocks.high, w->blocks.wide, TREADLE_BLOCK_ROW_SIDE,
                        TREADLE_BLOCK_ROW_SIDE);
  for (size_t i = 0; i < boxes->count; i++) {
    treadle_piece part = *piece; /* only its rectangles are asked for */
    part.box = boxes->items[i];
    places.count = 0;
    TRY(treadle_blocks_placed(&w->blocks, &part, &places));
    for (size_t k = 0; k < places.count; k++) {
      const treadle_rectangle *of = &places.items[k].of;
      int64_t high = w->blocks.high, end = of->row + of->rows;
      for (int64_t row = of->row; row < end;) {
        treadle_rectangle block_row = *of;
        block_row.row = row;
        /* Up to the next border of blocks: rows [100, 300) in blocks of 128 are [100, 128), [128, 256),
         * [256, 300). */
        block_row.rows = treadle_smaller(end, (row / high + 1) * high) - row;
        TRY(dequantise_block_rows(w, piece, &boxes->items[i], &block_row, end, &row));
      }
    }
  }
out:
  treadle_array_release(&places);
  return status;
}

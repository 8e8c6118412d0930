/* Bands of one rank: values that are taken out of blocks. */
#include "plan/bands_parts.h"

#include <assert.h>
#include <inttypes.h>

/* Blocks of a row of blocks may be on as many ranks as the columns are cut into, row by row the same ones. Of replicas
 * each expert has another: what is kept of a rank is cheap to make, and there is an end to it. */
enum { MAX_LENDERS = 64 };

/* Where the codes of an element are read: in this window, on this rank, or on another. */
typedef struct code_source {
  int64_t rank;
  bool twin;
  const treadle_spot *codes, *scales;
} code_source;

/* ---- Other ranks ---- */

/* What a rank that was asked before has of an expert. */
static treadle_status turn_to_expert(const treadle_band_walk *w, treadle_band_lender *lender,
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

/* Turns to a rank, and to what it has of an expert. */
static treadle_status turn_to_lender(treadle_band_walk *w, int64_t rank, int64_t expert) {
  treadle_status status = TREADLE_OK;
  size_t count = w->lenders.count;
  for (size_t i = 1; i <= count; i++) {
    size_t at = (w->lender + i) % count; /* mostly the one that came next the last time */
    if (w->lenders.items[at].rank != rank) continue;
    w->lender = at;
    return turn_to_expert(w, &w->lenders.items[at], expert);
  }
  if (count < MAX_LENDERS && w->next_lender == count)
    TRY(treadle_array_push(&w->lenders, (treadle_band_lender){.rank = -1}));
  treadle_band_lender *lender = &w->lenders.items[w->next_lender];
  w->lender = w->next_lender;
  w->next_lender = (w->next_lender + 1) % MAX_LENDERS;
  lender->rank = lender->expert = -1;
  lender->codes_held.count = lender->scales_held.count = 0;
  TRY(treadle_layout_pieces_of(w->from, rank, w->tensor, &lender->codes_held));
  TRY(treadle_layout_pieces_of(w->from, rank, w->blocks.tensor->scale, &lender->scales_held));
  TRY(turn_to_expert(w, lender, expert));
  lender->rank = rank;
out:
  return status;
}

static bool has_lender(const treadle_band_walk *w) {
  return w->lenders.count > 0 && w->lenders.items[w->lender].rank >= 0;
}

/* The codes of an element on the rank that was asked last, NULL: none there. */
static treadle_status ask_lender(treadle_band_walk *w, int64_t expert, int64_t row, int64_t column,
                                 code_source *source_p) {
  treadle_status status = TREADLE_OK;
  treadle_band_lender *lender = &w->lenders.items[w->lender];
  TRY(turn_to_expert(w, lender, expert));
  *source_p = (code_source){.rank = lender->rank};
  source_p->codes = treadle_spots_find(&lender->codes, expert, row, column);
  source_p->scales =
      treadle_spots_find(&lender->scales, expert, row / w->blocks.high, column / w->blocks.wide);
out:
  return status;
}

/* ---- Bands ---- */

static treadle_status find_source(treadle_band_walk *w, int64_t expert, int64_t row, int64_t column,
                                  code_source *source_p) {
  treadle_status status = TREADLE_OK;
  int64_t down = row / w->blocks.high, across = column / w->blocks.wide;
  *source_p = (code_source){.rank = w->rank, .twin = true};
  source_p->codes = treadle_spots_find(&w->codes, expert, row, column);
  source_p->scales = treadle_spots_find(&w->scales, expert, down, across);
  if (source_p->codes) return TREADLE_OK;
  *source_p = (code_source){.rank = w->rank};
  source_p->codes = treadle_spots_find(&w->own_codes, expert, row, column);
  source_p->scales = treadle_spots_find(&w->own_scales, expert, down, across);
  if (source_p->codes) return TREADLE_OK;
  if (has_lender(w)) TRY(ask_lender(w, expert, row, column, source_p));
  if (source_p->codes) return TREADLE_OK;
  const treadle_rectangle point = {expert, row, 1, column, 1};
  w->boxes.count = w->cells.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, &point, &w->boxes));
  TRY(treadle_layout_cells(w->from, w->tensor, &w->boxes.items[0], &w->cells));
  assert(w->cells.count == 1);
  int64_t rank = treadle_bands_holder(w, &w->cells.items[0], expert, 0);
  TRY(turn_to_lender(w, rank, expert));
  TRY(ask_lender(w, expert, row, column, source_p));
  if (!source_p->codes)
    status =
        treadle_fail(TREADLE_DIFFERENT, "plan: rank %" PRId64 ": rank %" PRId64 " has no codes of %s there",
                     w->rank, rank, treadle_bands_name(w));
out:
  return status;
}

/* Lowers *end_p to where codes of the expert begin. */
static void end_at(const treadle_spots *codes, const treadle_rectangle *of, int64_t *end_p) {
  size_t i, end = treadle_spots_of(codes, of->expert, &i);
  for (; i < end; i++)
    if (codes->items[i].of.row > of->row) *end_p = treadle_smaller(*end_p, codes->items[i].of.row);
}

/* How many bands from this one on, up to row `end`, have these columns on the same source, one step further each. */
static int64_t alike_bands(const treadle_band_walk *w, const treadle_band_columns *columns, int64_t end) {
  const treadle_blocks *b = &w->blocks;
  const treadle_rectangle *of = &columns->of;
  int64_t down = of->row / b->high;
  if (!treadle_bands_plain(b) || of->rows < b->high) return 1;
  end = treadle_smaller(end, columns->codes.of.row + columns->codes.of.rows);
  end = treadle_smaller(end, (columns->scales.of.row + columns->scales.of.rows) * b->high);
  if (!columns->twin) end_at(&w->codes, of, &end);
  if (columns->rank != w->rank) end_at(&w->own_codes, of, &end);
  return end / b->high > down ? end / b->high - down : 1;
}

/* A band, and those that follow it, from one source. */
static treadle_status dequantise_columns(treadle_band_walk *w, const treadle_piece *piece,
                                         const treadle_box *box, const treadle_band_columns *columns,
                                         int32_t wave, int32_t count) {
  treadle_status status = TREADLE_OK;
  const treadle_rectangle *of = &columns->of;
  w->parts.count = w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->boxes));
  for (size_t i = 0; i < w->boxes.count; i++) {
    treadle_box met;
    if (!treadle_box_meet(&w->boxes.items[i], box, &met)) continue;
    treadle_band_part part = treadle_bands_part(w, of, &met, piece, piece->dtype, false);
    part.op.source = (int32_t)columns->rank;
    part.op.twin = columns->twin;
    part.op.add = piece->add;
    part.op.storage = piece->storage;
    if (treadle_bands_plain(&w->blocks)) part.step = w->blocks.high * piece->stride[w->blocks.first_row];
    if (columns->rank != w->rank) part.moved = part.op.elems;
    TRY(treadle_array_push(&w->parts, part));
  }
  if (columns->rank != w->rank) {
    int64_t down = of->row / w->blocks.high;
    int64_t fresh = treadle_seen_fresh(&w->seen, &w->blocks, of->expert, down, of->column, of->columns);
    w->parts.items[0].moved += fresh * (int64_t)sizeof(float);
    for (int32_t i = 0; i < count; i++)
      treadle_seen_add(&w->seen, &w->blocks, of->expert, down + i, of->column, of->columns);
  }
  treadle_band band = treadle_bands_band(w, of, &columns->codes, &columns->scales);
  band.wave = wave;
  band.count = count;
  band.storage = piece->storage;
  band.twin = columns->twin;
  band.value_dtype = (uint8_t)piece->dtype;
  band.parts = (int64_t)w->parts.count;
  TRY(treadle_cuts_add(&w->sink->cuts, TREADLE_CUTS_OF_BAND + w->parts.count));
  TRY(w->sink->take_band(w->sink, &band, w->parts.items));
out:
  return status;
}

/* Appends the columns of a band by where they are read; *count_p: so many bands from this one on, up to row `end_row`, are
 * read alike. */
static treadle_status find_columns(treadle_band_walk *w, const treadle_rectangle *band, int64_t end_row,
                                   int64_t *count_p) {
  treadle_status status = TREADLE_OK;
  int64_t wide = w->blocks.wide, end = band->column + band->columns;
  *count_p = INT32_MAX;
  for (treadle_band_columns next = {.of = *band}; next.of.column < end; next.of.column += next.of.columns) {
    code_source source;
    treadle_rectangle *of = &next.of;
    TRY(find_source(w, of->expert, of->row, of->column, &source));
    if (!source.scales) {
      status = treadle_fail(TREADLE_DIFFERENT,
                            "plan: rank %" PRId64 ": rank %" PRId64
                            " has codes of %s without the scale of their block",
                            w->rank, source.rank, treadle_bands_name(w));
      goto out;
    }
    assert(source.codes->column_stride == 1);
    const treadle_rectangle *there = &source.codes->of, *scales = &source.scales->of;
    of->rows = treadle_smaller(band->rows, there->row + there->rows - of->row);
    of->columns = treadle_smaller(end, there->column + there->columns);
    of->columns = treadle_smaller(of->columns, (scales->column + scales->columns) * wide) - of->column;
    next.rank = source.rank;
    next.twin = source.twin;
    next.codes = *source.codes;
    next.scales = *source.scales;
    *count_p = treadle_smaller(*count_p, alike_bands(w, &next, end_row));
    TRY(treadle_array_push(&w->columns, next));
  }
  int64_t down = band->row / w->blocks.high, alike = 1; /* so that they count alike, too */
  while (alike < *count_p && treadle_seen_alike(&w->seen, &w->blocks, band->expert, down, down + alike,
                                                band->column, band->columns))
    alike++;
  *count_p = alike;
out:
  return status;
}

/* The bands from this one on, up to row `end`, that are alike; *row_p is the row after them. */
static treadle_status dequantise_bands(treadle_band_walk *w, const treadle_piece *piece,
                                       const treadle_box *box, const treadle_rectangle *band,
                                       int64_t end_row, int64_t *row_p) {
  treadle_status status = TREADLE_OK;
  int64_t wave_end, count, after;
  int32_t wave;
  size_t first = w->columns.count; /* those before are of the band that this one is the rest of */
  TRY(treadle_bands_wave(w, band->expert, band->row / w->blocks.high, &wave, &wave_end));
  TRY(find_columns(w, band, treadle_smaller(end_row, wave_end * w->blocks.high), &count));
  for (size_t i = first, end = w->columns.count; i < end; i++) {
    const treadle_band_columns columns = w->columns.items[i];
    const treadle_rectangle *of = &columns.of;
    TRY(dequantise_columns(w, piece, box, &columns, wave, (int32_t)count));
    const treadle_rectangle below = {of->expert, of->row + of->rows, band->rows - of->rows, of->column,
                                     of->columns};
    if (below.rows > 0) /* of a block that is on several ranks, the rest */
      TRY(dequantise_bands(w, piece, box, &below, end_row, &after));
  }
  *row_p = band->row + band->rows + (count - 1) * w->blocks.high;
  w->columns.count = first;
out:
  return status;
}

treadle_status treadle_bands_dequantise(treadle_band_walk *w, const treadle_piece *piece,
                                        const treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_spots places = {0};
  TRY(treadle_bands_start_sources(w, piece->tensor));
  if (w->blocks.high > TREADLE_BAND_BLOCK || w->blocks.wide > TREADLE_BAND_BLOCK)
    return treadle_fail(
        TREADLE_REFUSED, "plan: %s has fp8 blocks of %" PRId64 " x %" PRId64 "; %d x %d at the most",
        treadle_bands_name(w), w->blocks.high, w->blocks.wide, TREADLE_BAND_BLOCK, TREADLE_BAND_BLOCK);
  for (size_t i = 0; i < boxes->count; i++) {
    treadle_piece part = *piece; /* only its rectangles are asked for */
    part.box = boxes->items[i];
    places.count = 0;
    TRY(treadle_blocks_spots(&w->blocks, &part, &places));
    for (size_t k = 0; k < places.count; k++) {
      const treadle_rectangle *of = &places.items[k].of;
      int64_t high = w->blocks.high, end = of->row + of->rows;
      for (int64_t row = of->row; row < end;) {
        treadle_rectangle band = *of;
        band.row = row;
        band.rows = treadle_smaller(end, (row / high + 1) * high) - row;
        TRY(dequantise_bands(w, piece, &boxes->items[i], &band, end, &row));
      }
    }
  }
out:
  treadle_array_release(&places);
  return status;
}

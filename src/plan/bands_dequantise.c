/* Bands of one rank: values that are taken out of blocks. */
#include "plan/bands_parts.h"

#include <assert.h>
#include <inttypes.h>

/* Where the codes of an element are read: in this window, on this rank, or on another. */
typedef struct code_source {
  int64_t rank;
  bool twin;
  const treadle_spot *codes;
  const treadle_spots *scales;
} code_source;

static treadle_status find_source(treadle_band_walk *w, int64_t expert, int64_t row, int64_t column,
                                  code_source *source_p) {
  treadle_status status = TREADLE_OK;
  *source_p = (code_source){.rank = w->rank, .twin = true, .scales = &w->scales};
  source_p->codes = treadle_spots_find(&w->codes, expert, row, column, 0, &w->code_hint);
  if (source_p->codes) return TREADLE_OK;
  *source_p = (code_source){.rank = w->rank, .scales = &w->own_scales};
  source_p->codes = treadle_spots_find(&w->own_codes, expert, row, column, 0, &w->code_hint);
  if (source_p->codes) return TREADLE_OK;
  *source_p = (code_source){.scales = &w->source_scales};
  for (int again = 0; again < 2; again++) {
    source_p->rank = w->source;
    if (w->source >= 0)
      source_p->codes = treadle_spots_find(&w->source_codes, expert, row, column, 0, &w->code_hint);
    if (source_p->codes || again) break;
    const treadle_rectangle point = {expert, row, 1, column, 1};
    w->boxes.count = w->cells.count = 0;
    TRY(treadle_rectangle_boxes(&w->blocks, &point, &w->boxes));
    TRY(treadle_layout_cells(w->from, w->tensor, &w->boxes.items[0], &w->cells));
    assert(w->cells.count == 1);
    w->source = treadle_bands_holder(w, &w->cells.items[0], expert, 0);
    TRY(treadle_bands_places(w, w->from, w->source, &w->source_codes, &w->source_scales));
  }
  if (!source_p->codes)
    status =
        treadle_fail(TREADLE_DIFFERENT, "plan: rank %" PRId64 ": rank %" PRId64 " has no codes of %s there",
                     w->rank, w->source, treadle_bands_name(w));
out:
  return status;
}

/* Lowers *end_p to where codes of the expert begin. */
static void end_at(const treadle_spots *codes, const treadle_rectangle *of, int64_t *end_p) {
  for (size_t i = 0; i < codes->count; i++)
    if (codes->items[i].of.expert == of->expert && codes->items[i].of.row > of->row)
      *end_p = treadle_smaller(*end_p, codes->items[i].of.row);
}

/* How many bands from this one on, up to row `end`, are read from the same source, one step further each. */
static int32_t alike_bands(const treadle_band_walk *w, const treadle_rectangle *of,
                           const code_source *source, const treadle_spot *scales, int64_t end) {
  const treadle_blocks *b = &w->blocks;
  int64_t down = of->row / b->high;
  if (!treadle_bands_plain(b) || of->rows < b->high) return 1;
  end = treadle_smaller(end, source->codes->of.row + source->codes->of.rows);
  end = treadle_smaller(end, (scales->of.row + scales->of.rows) * b->high);
  if (!source->twin) end_at(&w->codes, of, &end);
  if (source->rank != w->rank) end_at(&w->own_codes, of, &end);
  return (int32_t)(end / b->high - down);
}

/* How many blocks of a band are read for the first time. */
static int64_t fresh_blocks(const treadle_band_walk *w, const treadle_rectangle *of, int64_t down) {
  int64_t fresh = 0;
  for (int64_t j = of->column / w->blocks.wide; j * w->blocks.wide < of->column + of->columns; j++)
    fresh += !treadle_bands_seen(w, of->expert, down, j);
  return fresh;
}

/* Of `count` bands from this one on, those with as many blocks that are read for the first time; they are seen then. */
static int32_t see_blocks(treadle_band_walk *w, const treadle_rectangle *of, int32_t count,
                          int64_t *fresh_p) {
  int64_t down = of->row / w->blocks.high;
  int32_t alike = 1;
  *fresh_p = fresh_blocks(w, of, down);
  while (alike < count && fresh_blocks(w, of, down + alike) == *fresh_p) alike++;
  for (int32_t i = 0; i<alike && * fresh_p> 0; i++)
    for (int64_t j = of->column / w->blocks.wide; j * w->blocks.wide < of->column + of->columns; j++)
      treadle_bands_see(w, of->expert, down + i, j);
  return alike;
}

/* A rectangle in one row of blocks and on one source, and those that follow it: *count_p, of which fewer may be taken. */
static treadle_status dequantise_part(treadle_band_walk *w, const treadle_piece *piece,
                                      const treadle_box *box, const treadle_rectangle *of,
                                      const code_source *source, const treadle_spot *scales, int32_t wave,
                                      int32_t *count_p) {
  treadle_status status = TREADLE_OK;
  int64_t fresh = 0;
  w->parts.count = w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->boxes));
  for (size_t i = 0; i < w->boxes.count; i++) {
    treadle_box met;
    if (!treadle_box_meet(&w->boxes.items[i], box, &met)) continue;
    treadle_band_part part = treadle_bands_part(
        w, of, &met, piece->dtype, piece->dtype,
        treadle_box_offset(&met, &piece->box, piece->stride, piece->offset), piece->stride, false);
    part.op.source = (int32_t)source->rank;
    part.op.twin = source->twin;
    part.op.add = piece->add;
    part.op.storage = piece->storage;
    if (treadle_bands_plain(&w->blocks)) part.step = w->blocks.high * piece->stride[w->blocks.first_row];
    if (source->rank != w->rank) part.moved = part.op.elems;
    TRY(treadle_array_push(&w->parts, part));
  }
  if (source->rank != w->rank) *count_p = see_blocks(w, of, *count_p, &fresh);
  w->parts.items[0].moved += fresh * (int64_t)sizeof(float);
  treadle_band band = treadle_bands_band(w, of, source->codes, scales);
  band.wave = wave;
  band.count = *count_p;
  band.storage = piece->storage;
  band.twin = source->twin;
  band.value_dtype = (uint8_t)piece->dtype;
  band.parts = (int64_t)w->parts.count;
  TRY(w->sink->take_band(w->sink, &band, w->parts.items));
out:
  return status;
}

/* The bands from this one on, up to row `end`, that are alike; *row_p is the row after them. */
static treadle_status dequantise_bands(treadle_band_walk *w, const treadle_piece *piece,
                                       const treadle_box *box, const treadle_rectangle *band,
                                       int64_t end_row, int64_t *row_p) {
  treadle_status status = TREADLE_OK;
  int64_t down = band->row / w->blocks.high, end = band->column + band->columns;
  int32_t wave, count = 1;
  int64_t wave_end;
  TRY(treadle_bands_wave(w, band->expert, down, &wave, &wave_end));
  end_row = treadle_smaller(end_row, wave_end * w->blocks.high);
  for (treadle_rectangle of = *band; of.column < end; of.column += of.columns) {
    code_source source;
    TRY(find_source(w, of.expert, of.row, of.column, &source));
    const treadle_rectangle *there = &source.codes->of;
    const treadle_spot *scales =
        treadle_spots_find(source.scales, of.expert, down, of.column / w->blocks.wide, 0, &w->scale_hint);
    if (!scales || source.codes->column_stride != 1) {
      status =
          treadle_fail(TREADLE_REFUSED,
                       "plan: '%s' has codes of %s on rank %" PRId64
                       " with gaps, or without the scale of their block: values are not made of them; say "
                       "dtype= on one side",
                       w->from->text, treadle_bands_name(w), source.rank);
      goto out;
    }
    of.rows = treadle_smaller(band->rows, there->row + there->rows - of.row);
    of.columns = treadle_smaller(end, there->column + there->columns);
    of.columns =
        treadle_smaller(of.columns, (scales->of.column + scales->of.columns) * w->blocks.wide) - of.column;
    if (of.columns == band->columns) count = alike_bands(w, &of, &source, scales, end_row);
    TRY(dequantise_part(w, piece, box, &of, &source, scales, wave, &count));
    const treadle_rectangle below = {of.expert, of.row + of.rows, band->rows - of.rows, of.column,
                                     of.columns};
    int64_t after; /* of a block that is on several ranks, the rest */
    if (below.rows > 0) TRY(dequantise_bands(w, piece, box, &below, end_row, &after));
  }
  *row_p = band->row + band->rows + (count - 1) * w->blocks.high;
out:
  return status;
}

treadle_status treadle_bands_dequantise(treadle_band_walk *w, const treadle_piece *piece,
                                        const treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_spots places = {0};
  TRY(treadle_bands_start(w, piece->tensor));
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

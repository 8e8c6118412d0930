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

/* A rectangle in one row of blocks and on one source. */
static treadle_status dequantise_part(treadle_band_walk *w, const treadle_piece *piece,
                                      const treadle_box *box, const treadle_rectangle *of,
                                      const code_source *source, const treadle_spot *scales, int32_t wave) {
  treadle_status status = TREADLE_OK;
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
    part.op.wave = wave;
    if (source->rank != w->rank) part.moved = part.op.elems;
    TRY(treadle_array_push(&w->parts, part));
  }
  if (source->rank != w->rank)
    for (int64_t j = of->column / w->blocks.wide; j * w->blocks.wide < of->column + of->columns; j++)
      if (!treadle_bands_see(w, of->expert, of->row / w->blocks.high, j))
        w->parts.items[0].moved += (int64_t)sizeof(float);
  treadle_band band = treadle_bands_band(w, of, source->codes, scales, wave);
  band.storage = piece->storage;
  band.twin = source->twin;
  band.value_dtype = (uint8_t)piece->dtype;
  band.parts = (int64_t)w->parts.count;
  TRY(w->sink->take_band(w->sink, &band, w->parts.items));
out:
  return status;
}

static treadle_status dequantise_band(treadle_band_walk *w, const treadle_piece *piece,
                                      const treadle_box *box, const treadle_rectangle *band) {
  treadle_status status = TREADLE_OK;
  int64_t down = band->row / w->blocks.high, end = band->column + band->columns;
  int32_t wave;
  TRY(treadle_bands_wave(w, band->expert, down, &wave));
  for (treadle_rectangle of = *band; of.column < end; of.column += of.columns) {
    code_source source;
    TRY(find_source(w, of.expert, of.row, of.column, &source));
    const treadle_rectangle *there = &source.codes->of;
    const treadle_spot *scales =
        treadle_spots_find(source.scales, of.expert, down, of.column / w->blocks.wide, 0, &w->scale_hint);
    if (!scales || source.codes->column_stride != 1 || of.row + of.rows > there->row + there->rows) {
      status = treadle_fail(
          TREADLE_REFUSED,
          "plan: '%s' has a block of %s on several ranks: values are not made of such blocks; say "
          "dtype= on one side",
          w->from->text, treadle_bands_name(w));
      goto out;
    }
    of.columns = treadle_smaller(end, there->column + there->columns);
    of.columns =
        treadle_smaller(of.columns, (scales->of.column + scales->of.columns) * w->blocks.wide) - of.column;
    TRY(dequantise_part(w, piece, box, &of, &source, scales, wave));
  }
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
      for (int64_t row = of->row; row < end; row = (row / high + 1) * high) {
        treadle_rectangle band = *of;
        band.row = row;
        band.rows = treadle_smaller(end, (row / high + 1) * high) - row;
        TRY(dequantise_band(w, piece, &boxes->items[i], &band));
      }
    }
  }
out:
  treadle_array_release(&places);
  return status;
}

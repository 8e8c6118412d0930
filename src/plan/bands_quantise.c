/* Bands of one rank: blocks that are made of values. */
#include "plan/bands_parts.h"

#include "base/dtype.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_CANDIDATES = 8 };

/* One rank that has all that is wanted; else the first's. */
static int64_t choose_for_all(const treadle_band_walk *w, int64_t expert) {
  const treadle_cell *first = &w->wanted.items[0].cell;
  int64_t candidates = treadle_smaller(first->holders, MAX_CANDIDATES);
  for (int64_t k = 0; k < candidates && w->wanted.count > 1; k++) {
    int64_t rank = treadle_bands_holder(w, first, expert, k);
    size_t i = 1;
    while (i < w->wanted.count && treadle_cell_find(w->from, &w->wanted.items[i].cell, rank) >= 0) i++;
    if (i == w->wanted.count) return rank;
  }
  return treadle_bands_holder(w, first, expert, 0);
}

static treadle_status add_source(treadle_band_walk *w, const treadle_box *box, int64_t rank,
                                 treadle_dtype dtype, int8_t add, const treadle_box *base, int64_t offset,
                                 const int64_t *stride) {
  treadle_band_source source = {
      .box = *box, .base = *base, .rank = rank, .offset = offset, .dtype = dtype, .add = add};
  memcpy(source.stride, stride, sizeof source.stride);
  return treadle_array_push(&w->sources, source);
}

/* The parts of a band from the sources at hand. */
static treadle_status make_parts(treadle_band_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  treadle_dtype value = treadle_layout_dtype(w->from, w->blocks.tensor);
  int64_t elems = 0;
  w->parts.count = w->part_boxes.count = w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->boxes));
  for (size_t i = 0; i < w->sources.count; i++)
    for (size_t k = 0; k < w->boxes.count; k++) {
      const treadle_band_source *source = &w->sources.items[i];
      treadle_box box;
      if (!treadle_box_meet(&w->boxes.items[k], &source->box, &box)) continue;
      treadle_band_part part = treadle_bands_part(
          w, of, &box, value, source->dtype,
          treadle_box_offset(&box, &source->base, source->stride, source->offset), source->stride, true);
      part.op.source = (int32_t)source->rank;
      part.op.add = (int8_t)-source->add;
      if (treadle_bands_plain(&w->blocks)) part.step = w->blocks.high * source->stride[w->blocks.first_row];
      elems += part.op.elems;
      TRY(treadle_array_push(&w->part_boxes, box));
      TRY(treadle_array_push(&w->parts, part));
    }
  if (elems != of->rows * of->columns)
    status = treadle_fail(TREADLE_DIFFERENT,
                          "plan: rank %" PRId64 ": the sources of %s do not give each value once", w->rank,
                          treadle_bands_name(w));
out:
  return status;
}

/* What this rank has of a rectangle; the rest goes to w->rest. */
static treadle_status take_own(treadle_band_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  w->rest.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->rest));
  for (size_t k = 0; k < w->held.count; k++) {
    const treadle_piece *piece = &w->held.items[k];
    w->spare.count = 0;
    for (size_t i = 0; i < w->rest.count; i++) {
      treadle_box part;
      if (treadle_box_meet(&w->rest.items[i], &piece->box, &part))
        TRY(add_source(w, &part, w->rank, piece->dtype, piece->add, &piece->box, piece->offset,
                       piece->stride));
      TRY(treadle_box_subtract(&w->rest.items[i], &piece->box, &w->spare));
    }
    treadle_boxes swap = w->rest;
    w->rest = w->spare;
    w->spare = swap;
  }
out:
  return status;
}

static treadle_status take_others(treadle_band_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  w->wanted.count = 0;
  for (size_t i = 0; i < w->rest.count; i++) {
    w->cells.count = 0;
    TRY(treadle_layout_cells(w->from, w->tensor, &w->rest.items[i], &w->cells));
    for (size_t k = 0; k < w->cells.count; k++) {
      treadle_band_wish wish = {.cell = w->cells.items[k]};
      if (treadle_box_meet(&w->rest.items[i], &wish.cell.box, &wish.box))
        TRY(treadle_array_push(&w->wanted, wish));
    }
  }
  if (w->wanted.count == 0) goto out;
  int64_t rank = choose_for_all(w, of->expert);
  for (size_t i = 0; i < w->wanted.count; i++) {
    const treadle_cell *cell = &w->wanted.items[i].cell;
    if (i > 0 && treadle_cell_find(w->from, cell, rank) < 0)
      rank = treadle_bands_holder(w, cell, of->expert, 0);
    const int64_t *stride;
    int64_t offset = treadle_cell_locate(w->from, cell, treadle_cell_find(w->from, cell, rank), &stride);
    TRY(add_source(w, &w->wanted.items[i].box, rank, cell->dtype, cell->add, &cell->box, offset, stride));
  }
out:
  return status;
}

static int64_t elems_in(const treadle_boxes *boxes, const treadle_box *other) {
  int64_t elems = 0;
  treadle_box met;
  for (size_t i = 0; i < boxes->count; i++)
    if (treadle_box_meet(&boxes->items[i], other, &met)) elems += treadle_box_elems(&met);
  return elems;
}

/* What the parts move of one block. */
static treadle_status count_block(treadle_band_walk *w, const treadle_rectangle *block) {
  treadle_status status = TREADLE_OK;
  int64_t wide = (int64_t)treadle_dtype_bytes(treadle_layout_dtype(w->from, w->blocks.tensor)), first = -1;
  bool one = true;
  w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, block, &w->boxes));
  for (size_t i = 0; i < w->parts.count; i++) {
    int64_t source = w->parts.items[i].op.source;
    if (elems_in(&w->boxes, &w->part_boxes.items[i]) == 0) continue;
    if (first >= 0) one = one && source == first;
    first = source;
  }
  bool scale = one; /* is still to be counted */
  for (size_t i = 0; i < w->parts.count; i++) {
    int64_t elems = elems_in(&w->boxes, &w->part_boxes.items[i]);
    if (elems == 0 || w->parts.items[i].op.source == w->rank) continue;
    w->parts.items[i].moved += elems * (one ? 1 : wide) + (scale ? (int64_t)sizeof(float) : 0);
    scale = false;
  }
out:
  return status;
}

/* Do all parts reach from the first column of the band to its last, so that all of its blocks are alike? */
static bool columns_alike(const treadle_band_walk *w, const treadle_rectangle *of) {
  const treadle_blocks *b = &w->blocks;
  for (size_t i = 0; i < w->part_boxes.count; i++) {
    int64_t columns = 1;
    for (int a = b->first_column; a < b->tensor->naxes; a++) columns *= w->part_boxes.items[i].size[a];
    if (columns != of->columns) return false;
  }
  return true;
}

/* What each part moves. */
static treadle_status count_moved(treadle_band_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  bool one = true;
  int64_t first = w->parts.items[0].op.source, across = of->column / w->blocks.wide;
  int64_t count = (of->columns + w->blocks.wide - 1) / w->blocks.wide;
  for (size_t i = 1; i < w->parts.count; i++) one = one && w->parts.items[i].op.source == first;
  if (one && first == w->rank) return TREADLE_OK;
  if (one) {
    for (size_t i = 0; i < w->parts.count; i++) w->parts.items[i].moved = w->parts.items[i].op.elems;
    w->parts.items[0].moved += count * (int64_t)sizeof(float);
    return TREADLE_OK;
  }
  if (columns_alike(w, of)) {
    int64_t wide = (int64_t)treadle_dtype_bytes(treadle_layout_dtype(w->from, w->blocks.tensor));
    for (size_t i = 0; i < w->parts.count; i++)
      if (w->parts.items[i].op.source != w->rank)
        w->parts.items[i].moved = w->parts.items[i].op.elems * wide;
    return TREADLE_OK;
  }
  for (int64_t j = across; j < across + count; j++) {
    const treadle_rectangle block =
        treadle_blocks_band(&w->blocks, of->expert, of->row / w->blocks.high, j, 1);
    TRY(count_block(w, &block));
  }
out:
  return status;
}

static treadle_status find_sources(treadle_band_walk *w, const treadle_rectangle *of) {
  treadle_status status = TREADLE_OK;
  w->sources.count = 0;
  TRY(take_own(w, of));
  TRY(take_others(w, of));
out:
  return status;
}

/* A further copy of codes or scales in this window. */
static treadle_status copy_twin(treadle_band_walk *w, const treadle_rectangle *of, const treadle_spot *from,
                                const treadle_spot *to, int32_t tensor, int32_t wave) {
  int64_t size = (int64_t)treadle_dtype_bytes(to->dtype);
  treadle_op op = {.wave = wave,
                   .source = (int32_t)w->rank,
                   .twin = true,
                   .from_dtype = (uint8_t)to->dtype,
                   .to_dtype = (uint8_t)to->dtype,
                   .tensor = tensor,
                   .storage = to->storage,
                   .from = treadle_spot_offset(from, of->row, of->column),
                   .to = treadle_spot_offset(to, of->row, of->column),
                   .ndim = 2,
                   .size = {of->rows, of->columns},
                   .from_stride = {from->row_stride, size},
                   .to_stride = {to->row_stride, size},
                   .elems = of->rows * of->columns};
  return w->sink->take(w->sink, &op);
}

/* Lowers *end_p to where a box begins or ends. */
static void end_at(const treadle_box *box, int axis, int64_t row, int64_t *end_p) {
  int64_t begin = box->start[axis], end = begin + box->size[axis];
  if (begin > row) *end_p = treadle_smaller(*end_p, begin);
  if (end > row) *end_p = treadle_smaller(*end_p, end);
}

/* How many bands from this one on are made as it is made: of the same sources at hand, one step further each. */
static int64_t alike_bands(const treadle_band_walk *w, const treadle_rectangle *of,
                           const treadle_spot *codes, const treadle_spot *scales, bool simple) {
  const treadle_blocks *b = &w->blocks;
  int64_t down = of->row / b->high, last = codes->of.row + codes->of.rows;
  int axis = b->first_row;
  if (!treadle_bands_plain(b) || of->rows < b->high) return 1;
  last = treadle_smaller(last, (scales->of.row + scales->of.rows) * b->high);
  for (size_t i = 0; i < w->sources.count; i++)
    end_at(simple ? &w->sources.items[i].box : &w->sources.items[i].base, axis, of->row, &last);
  for (size_t i = 0; i < w->held.count && !simple; i++) end_at(&w->held.items[i].box, axis, of->row, &last);
  return last / b->high > down ? last / b->high - down : 1;
}

/* The bands from row block `down` on that are alike; *end_p is the one after them. `simple`: the sources at hand are good
 * for all of the codes. */
static treadle_status quantise_bands(treadle_band_walk *w, const treadle_spot *codes, int nth, int64_t down,
                                     bool simple, int64_t *end_p) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  int64_t across = codes->of.column / b->wide, count = (codes->of.columns + b->wide - 1) / b->wide;
  const treadle_rectangle of = treadle_blocks_band(b, codes->of.expert, down, across, count);
  const treadle_rectangle of_scales = {of.expert, down, 1, across, count};
  const treadle_spot *scales = treadle_spots_find(&w->scales, of.expert, down, across, nth, &w->scale_hint);
  int32_t wave = 0;
  if (!scales || across + count > scales->of.column + scales->of.columns)
    return treadle_fail(TREADLE_DIFFERENT,
                        "plan: rank %" PRId64 ": the scales of %s do not lie beside its codes", w->rank,
                        treadle_bands_name(w));
  if (nth > 0) {
    TRY(treadle_bands_wave(w, of.expert, down, &wave, end_p));
    *end_p = down + 1;
    size_t hint = 0;
    const treadle_spot *first = treadle_spots_find(&w->codes, of.expert, of.row, of.column, 0, &hint);
    TRY(copy_twin(w, &of, first, codes, w->tensor, wave));
    first = treadle_spots_find(&w->scales, of.expert, down, across, 0, &w->scale_hint);
    TRY(copy_twin(w, &of_scales, first, scales, b->tensor->scale, wave));
    goto out;
  }
  if (!simple) TRY(find_sources(w, &of));
  TRY(make_parts(w, &of));
  TRY(count_moved(w, &of));
  treadle_band band = treadle_bands_band(w, &of, codes, scales);
  band.quantises = true;
  band.storage = codes->storage;
  band.value_dtype = (uint8_t)treadle_layout_dtype(w->from, b->tensor);
  band.parts = (int64_t)w->parts.count;
  *end_p = down + alike_bands(w, &of, codes, scales, simple);
  while (down < *end_p) {
    int64_t end;
    TRY(treadle_bands_wave(w, of.expert, down, &band.wave, &end));
    band.count = (int32_t)(treadle_smaller(end, *end_p) - down);
    TRY(w->sink->take_band(w->sink, &band, w->parts.items));
    down += band.count;
    band.begin += band.count;
    band.codes += band.count * band.code_step;
    band.scales += band.count * band.scale_step;
  }
out:
  return status;
}

/* Codes are whole blocks, each with one scale. */
static treadle_status check_codes(const treadle_band_walk *w) {
  int64_t blocks = 0, scales = 0;
  const treadle_blocks *b = &w->blocks;
  for (size_t i = 0; i < w->codes.count; i++) {
    const treadle_rectangle *of = &w->codes.items[i].of;
    int64_t end = of->row + of->rows, column_end = of->column + of->columns;
    if (of->row % b->high || of->column % b->wide || (end % b->high && end != b->rows) ||
        (column_end % b->wide && column_end != b->columns) || w->codes.items[i].column_stride != 1)
      return treadle_fail(
          TREADLE_REFUSED,
          "plan: '%s' cuts %s inside of its fp8 blocks of %" PRId64 " x %" PRId64
          ": values are not quantised into such a layout; say dtype= on one side, or cut less",
          w->to->text, treadle_bands_name(w), b->high, b->wide);
    blocks += ((of->rows + b->high - 1) / b->high) * ((of->columns + b->wide - 1) / b->wide);
  }
  for (size_t i = 0; i < w->scales.count; i++) {
    scales += w->scales.items[i].of.rows * w->scales.items[i].of.columns;
    if (w->scales.items[i].column_stride != (int64_t)sizeof(float)) scales = -1;
    if (scales < 0) break;
  }
  if (scales == blocks) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "plan: '%s' has more than one scale for a block of %s: values are not quantised into such a "
      "layout; say dtype= on one side",
      w->to->text, treadle_bands_name(w));
}

treadle_status treadle_bands_quantise(treadle_band_walk *w, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_bands_start(w, tensor));
  TRY(check_codes(w));
  w->code_hint = w->scale_hint = 0;
  for (size_t i = 0; i < w->codes.count; i++) {
    const treadle_spot *codes = &w->codes.items[i];
    const treadle_rectangle *of = &codes->of;
    int nth = 0;
    for (size_t k = 0; k < i; k++) {
      const treadle_rectangle *other = &w->codes.items[k].of;
      nth += other->expert == of->expert && other->row == of->row && other->column == of->column;
    }
    bool simple = true; /* mostly all of it is on one rank, so that bands need not be looked at */
    if (nth == 0) TRY(find_sources(w, of));
    for (size_t k = 1; k < w->sources.count; k++)
      simple = simple && w->sources.items[k].rank == w->sources.items[0].rank;
    for (int64_t down = of->row / w->blocks.high; down * w->blocks.high < of->row + of->rows;)
      TRY(quantise_bands(w, codes, nth, down, simple, &down));
  }
out:
  return status;
}

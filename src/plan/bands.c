/* Bands of one rank in one direction. */
#include "plan/bands.h"

#include "base/dtype.h"
#include "base/hash.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static const treadle_model *model_of(const treadle_band_walk *w) { return w->to->model; }
static const char *name_of(const treadle_band_walk *w) { return w->blocks.tensor->name; }

void treadle_band_walk_init(treadle_band_walk *walk, const treadle_classes *classes,
                            const treadle_layout *from, const treadle_layout *to, int64_t rank,
                            treadle_sink *sink) {
  *walk = (treadle_band_walk){
      .classes = classes, .from = from, .to = to, .rank = rank, .sink = sink, .tensor = -1, .source = -1};
}

void treadle_band_walk_release(treadle_band_walk *walk) {
  treadle_spots *places[] = {&walk->codes,         &walk->scales,    &walk->source_codes,
                             &walk->source_scales, &walk->own_codes, &walk->own_scales};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) treadle_array_release(places[i]);
  treadle_array_release(&walk->cells);
  treadle_array_release(&walk->other_cells);
  treadle_array_release(&walk->wanted);
  treadle_array_release(&walk->boxes);
  treadle_array_release(&walk->rest);
  treadle_array_release(&walk->spare);
  treadle_array_release(&walk->held);
  treadle_array_release(&walk->parts);
  treadle_array_release(&walk->part_boxes);
  treadle_array_release(&walk->sources);
  treadle_free(walk->seen);
}

/* Codes and scales of a tensor in a rank's window. */
static treadle_status find_places(const treadle_band_walk *w, const treadle_layout *layout, int64_t rank,
                                  treadle_spots *codes, treadle_spots *scales) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks of_scales = treadle_blocks_of(model_of(w), w->blocks.tensor->scale);
  codes->count = scales->count = 0;
  TRY(treadle_blocks_held(&w->blocks, layout, rank, true, codes));
  TRY(treadle_blocks_held(&of_scales, layout, rank, false, scales));
out:
  return status;
}

static treadle_status start_tensor(treadle_band_walk *w, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  if (w->tensor == tensor) return TREADLE_OK;
  w->tensor = tensor;
  w->blocks = treadle_blocks_of(model_of(w), tensor);
  w->has_common = false;
  w->source = -1;
  w->codes.count = w->scales.count = w->own_codes.count = w->own_scales.count = 0;
  if (w->sink->no_sources) return TREADLE_OK;
  w->held.count = 0;
  TRY(treadle_layout_pieces_of(w->from, w->rank, tensor, &w->held));
  if (w->to->fp8) TRY(find_places(w, w->to, w->rank, &w->codes, &w->scales));
  if (w->from->fp8) TRY(find_places(w, w->from, w->rank, &w->own_codes, &w->own_scales));
  size_t bytes = (size_t)(w->blocks.experts * w->blocks.down * w->blocks.across / 8 + 1);
  if (bytes > w->seen_bytes) {
    treadle_free(w->seen);
    w->seen_bytes = 0;
    w->seen = treadle_alloc(bytes);
    if (!w->seen) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
    w->seen_bytes = bytes;
  }
  memset(w->seen, 0, bytes);
out:
  return status;
}

/* ---- Waves ---- */

/* The first element of a band. */
static treadle_box corner_of(const treadle_blocks *blocks, int64_t expert, int64_t down) {
  treadle_box corner = treadle_box_whole(blocks->tensor);
  int64_t row = down * blocks->high;
  for (int a = 0; a < blocks->tensor->naxes; a++) {
    corner.start[a] = 0;
    corner.size[a] = 1;
    if (a < blocks->first_row)
      corner.start[a] = expert;
    else if (a < blocks->first_column)
      corner.start[a] = row / blocks->weight[a], row %= blocks->weight[a];
  }
  return corner;
}

static treadle_status wave_of(treadle_band_walk *w, int64_t expert, int64_t down, int32_t *wave_p) {
  treadle_status status = TREADLE_OK;
  treadle_box corner = corner_of(&w->blocks, expert, down), met;
  int64_t end;
  if (!w->has_common || !treadle_box_meet(&w->common_box, &corner, &met)) {
    w->cells.count = w->other_cells.count = 0;
    TRY(treadle_layout_cells(w->from, w->tensor, &corner, &w->cells));
    TRY(treadle_layout_cells(w->to, w->tensor, &corner, &w->other_cells));
    assert(w->cells.count == 1 && w->other_cells.count == 1);
    const treadle_cell *from = &w->cells.items[0], *to = &w->other_cells.items[0];
    bool turned = w->from != w->classes->from;
    w->common = treadle_classes_common(w->classes, w->tensor, turned ? to : from, turned ? from : to);
    w->common_box = w->common.box;
    w->has_common = true;
  }
  *wave_p = treadle_common_wave(&w->common, w->classes->waves, treadle_common_row(&w->common, corner.start),
                                &end);
out:
  return status;
}

/* Emits rows [row, end) of a box in one expert. */
static treadle_status emit_rows(treadle_band_walk *w, const treadle_blocks *blocks, const treadle_box *box,
                                int64_t expert, int64_t row, int64_t end, int32_t wave,
                                treadle_band_emit emit, void *context) {
  treadle_status status = TREADLE_OK;
  const treadle_rectangle rows = {expert, row, end - row, 0, blocks->columns};
  w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(blocks, &rows, &w->boxes));
  for (size_t i = 0; i < w->boxes.count; i++) {
    treadle_box part;
    if (treadle_box_meet(&w->boxes.items[i], box, &part)) TRY(emit(context, &part, wave));
  }
out:
  return status;
}

/* The first and the last row of a box, flattened. */
static void rows_of(const treadle_blocks *blocks, const treadle_box *box, int64_t *first_p,
                    int64_t *last_p) {
  *first_p = *last_p = 0;
  for (int a = blocks->first_row; a < blocks->first_column; a++) {
    *first_p += box->start[a] * blocks->weight[a];
    *last_p += (box->start[a] + box->size[a] - 1) * blocks->weight[a];
  }
}

treadle_status treadle_bands_cut(treadle_band_walk *w, int32_t tensor, const treadle_box *box,
                                 treadle_band_emit emit, void *context) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *t = &model_of(w)->tensors[tensor];
  const treadle_blocks blocks = treadle_blocks_of(model_of(w), tensor);
  treadle_box same = *box; /* experts that are whole in one wave go together */
  int32_t same_wave = -1, wave = 0, next = 0;
  int64_t first, last, experts = blocks.first_row ? box->size[0] : 1,
                       begin = blocks.first_row ? box->start[0] : 0;
  TRY(start_tensor(w, t->scale_of >= 0 ? t->scale_of : tensor));
  rows_of(&blocks, box, &first, &last);
  for (int64_t e = begin; e < begin + experts; e++) {
    int64_t down = first / blocks.high, end, row = first;
    TRY(wave_of(w, e, down, &wave));
    while (row <= last) {
      for (end = down + 1; end * blocks.high <= last; end++) {
        TRY(wave_of(w, e, end, &next));
        if (next != wave) break;
      }
      bool whole = row == first && end * blocks.high > last;
      if (!(whole && wave == same_wave) && same_wave >= 0) {
        TRY(emit(context, &same, same_wave));
        same_wave = -1;
      }
      if (whole && same_wave >= 0) {
        same.size[0]++;
      } else if (whole) {
        same = *box;
        if (blocks.first_row) same.start[0] = e, same.size[0] = 1;
        same_wave = wave;
      } else {
        TRY(emit_rows(w, &blocks, box, e, row, smaller(end * blocks.high, last + 1), wave, emit, context));
      }
      row = end * blocks.high;
      down = end;
      wave = next;
    }
  }
  if (same_wave >= 0) TRY(emit(context, &same, same_wave));
out:
  return status;
}

/* ---- Bands ---- */

static bool see(treadle_band_walk *w, int64_t expert, int64_t down, int64_t across) {
  int64_t block = (expert * w->blocks.down + down) * w->blocks.across + across;
  bool before = w->seen[block >> 3] >> (block & 7) & 1;
  w->seen[block >> 3] = (uint8_t)(w->seen[block >> 3] | 1 << (block & 7));
  return before;
}

/* A copy between `box`, which lies at these strides, and its place in the scratch of `of`. */
static treadle_band_part make_part(const treadle_band_walk *w, const treadle_rectangle *of,
                                   const treadle_box *box, treadle_dtype value, treadle_dtype window_dtype,
                                   int64_t offset, const int64_t *stride, bool to_scratch) {
  int64_t size = (int64_t)treadle_dtype_bytes(value), at = 0, scratch[TREADLE_MAX_AXES] = {0};
  treadle_band_part part = {.op = {.tensor = w->tensor, .elems = treadle_box_elems(box)}};
  for (int a = 0; a < w->blocks.tensor->naxes; a++) {
    if (a < w->blocks.first_row) continue;
    scratch[a] = w->blocks.weight[a] * size * (a < w->blocks.first_column ? of->columns : 1);
    at += box->start[a] * scratch[a];
  }
  at -= (of->row * of->columns + of->column) * size;
  part.op.from_dtype = (uint8_t)(to_scratch ? window_dtype : value);
  part.op.to_dtype = (uint8_t)(to_scratch ? value : window_dtype);
  part.op.from = to_scratch ? offset : at;
  part.op.to = to_scratch ? at : offset;
  treadle_op_set_dims(&part.op, box, w->blocks.tensor->naxes, to_scratch ? stride : scratch,
                      to_scratch ? scratch : stride);
  return part;
}

static treadle_band make_band(const treadle_band_walk *w, const treadle_rectangle *of,
                              const treadle_spot *codes, const treadle_spot *scales, int32_t wave) {
  int64_t down = of->row / w->blocks.high, across = of->column / w->blocks.wide;
  return (treadle_band){.wave = wave,
                        .tensor = w->tensor,
                        .rows = (int32_t)of->rows,
                        .columns = (int32_t)of->columns,
                        .skip = (int32_t)(of->column % w->blocks.wide),
                        .block_columns = (int32_t)w->blocks.wide,
                        .codes = treadle_spot_offset(codes, of->row, of->column),
                        .code_stride = codes->row_stride,
                        .scales = treadle_spot_offset(scales, down, across),
                        .scale_stride = scales->column_stride};
}

/* A rank that has the cell. */
static int64_t choose_holder(const treadle_band_walk *w, const treadle_cell *cell, int64_t expert,
                             int64_t k) {
  uint64_t begin = treadle_hash_more((uint64_t)w->tensor, (uint64_t)w->rank) + (uint64_t)expert;
  int64_t n = cell->holders;
  return treadle_cell_rank(w->from, cell, ((int64_t)(begin % (uint64_t)n) + k) % n);
}

/* ---- To fp8 ---- */

enum { MAX_CANDIDATES = 8 };

/* One rank that has all that is wanted; else the first's. */
static int64_t choose_for_all(const treadle_band_walk *w, int64_t expert) {
  const treadle_cell *first = &w->wanted.items[0].cell;
  int64_t candidates = smaller(first->holders, MAX_CANDIDATES);
  for (int64_t k = 0; k < candidates && w->wanted.count > 1; k++) {
    int64_t rank = choose_holder(w, first, expert, k);
    size_t i = 1;
    while (i < w->wanted.count && treadle_cell_find(w->from, &w->wanted.items[i].cell, rank) >= 0) i++;
    if (i == w->wanted.count) return rank;
  }
  return choose_holder(w, first, expert, 0);
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
      treadle_band_part part = make_part(
          w, of, &box, value, source->dtype,
          treadle_box_offset(&box, &source->base, source->stride, source->offset), source->stride, true);
      part.op.source = (int32_t)source->rank;
      part.op.add = (int8_t)-source->add;
      elems += part.op.elems;
      TRY(treadle_array_push(&w->part_boxes, box));
      TRY(treadle_array_push(&w->parts, part));
    }
  if (elems != of->rows * of->columns)
    status = treadle_fail(TREADLE_DIFFERENT,
                          "plan: rank %" PRId64 ": the sources of %s do not give each value once", w->rank,
                          name_of(w));
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
    if (i > 0 && treadle_cell_find(w->from, cell, rank) < 0) rank = choose_holder(w, cell, of->expert, 0);
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

/* `simple`: the sources at hand are good for all of the codes. */
static treadle_status quantise_band(treadle_band_walk *w, const treadle_spot *codes, int nth, int64_t down,
                                    bool simple) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  int64_t across = codes->of.column / b->wide, count = (codes->of.columns + b->wide - 1) / b->wide;
  const treadle_rectangle of = treadle_blocks_band(b, codes->of.expert, down, across, count);
  const treadle_rectangle of_scales = {of.expert, down, 1, across, count};
  const treadle_spot *scales = treadle_spots_find(&w->scales, of.expert, down, across, nth, &w->scale_hint);
  int32_t wave;
  if (!scales || across + count > scales->of.column + scales->of.columns)
    return treadle_fail(TREADLE_DIFFERENT,
                        "plan: rank %" PRId64 ": the scales of %s do not lie beside its codes", w->rank,
                        name_of(w));
  TRY(wave_of(w, of.expert, down, &wave));
  if (nth > 0) {
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
  treadle_band band = make_band(w, &of, codes, scales, wave);
  band.quantises = true;
  band.storage = codes->storage;
  band.value_dtype = (uint8_t)treadle_layout_dtype(w->from, b->tensor);
  for (size_t i = 0; i < w->parts.count; i++) w->parts.items[i].op.wave = wave;
  band.parts = (int64_t)w->parts.count;
  TRY(w->sink->take_band(w->sink, &band, w->parts.items));
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
          w->to->text, name_of(w), b->high, b->wide);
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
      w->to->text, name_of(w));
}

treadle_status treadle_bands_quantise(treadle_band_walk *w, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  TRY(start_tensor(w, tensor));
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
    for (int64_t down = of->row / w->blocks.high; down * w->blocks.high < of->row + of->rows; down++)
      TRY(quantise_band(w, codes, nth, down, simple));
  }
out:
  return status;
}

/* ---- From fp8 ---- */

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
    w->source = choose_holder(w, &w->cells.items[0], expert, 0);
    TRY(find_places(w, w->from, w->source, &w->source_codes, &w->source_scales));
  }
  if (!source_p->codes)
    status =
        treadle_fail(TREADLE_DIFFERENT, "plan: rank %" PRId64 ": rank %" PRId64 " has no codes of %s there",
                     w->rank, w->source, name_of(w));
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
    treadle_band_part part = make_part(w, of, &met, piece->dtype, piece->dtype,
                                       treadle_box_offset(&met, &piece->box, piece->stride, piece->offset),
                                       piece->stride, false);
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
      if (!see(w, of->expert, of->row / w->blocks.high, j))
        w->parts.items[0].moved += (int64_t)sizeof(float);
  treadle_band band = make_band(w, of, source->codes, scales, wave);
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
  TRY(wave_of(w, band->expert, down, &wave));
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
          w->from->text, name_of(w));
      goto out;
    }
    of.columns = smaller(end, there->column + there->columns);
    of.columns = smaller(of.columns, (scales->of.column + scales->of.columns) * w->blocks.wide) - of.column;
    TRY(dequantise_part(w, piece, box, &of, &source, scales, wave));
  }
out:
  return status;
}

treadle_status treadle_bands_dequantise(treadle_band_walk *w, const treadle_piece *piece,
                                        const treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_spots places = {0};
  TRY(start_tensor(w, piece->tensor));
  if (w->blocks.high > TREADLE_BAND_BLOCK || w->blocks.wide > TREADLE_BAND_BLOCK)
    return treadle_fail(TREADLE_REFUSED,
                        "plan: %s has fp8 blocks of %" PRId64 " x %" PRId64 "; %d x %d at the most",
                        name_of(w), w->blocks.high, w->blocks.wide, TREADLE_BAND_BLOCK, TREADLE_BAND_BLOCK);
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
        band.rows = smaller(end, (row / high + 1) * high) - row;
        TRY(dequantise_band(w, piece, &boxes->items[i], &band));
      }
    }
  }
out:
  treadle_array_release(&places);
  return status;
}

/* ---- What a band writes ---- */

uint64_t treadle_band_mark(const treadle_band *band, const treadle_band_part *parts) {
  uint64_t mark = treadle_hash_more((uint64_t)band->rows << 32 | (uint32_t)band->columns, band->quantises);
  if (band->quantises) {
    mark = treadle_hash_more(mark, (uint64_t)band->codes);
    mark = treadle_hash_more(mark, (uint64_t)band->code_stride);
    return treadle_hash_more(mark, (uint64_t)band->scales);
  }
  for (int64_t i = 0; i < band->parts; i++) mark = treadle_hash_more(mark, treadle_op_mark(&parts[i].op));
  return mark;
}

int64_t treadle_band_written(const treadle_band *band, const treadle_band_part *parts) {
  int64_t bytes = 0;
  if (band->quantises)
    return (int64_t)band->rows * band->columns + treadle_band_blocks(band) * (int64_t)sizeof(float);
  for (int64_t i = 0; i < band->parts; i++)
    bytes += parts[i].op.elems * (int64_t)treadle_dtype_bytes((treadle_dtype)parts[i].op.to_dtype);
  return bytes;
}

int64_t treadle_band_moved(const treadle_band *band, const treadle_band_part *parts) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < band->parts; i++) bytes += parts[i].moved;
  return bytes;
}

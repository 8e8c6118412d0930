/* Flat grids: what a rank has. Its range of each unit is found by address. The part of a parameter in that range is the grid's
 * piece of the parameter, clipped. */
#include "flat/flat_grid.h"

#include "base/dtype.h"
#include "grid/grid.h"

#include <stdlib.h>

/* Of unit u a rank has addresses [range * shard, (range + 1) * shard), counted in elements, where range is
 * its index on the dimension that cuts the unit. The unit's storage tensor in the window begins with the
 * first of them. */
typedef struct clipper {
  const treadle_flat_grid *flat;
  const treadle_flat_stage *stage;
  int32_t stage_number;
  int64_t at; /* layout rank */
  treadle_pieces whole;
  treadle_strideds parts;
} clipper;

static clipper clipper_of(const treadle_layout *layout, int64_t rank) {
  const treadle_flat_grid *flat = treadle_flat_of(layout);
  int64_t at = treadle_order_layout(&layout->order, rank);
  return (clipper){.flat = flat,
                   .stage = treadle_flat_stage_at(flat, at),
                   .stage_number = (int32_t)treadle_dim_index(flat->grid.pp, at),
                   .at = at};
}

static void clipper_release(clipper *c) {
  treadle_array_release(&c->whole);
  treadle_array_release(&c->parts);
}

/* Appends what of a grid's piece, of `param`, lies in this rank's range. `inside`: bytes from the
 * parameter's begin. Bytes become elements for the cut, and bytes of the window behind it. A box that a
 * border cuts in the middle of a row comes out as a few boxes. */
static treadle_status push_clipped(clipper *c, const treadle_piece *piece, const treadle_flat_param *param,
                                   int64_t inside, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_flat_share *unit = &c->stage->units[param->unit];
  const treadle_storage *storage = &c->stage->storages[param->unit];
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype), range = treadle_flat_range(unit, c->at);
  treadle_span own = {range * unit->shard, (range + 1) * unit->shard};
  if (param->start >= own.high || param->start + param->elems <= own.low) return TREADLE_OK;
  treadle_strided from = {.box = piece->box, .offset = param->start + inside / size};
  for (int a = 0; a < TREADLE_MAX_AXES; a++) from.stride[a] = piece->stride[a] / size;
  c->parts.count = 0;
  TRY(treadle_strided_clip(&from, own, own.low, &c->parts));
  for (size_t i = 0; i < c->parts.count; i++) {
    const treadle_strided *part = &c->parts.items[i];
    treadle_piece clipped = *piece;
    clipped.storage = param->unit;
    clipped.box = part->box;
    clipped.offset = storage->offset + part->offset * size;
    TRY(treadle_array_push(pieces, clipped));
  }
out:
  return status;
}

/* Appends what of the grid's pieces lies in this rank's ranges; only: of that parameter alone.
 * The grid has a piece [experts, ...] where each expert is a parameter here: number is the slot that the
 * piece begins in, `inside` the bytes from the start of that slot. With slots of 4096 bytes, a piece at 8704
 * begins 512 bytes inside slot 2. */
static treadle_status clip_pieces(clipper *c, const treadle_flat_param *only, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < c->whole.count; i++) {
    treadle_piece piece = c->whole.items[i];
    const treadle_storage *storage = treadle_flat_grid_storage(c->flat, c->stage_number, piece.storage);
    int64_t inside = piece.offset - storage->offset;
    if (!storage->by_expert) {
      TRY(push_clipped(c, &piece, treadle_flat_param_of(c->stage, storage, 0), inside, pieces));
      continue;
    }
    int64_t experts = piece.box.size[0], number = inside / storage->slot_stride;
    int64_t first = only ? only->expert - number : 0, end = only ? first + 1 : experts;
    inside %= storage->slot_stride;
    piece.box.size[0] = 1;
    if (first < 0 || end > experts) continue;
    piece.box.start[0] += first;
    for (int64_t e = first; e < end; e++, piece.box.start[0]++)
      TRY(push_clipped(c, &piece, treadle_flat_param_of(c->stage, storage, number + e), inside, pieces));
  }
out:
  return status;
}

/* The first of a unit's parameters that does not end before an address, or behind them: its place in unit_params. */
static int32_t first_param(const treadle_flat_stage *stage, int32_t unit, int64_t address) {
  int32_t low = stage->unit_first[unit], high = stage->unit_first[unit + 1];
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    const treadle_flat_param *param = &stage->params[stage->unit_params[middle]];
    if (param->start + param->elems <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The same of its gaps. */
static int32_t first_gap(const treadle_flat_stage *stage, int32_t unit, int64_t address) {
  int32_t low = 0, high = stage->gap_count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    const treadle_flat_gap *gap = &stage->gaps[middle];
    if (gap->unit < unit || (gap->unit == unit && gap->span.high <= address))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* A gap, or the part of it in this range, is a fill: a vector of elements without a tensor. */
static treadle_status push_gaps(const clipper *c, int32_t unit, treadle_span own, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_flat_stage *stage = c->stage;
  const treadle_storage *storage = &stage->storages[unit];
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype);
  for (int32_t g = first_gap(stage, unit, own.low); g < stage->gap_count; g++) {
    const treadle_flat_gap *gap = &stage->gaps[g];
    if (gap->unit != unit || gap->span.low >= own.high) break;
    int64_t low = gap->span.low > own.low ? gap->span.low : own.low;
    int64_t high = gap->span.high < own.high ? gap->span.high : own.high;
    treadle_piece fill = {.tensor = -1,
                          .storage = unit,
                          .dtype = storage->dtype,
                          .offset = storage->offset + (low - own.low) * size};
    for (int a = 0; a < TREADLE_MAX_AXES; a++) fill.box.size[a] = 1;
    fill.box.size[0] = high - low;
    fill.stride[0] = size;
    TRY(treadle_array_push(pieces, fill));
  }
out:
  return status;
}

/* Appends what the rank has of a unit: parameters, then gaps.
 * Parameters lie by address, so those of a range follow each other: from the first that ends behind its
 * begin to the last that begins before its end. */
static treadle_status push_unit(clipper *c, const treadle_layout *layout, int64_t rank, int32_t unit,
                                treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  const treadle_flat_stage *stage = c->stage;
  const treadle_storage *storages = c->flat->grid.stages[c->stage_number].storages;
  int64_t range = treadle_flat_range(&stage->units[unit], c->at), shard = stage->units[unit].shard;
  const treadle_span own = {range * shard, (range + 1) * shard};
  for (int32_t i = first_param(stage, unit, own.low); i < stage->unit_first[unit + 1]; i++) {
    const treadle_flat_param *param = &stage->params[stage->unit_params[i]];
    if (param->start >= own.high) break;
    c->whole.count = 0;
    TRY(treadle_grid_ops.pieces_in(layout, rank, (int32_t)(param->storage - storages), &c->whole));
    TRY(clip_pieces(c, param, pieces));
  }
  TRY(push_gaps(c, unit, own, pieces));
out:
  return status;
}

static int by_offset(const void *a, const void *b) {
  int64_t x = ((const treadle_piece *)a)->offset, y = ((const treadle_piece *)b)->offset;
  return (x > y) - (x < y);
}

/* Units [first, end), each from its begin to its end.
 * Parameters and gaps of a unit come one list behind the other, so that all are sorted by their place in the
 * window. */
static treadle_status push_units(const treadle_layout *layout, int64_t rank, int32_t first, int32_t end,
                                 treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  clipper c = clipper_of(layout, rank);
  size_t before = pieces->count;
  if (end < 0) end = c.stage->unit_count;
  for (int32_t unit = first; unit < end; unit++) TRY(push_unit(&c, layout, rank, unit, pieces));
  if (pieces->count > before)
    qsort(pieces->items + before, pieces->count - before, sizeof *pieces->items, by_offset);
out:
  clipper_release(&c);
  return status;
}

treadle_status treadle_flat_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces) {
  return push_units(layout, rank, 0, -1, pieces);
}

treadle_status treadle_flat_pieces_in(const treadle_layout *layout, int64_t rank, int32_t unit,
                                      treadle_pieces *pieces) {
  return push_units(layout, rank, unit, unit + 1, pieces);
}

treadle_status treadle_flat_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                      treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  clipper c = clipper_of(layout, rank);
  TRY(treadle_grid_ops.pieces_of(layout, rank, tensor, &c.whole));
  TRY(clip_pieces(&c, NULL, pieces));
out:
  clipper_release(&c);
  return status;
}

/* ---- Experts that lie alike as one ---- */

/* The grid's pieces of a tensor, of which each has all experts from the first one on. */
static bool all_have_experts(const clipper *c, const treadle_form *form) {
  for (size_t i = 0; i < c->whole.count; i++) {
    const treadle_piece *piece = &c->whole.items[i];
    const treadle_storage *storage = treadle_flat_grid_storage(c->flat, c->stage_number, piece->storage);
    if (!storage->by_expert || piece->box.size[0] != form->experts || piece->box.start[0] != 0 ||
        piece->offset - storage->offset >= storage->slot_stride)
      return false;
  }
  return true;
}

/* As one: the pieces of expert 0, whose box becomes [experts, ...] with the distance of two experts as the
 * stride of axis 0. That is so only where all experts are there, whole pieces from the first slot on, and
 * no gap lies in the range. Else pieces are listed expert by expert, fills behind them, and sorted. */
treadle_status treadle_flat_bundles_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                       treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  clipper c = clipper_of(layout, rank);
  const treadle_form *form = &c.flat->forms[tensor];
  const treadle_flat_share *unit = &c.stage->units[form->storage];
  int64_t range = treadle_flat_range(unit, c.at);
  const treadle_span own = {range * unit->shard, (range + 1) * unit->shard};
  size_t before = pieces->count;
  TRY(treadle_grid_ops.pieces_of(layout, rank, tensor, &c.whole));
  int32_t gap = first_gap(c.stage, form->storage, own.low);
  bool gaps = gap < c.stage->gap_count && c.stage->gaps[gap].unit == form->storage &&
              c.stage->gaps[gap].span.low < own.high;
  bool as_one = form->experts > 1 && !gaps && all_have_experts(&c, form);
  for (size_t i = 0; as_one && i < c.whole.count; i++) {
    treadle_piece piece = c.whole.items[i];
    const treadle_storage *storage = treadle_flat_grid_storage(c.flat, c.stage_number, piece.storage);
    piece.box.size[0] = 1;
    TRY(push_clipped(&c, &piece, treadle_flat_param_of(c.stage, storage, 0), piece.offset - storage->offset,
                     pieces));
  }
  for (size_t i = before; as_one && i < pieces->count; i++) {
    pieces->items[i].box.size[0] = form->experts;
    pieces->items[i].stride[0] = form->distance;
  }
  if (!as_one) {
    const treadle_grid *grid = &c.flat->grid;
    const treadle_holder *holder = &grid->holders[grid->holder_first[tensor]];
    const treadle_storage *storage = treadle_flat_grid_storage(c.flat, c.stage_number, holder->storage);
    TRY(clip_pieces(&c, NULL, pieces));
    for (int64_t e = 0; e < (storage->by_expert ? storage->slots : 1); e++) {
      const treadle_flat_param *param = treadle_flat_param_of(c.stage, storage, e);
      TRY(push_gaps(&c, param->unit, own, pieces));
    }
  }
  if (pieces->count - before > 1)
    qsort(pieces->items + before, pieces->count - before, sizeof *pieces->items, by_offset);
out:
  clipper_release(&c);
  return status;
}

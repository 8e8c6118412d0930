/* The bands of a wave: fp8 blocks that are made of values, and values that are made of fp8 blocks.
 *
 * To fp8, the parts of a band are copied from the windows of other ranks, or this one, to scratch; a block at a time
 * becomes codes and a scale; codes and scales are then copied to the window. From fp8 the same the other way round.
 * Windows are seen through their pages, scratch is plain memory. Where the values are one part whose pages follow each
 * other, which is the rule, they are read or written where they lie, and so are codes. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/dtype.h"

#include <inttypes.h>

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

treadle_status treadle_switch_bands_create(treadle_switch *sw) {
  const treadle_direction *a = &sw->plan->forward, *b = &sw->plan->back;
  size_t count = a->bands.count > b->bands.count ? a->bands.count : b->bands.count;
  size_t values = (size_t)larger(a->scratch_bytes, b->scratch_bytes);
  size_t codes = (size_t)larger(a->scratch_codes, b->scratch_codes);
  size_t scales = (size_t)larger(a->scratch_scales, b->scratch_scales);
  sw->work.bands = treadle_alloc_array(count + 1, sizeof *sw->work.bands);
  const treadle_device *device = &sw->device;
  sw->work.scratch_values = device->ops->scratch(device, values);
  sw->work.scratch_codes = device->ops->scratch(device, codes);
  sw->work.scratch_scales = device->ops->scratch(device, scales * sizeof *sw->work.scratch_scales);
  if (!sw->work.bands || !sw->work.scratch_values || !sw->work.scratch_codes || !sw->work.scratch_scales)
    return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
  memset(sw->work.bands, 0, (count + 1) * sizeof *sw->work.bands); /* touched */
  return TREADLE_OK;
}

void treadle_switch_bands_release(treadle_switch *sw) {
  treadle_free(sw->work.bands);
  const treadle_device *device = &sw->device;
  if (sw->work.scratch_values) device->ops->scratch_release(device, sw->work.scratch_values);
  if (sw->work.scratch_codes) device->ops->scratch_release(device, sw->work.scratch_codes);
  if (sw->work.scratch_scales) device->ops->scratch_release(device, sw->work.scratch_scales);
}

/* ---- Between a window and scratch ---- */

/* What a rank has in its window of mode `old` goes to scratch; window: that one, where it can be read in place. */
static treadle_status bring(treadle_switch *sw, treadle_mode old, treadle_op op, const treadle_view *window,
                            const treadle_view *scratch) {
  treadle_status status = TREADLE_OK;
  treadle_view staged;
  bool far = treadle_far_is(sw, op.source);
  if (far) TRY(treadle_far_take(sw, old, &op, &staged));
  sw->device.ops->copy(&sw->device, &op, far ? &staged : window, scratch);
out:
  return status;
}

/* Of the band at hand, whose blocks are read from `source`, or written to this rank's window (-1). */
static treadle_status copy_codes(treadle_switch *sw, treadle_mode old, const treadle_band *band,
                                 const treadle_view *window, int32_t source) {
  bool write = source < 0;
  const treadle_view scratch = treadle_view_of(sw->work.scratch_codes);
  treadle_op op = {.source = write ? sw->group->rank : source,
                   .from_dtype = TREADLE_FP8_E4M3,
                   .to_dtype = TREADLE_FP8_E4M3,
                   .ndim = 2,
                   .size = {band->code_rows, band->code_columns},
                   .elems = (int64_t)band->code_rows * band->code_columns};
  op.from_stride[1] = op.to_stride[1] = 1;
  *(write ? op.to_stride : op.from_stride) = band->code_stride;
  *(write ? op.from_stride : op.to_stride) = band->columns;
  *(write ? &op.to : &op.from) = band->codes;
  *(write ? &op.from : &op.to) = (int64_t)band->code_row * band->columns + band->code_column;
  if (!write) return bring(sw, old, op, window, &scratch);
  sw->device.ops->copy(&sw->device, &op, &scratch, window);
  return TREADLE_OK;
}

static treadle_status copy_scales(treadle_switch *sw, treadle_mode old, const treadle_band *band,
                                  const treadle_view *window, int32_t source) {
  bool write = source < 0;
  const treadle_view scratch = treadle_view_of(sw->work.scratch_scales);
  int64_t each = (int64_t)sizeof(float), blocks = treadle_band_blocks(band);
  treadle_op op = {.source = write ? sw->group->rank : source,
                   .from_dtype = TREADLE_FP32,
                   .to_dtype = TREADLE_FP32,
                   .ndim = 1,
                   .size = {blocks},
                   .elems = blocks};
  *(write ? op.to_stride : op.from_stride) = band->scale_stride;
  *(write ? op.from_stride : op.to_stride) = each;
  *(write ? &op.to : &op.from) = band->scales;
  if (!write) return bring(sw, old, op, window, &scratch);
  sw->device.ops->copy(&sw->device, &op, &scratch, window);
  return TREADLE_OK;
}

/* ---- Bands ---- */

/* The matrix of a band in a window, rows at these distances, where its pages follow each other in memory. */
static bool find_matrix(const treadle_view *window, int64_t at, int64_t row_stride, int64_t size,
                        const treadle_band *band, treadle_matrix *matrix_p) {
  int64_t bytes = (band->rows - 1) * row_stride + band->columns * size;
  if (row_stride < 0 || treadle_view_extent(window, at, bytes) < bytes) return false;
  *matrix_p = (treadle_matrix){.base = treadle_view_address(window, at),
                               .into = window->into ? treadle_view_into(window, at) : NULL,
                               .row_stride = row_stride,
                               .column_stride = size};
  return true;
}

/* The values of a band where they lie in one piece, row by row, in a window: so they need not be copied to scratch. */
static bool find_values(const treadle_view *window, const treadle_band *band, const treadle_op *op,
                        treadle_matrix *matrix_p) {
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)band->value_dtype), last = op->ndim - 1;
  const int64_t *stride = band->quantises ? op->from_stride : op->to_stride;
  bool rows = op->ndim == 2 && op->size[0] == band->rows && op->size[1] == band->columns;
  bool one = op->ndim == 1 && op->size[0] == (int64_t)band->rows * band->columns;
  if (band->parts != 1 || op->add || op->from_dtype != op->to_dtype || !(rows || one) ||
      stride[last] != size)
    return false;
  return find_matrix(window, band->quantises ? op->from : op->to, rows ? stride[0] : band->columns * size,
                     size, band, matrix_p);
}

/* Codes and scales of values, or the other way round, block by block. */
static void make_blocks(const treadle_switch *sw, const treadle_band *band, treadle_matrix values,
                        treadle_matrix codes) {
  const treadle_device *device = &sw->device;
  treadle_dtype dtype = (treadle_dtype)band->value_dtype;
  int64_t column = 0;
  for (int64_t block = 0; column < band->columns; block++) {
    int64_t columns = band->block_columns - (block == 0 ? band->skip : 0);
    if (columns > band->columns - column) columns = band->columns - column;
    const treadle_matrix of_values = treadle_matrix_at(values, column * values.column_stride),
                         of_codes = treadle_matrix_at(codes, column);
    float *scale = &sw->work.scratch_scales[block];
    if (band->quantises)
      device->ops->quantise(device, of_codes, scale, of_values, dtype, band->rows, columns);
    else
      device->ops->dequantise(device, of_values, dtype, of_codes, scale, band->rows, columns);
    column += columns;
  }
  sw->device.ops->fence(&sw->device);
}

/* ---- Planted faults ---- */

static bool is_spoiled(const treadle_switch *sw, treadle_fault fault, size_t run) {
  return sw->faults.planted == fault && sw->faults.at == run;
}

static void spoil_scale(treadle_switch *sw, const treadle_direction *direction, const treadle_band *run) {
  const treadle_device *device = &sw->device;
  float scale;
  if (!is_spoiled(sw, TREADLE_FAULT_BAND_SCALE, (size_t)(run - direction->bands.items))) return;
  device->ops->move(device, &scale, sw->work.scratch_scales, sizeof scale);
  scale *= 2;
  device->ops->move(device, sw->work.scratch_scales, &scale, sizeof scale);
}

/* ---- Waves ---- */

/* Band `position` of a run. */
static treadle_status carry_out(treadle_switch *sw, treadle_mode to, const treadle_direction *direction,
                                const treadle_band *run, int32_t position) {
  treadle_status status = TREADLE_OK;
  const treadle_band at = treadle_band_at(run, position), *band = &at;
  const treadle_band_part *parts = &direction->band_parts.items[band->part_first];
  const treadle_op first = treadle_band_part_at(run, &parts[0], position);
  treadle_mode old = to == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)band->value_dtype);
  const treadle_view *own = &sw->space.views[to][sw->group->rank],
                     scratch = treadle_view_of(sw->work.scratch_values);
  const treadle_view *from = band->twin ? own : &sw->space.views[old][parts[0].op.source];
  treadle_matrix values = treadle_matrix_of(sw->work.scratch_values, band->columns * size, size);
  treadle_matrix codes = treadle_matrix_of(sw->work.scratch_codes, band->columns, 1);
  const int32_t source = parts[0].op.source;
  bool far = treadle_far_is(sw, source);
  bool has_values =
      !(band->quantises && far) && find_values(band->quantises ? from : own, band, &first, &values);
  bool cut = band->code_rows < band->rows || band->code_columns < band->columns;
  bool has_codes =
      !cut && (band->quantises || !far) &&
      find_matrix(band->quantises ? own : from, band->codes, band->code_stride, 1, band, &codes);
  if (band->quantises) {
    for (int64_t i = 0; i < band->parts && !has_values; i++) {
      const treadle_op op = treadle_band_part_at(run, &parts[i], position);
      TRY(bring(sw, old, op, &sw->space.views[old][op.source], &scratch));
    }
    if (!has_values) sw->device.ops->fence(&sw->device);
    make_blocks(sw, band, values, codes);
    spoil_scale(sw, direction, run);
    if (!has_codes) TRY(copy_codes(sw, old, band, own, -1));
    TRY(copy_scales(sw, old, band, own, -1));
  } else {
    if (!has_codes) TRY(copy_codes(sw, old, band, from, source));
    TRY(copy_scales(sw, old, band, from, source));
    sw->device.ops->fence(&sw->device);
    spoil_scale(sw, direction, run);
    make_blocks(sw, band, values, codes);
    for (int64_t i = 0; i < band->parts && !has_values; i++) {
      const treadle_op op = treadle_band_part_at(run, &parts[i], position);
      sw->device.ops->copy(&sw->device, &op, &scratch, own);
    }
  }
out:
  return status;
}

static treadle_status carry_out_run(treadle_switch *sw, treadle_mode to, const treadle_direction *direction,
                                    size_t position, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_band *band = &direction->bands.items[position];
  const treadle_band_part *parts = &direction->band_parts.items[band->part_first];
  for (int32_t i = 0; i < band->count; i++) {
    TRY(treadle_helm_check(sw));
    TRY(carry_out(sw, to, direction, band, i));
  }
  sw->work.bands[position].mark += treadle_band_mark(band, parts);
  sw->work.bands[position].times++;
  sw->work.bands[position].wave = wave;
  sw->stats.copied_bytes += (size_t)treadle_band_written(band, parts);
  sw->stats.pulled_bytes += (size_t)treadle_band_moved(band, parts);
out:
  return status;
}

treadle_status treadle_switch_bands_run(treadle_switch *sw, treadle_mode to, int32_t wave, bool twin) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  for (int32_t i = direction->band_first[wave]; i < direction->band_first[wave + 1]; i++)
    if (direction->bands.items[i].twin == twin && !is_spoiled(sw, TREADLE_FAULT_BAND_DROP, (size_t)i) &&
        !is_spoiled(sw, TREADLE_FAULT_BAND_LATE, (size_t)i))
      TRY(carry_out_run(sw, to, direction, (size_t)i, wave));
  if (sw->faults.planted == TREADLE_FAULT_BAND_LATE && wave == sw->plan->waves - 1 &&
      direction->bands.items[sw->faults.at].twin == twin)
    TRY(carry_out_run(sw, to, direction, sw->faults.at, wave));
out:
  return status;
}

treadle_status treadle_switch_bands_check(const treadle_switch *sw, const treadle_direction *direction,
                                          uint64_t *sum_p) {
  for (size_t i = 0; i < direction->bands.count; i++) {
    const treadle_band *band = &direction->bands.items[i];
    *sum_p += sw->work.bands[i].mark;
    if (sw->work.bands[i].times != 1)
      return treadle_fail(
          TREADLE_DIFFERENT,
          "coverage: rank %d: blocks of tensor '%s' in wave %d were written %u times (bytes %" PRId64 "..)",
          sw->group->rank, sw->layouts[0]->model->tensors[band->tensor].name, band->wave,
          sw->work.bands[i].times, band->codes);
    if (sw->work.bands[i].wave != band->wave)
      return treadle_fail(
          TREADLE_DIFFERENT,
          "coverage: rank %d: blocks of tensor '%s' were made in wave %d instead of wave %d",
          sw->group->rank, sw->layouts[0]->model->tensors[band->tensor].name, sw->work.bands[i].wave,
          band->wave);
  }
  return TREADLE_OK;
}

/* The block rows of a wave: quantising to fp8 blocks, and dequantising from them.
 *
 * To fp8, the parts of a block row are copied from the windows of other ranks, or of this one, to scratch. There one block after
 * the other becomes codes and a scale, which are then copied to the window. From fp8 it is the other way round.
 * Windows are read and written through their page tables, scratch is plain memory. Usually the values are one part on
 * consecutive pages; then they, and the codes, are read or written in place, without scratch. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/dtype.h"

#include <inttypes.h>

/* Scratch has one block row: values [rows, columns] and codes [rows, columns], row-major, scales [blocks].
 * It is as large as the largest one of both directions. */
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

treadle_status treadle_switch_block_rows_create(treadle_switch *sw) {
  const treadle_direction *a = &sw->plan->forward, *b = &sw->plan->back;
  size_t count = a->block_rows.count > b->block_rows.count ? a->block_rows.count : b->block_rows.count;
  size_t values = (size_t)larger(a->scratch_bytes, b->scratch_bytes);
  size_t codes = (size_t)larger(a->scratch_codes, b->scratch_codes);
  size_t scales = (size_t)larger(a->scratch_scales, b->scratch_scales);
  sw->work.block_rows = treadle_alloc_array(count + 1, sizeof *sw->work.block_rows);
  const treadle_device *device = &sw->device;
  sw->work.scratch_values = device->ops->scratch(device, values);
  sw->work.scratch_codes = device->ops->scratch(device, codes);
  sw->work.scratch_scales = device->ops->scratch(device, scales * sizeof *sw->work.scratch_scales);
  if (!sw->work.block_rows || !sw->work.scratch_values || !sw->work.scratch_codes ||
      !sw->work.scratch_scales)
    return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
  memset(sw->work.block_rows, 0, (count + 1) * sizeof *sw->work.block_rows); /* touched */
  return TREADLE_OK;
}

void treadle_switch_block_rows_release(treadle_switch *sw) {
  treadle_free(sw->work.block_rows);
  const treadle_device *device = &sw->device;
  if (sw->work.scratch_values) device->ops->scratch_release(device, sw->work.scratch_values);
  if (sw->work.scratch_codes) device->ops->scratch_release(device, sw->work.scratch_codes);
  if (sw->work.scratch_scales) device->ops->scratch_release(device, sw->work.scratch_scales);
}

/* ---- Between a window and scratch ---- */

/* What a rank has in its window of mode `old` goes to scratch; window: that one, where it can be read in place. */
static treadle_status bring(treadle_switch *sw, treadle_mode old, treadle_op op,
                            const treadle_paged *window, const treadle_paged *scratch) {
  treadle_status status = TREADLE_OK;
  treadle_paged staged;
  bool far = treadle_far_is(sw, op.source);
  if (far) TRY(treadle_far_take(sw, old, &op, &staged));
  sw->device.ops->copy(&sw->device, &op, far ? &staged : window, scratch);
out:
  return status;
}

/* Of the block row at hand, whose blocks are read from `source`, or written to this rank's window (-1).
 * The window's side has rows at code_stride. Scratch is [rows, columns], of which the window may have a
 * part: [code_rows, code_columns] from (code_row, code_column) on. */
static treadle_status copy_codes(treadle_switch *sw, treadle_mode old, const treadle_block_row *block_row,
                                 const treadle_paged *window, int32_t source) {
  bool write = source < 0;
  const treadle_paged scratch = treadle_paged_of(sw->work.scratch_codes);
  treadle_op op = {.source = write ? sw->group->rank : source,
                   .from_dtype = TREADLE_FP8_E4M3,
                   .to_dtype = TREADLE_FP8_E4M3,
                   .ndim = 2,
                   .size = {block_row->code_rows, block_row->code_columns},
                   .elems = (int64_t)block_row->code_rows * block_row->code_columns};
  op.from_stride[1] = op.to_stride[1] = 1;
  *(write ? op.to_stride : op.from_stride) = block_row->code_stride;
  *(write ? op.from_stride : op.to_stride) = block_row->columns;
  *(write ? &op.to : &op.from) = block_row->codes;
  *(write ? &op.from : &op.to) = (int64_t)block_row->code_row * block_row->columns + block_row->code_column;
  if (!write) return bring(sw, old, op, window, &scratch);
  sw->device.ops->copy(&sw->device, &op, &scratch, window);
  return TREADLE_OK;
}

/* The same of its scales: [blocks] one behind the other in scratch, at scale_stride in the window. */
static treadle_status copy_scales(treadle_switch *sw, treadle_mode old, const treadle_block_row *block_row,
                                  const treadle_paged *window, int32_t source) {
  bool write = source < 0;
  const treadle_paged scratch = treadle_paged_of(sw->work.scratch_scales);
  int64_t each = (int64_t)sizeof(float), blocks = treadle_block_row_blocks(block_row);
  treadle_op op = {.source = write ? sw->group->rank : source,
                   .from_dtype = TREADLE_FP32,
                   .to_dtype = TREADLE_FP32,
                   .ndim = 1,
                   .size = {blocks},
                   .elems = blocks};
  *(write ? op.to_stride : op.from_stride) = block_row->scale_stride;
  *(write ? op.from_stride : op.to_stride) = each;
  *(write ? &op.to : &op.from) = block_row->scales;
  if (!write) return bring(sw, old, op, window, &scratch);
  sw->device.ops->copy(&sw->device, &op, &scratch, window);
  return TREADLE_OK;
}

/* ---- Block rows ---- */

/* The matrix of a block row in a window, rows at these distances, where its pages follow each other in
 * memory. bytes: from its first element to its last, both included: 3 rows of 100 bytes that begin every 128 bytes
 * are 356. */
static bool find_matrix(const treadle_paged *window, int64_t at, int64_t row_stride, int64_t size,
                        const treadle_block_row *block_row, treadle_matrix *matrix_p) {
  int64_t bytes = (block_row->rows - 1) * row_stride + block_row->columns * size;
  if (row_stride < 0 || treadle_paged_extent(window, at, bytes) < bytes) return false;
  *matrix_p = (treadle_matrix){.base = treadle_paged_address(window, at),
                               .into = window->into ? treadle_paged_into(window, at) : NULL,
                               .row_stride = row_stride,
                               .column_stride = size};
  return true;
}

/* The values of a block row where they lie in one piece, row by row, in a window: so they need not be copied to scratch. */
static bool find_values(const treadle_paged *window, const treadle_block_row *block_row,
                        const treadle_op *op, treadle_matrix *matrix_p) {
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)block_row->value_dtype), last = op->ndim - 1;
  const int64_t *stride = block_row->quantises ? op->from_stride : op->to_stride;
  const int64_t *in_scratch = block_row->quantises ? op->to_stride : op->from_stride;
  bool rows = op->ndim == 2 && op->size[0] == block_row->rows && op->size[1] == block_row->columns;
  bool one = op->ndim == 1 && op->size[0] == (int64_t)block_row->rows * block_row->columns;
  if (block_row->parts != 1 || op->add || op->from_dtype != op->to_dtype || !(rows || one) ||
      stride[last] != size || in_scratch[last] != size) /* a square may lie there transposed */
    return false;
  return find_matrix(window, block_row->quantises ? op->from : op->to,
                     rows ? stride[0] : block_row->columns * size, size, block_row, matrix_p);
}

/* Codes and scales of values, or the other way round, block by block.
 * Blocks go from left to right, each [rows, columns], with scale number `block`. The first one may lack
 * columns before, the last one behind: skip = 32 and 128 columns in blocks of 128 are 96 and 32. */
static void make_blocks(const treadle_switch *sw, const treadle_block_row *block_row, treadle_matrix values,
                        treadle_matrix codes) {
  const treadle_device *device = &sw->device;
  treadle_dtype dtype = (treadle_dtype)block_row->value_dtype;
  int64_t column = 0;
  for (int64_t block = 0; column < block_row->columns; block++) {
    int64_t columns = block_row->block_columns - (block == 0 ? block_row->skip : 0);
    if (columns > block_row->columns - column) columns = block_row->columns - column;
    const treadle_matrix of_values = treadle_matrix_at(values, column * values.column_stride),
                         of_codes = treadle_matrix_at(codes, column);
    float *scale = &sw->work.scratch_scales[block];
    if (block_row->quantises)
      device->ops->quantise(device, of_codes, scale, of_values, dtype, block_row->rows, columns);
    else
      device->ops->dequantise(device, of_values, dtype, of_codes, scale, block_row->rows, columns);
    column += columns;
  }
  sw->device.ops->fence(&sw->device);
}

/* ---- Planted faults ---- */

static bool is_spoiled(const treadle_switch *sw, treadle_fault fault, size_t run) {
  return sw->faults.planted == fault && sw->faults.at == run;
}

static void spoil_scale(treadle_switch *sw, const treadle_direction *direction,
                        const treadle_block_row *run) {
  const treadle_device *device = &sw->device;
  float scale;
  if (!is_spoiled(sw, TREADLE_FAULT_BLOCK_ROW_SCALE, (size_t)(run - direction->block_rows.items))) return;
  device->ops->move(device, &scale, sw->work.scratch_scales, sizeof scale);
  scale *= 2;
  device->ops->move(device, sw->work.scratch_scales, &scale, sizeof scale);
}

/* ---- Waves ---- */

/* Block row `position` of a run.
 * To fp8: values, blocks, then codes and scales to the window. From fp8: codes and scales, blocks, then
 * values to the window. What was made or read in place needs no copy; what is far never lies in place. */
static treadle_status carry_out(treadle_switch *sw, treadle_mode to, const treadle_direction *direction,
                                const treadle_block_row *run, int32_t position) {
  treadle_status status = TREADLE_OK;
  const treadle_block_row at = treadle_block_row_at(run, position), *block_row = &at;
  const treadle_block_row_part *parts = &direction->block_row_parts.items[block_row->part_first];
  const treadle_op first = treadle_block_row_part_at(run, &parts[0], position);
  treadle_mode old = to == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)block_row->value_dtype);
  const treadle_paged *own = &sw->space.paged[to][sw->group->rank],
                      scratch = treadle_paged_of(sw->work.scratch_values);
  const treadle_paged *from = block_row->twin ? own : &sw->space.paged[old][parts[0].op.source];
  treadle_matrix values = treadle_matrix_of(sw->work.scratch_values, block_row->columns * size, size);
  treadle_matrix codes = treadle_matrix_of(sw->work.scratch_codes, block_row->columns, 1);
  const int32_t source = parts[0].op.source;
  bool far = treadle_far_is(sw, source);
  bool has_values = !(block_row->quantises && far) &&
                    find_values(block_row->quantises ? from : own, block_row, &first, &values);
  bool cut = block_row->code_rows < block_row->rows || block_row->code_columns < block_row->columns;
  bool has_codes = !cut && (block_row->quantises || !far) &&
                   find_matrix(block_row->quantises ? own : from, block_row->codes, block_row->code_stride,
                               1, block_row, &codes);
  if (block_row->quantises) {
    for (int64_t i = 0; i < block_row->parts && !has_values; i++) {
      const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
      TRY(bring(sw, old, op, &sw->space.paged[old][op.source], &scratch));
    }
    if (!has_values) sw->device.ops->fence(&sw->device);
    make_blocks(sw, block_row, values, codes);
    spoil_scale(sw, direction, run);
    if (!has_codes) TRY(copy_codes(sw, old, block_row, own, -1));
    TRY(copy_scales(sw, old, block_row, own, -1));
  } else {
    if (!has_codes) TRY(copy_codes(sw, old, block_row, from, source));
    TRY(copy_scales(sw, old, block_row, from, source));
    sw->device.ops->fence(&sw->device);
    spoil_scale(sw, direction, run);
    make_blocks(sw, block_row, values, codes);
    for (int64_t i = 0; i < block_row->parts && !has_values; i++) {
      const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
      sw->device.ops->copy(&sw->device, &op, &scratch, own);
    }
  }
out:
  return status;
}

/* All block rows of a run have one wave. Coverage and bytes are noted once, for all of them. */
static treadle_status carry_out_run(treadle_switch *sw, treadle_mode to, const treadle_direction *direction,
                                    size_t position, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_block_row *block_row = &direction->block_rows.items[position];
  const treadle_block_row_part *parts = &direction->block_row_parts.items[block_row->part_first];
  for (int32_t i = 0; i < block_row->count; i++) {
    TRY(treadle_helm_check(sw));
    TRY(carry_out(sw, to, direction, block_row, i));
  }
  sw->work.block_rows[position].mark += treadle_block_row_mark(block_row, parts);
  sw->work.block_rows[position].times++;
  sw->work.block_rows[position].wave = wave;
  sw->stats.copied_bytes += (size_t)treadle_block_row_written(block_row, parts);
  sw->stats.pulled_bytes += (size_t)treadle_block_row_moved(block_row, parts);
out:
  return status;
}

/* twin: those that read what this wave wrote in this window; the caller runs them behind the others. */
treadle_status treadle_switch_block_rows_run(treadle_switch *sw, treadle_mode to, int32_t wave, bool twin) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  for (int32_t i = direction->block_row_first[wave]; i < direction->block_row_first[wave + 1]; i++)
    if (direction->block_rows.items[i].twin == twin &&
        !is_spoiled(sw, TREADLE_FAULT_BLOCK_ROW_DROP, (size_t)i) &&
        !is_spoiled(sw, TREADLE_FAULT_BLOCK_ROW_LATE, (size_t)i))
      TRY(carry_out_run(sw, to, direction, (size_t)i, wave));
  if (sw->faults.planted == TREADLE_FAULT_BLOCK_ROW_LATE && wave == sw->plan->waves - 1 &&
      direction->block_rows.items[sw->faults.at].twin == twin)
    TRY(carry_out_run(sw, to, direction, sw->faults.at, wave));
out:
  return status;
}

treadle_status treadle_switch_block_rows_check(const treadle_switch *sw, const treadle_direction *direction,
                                               uint64_t *sum_p) {
  for (size_t i = 0; i < direction->block_rows.count; i++) {
    const treadle_block_row *block_row = &direction->block_rows.items[i];
    *sum_p += sw->work.block_rows[i].mark;
    if (sw->work.block_rows[i].times != 1)
      return treadle_fail(
          TREADLE_DIFFERENT,
          "coverage: rank %d: blocks of tensor '%s' in wave %d were written %u times (bytes %" PRId64 "..)",
          sw->group->rank, sw->layouts[0]->model->tensors[block_row->tensor].name, block_row->wave,
          sw->work.block_rows[i].times, block_row->codes);
    if (sw->work.block_rows[i].wave != block_row->wave)
      return treadle_fail(
          TREADLE_DIFFERENT,
          "coverage: rank %d: blocks of tensor '%s' were made in wave %d instead of wave %d",
          sw->group->rank, sw->layouts[0]->model->tensors[block_row->tensor].name,
          sw->work.block_rows[i].wave, block_row->wave);
  }
  return TREADLE_OK;
}

/* The block rows of a wave: quantising to fp8 blocks, and dequantising from them.
 *
 * To fp8, the parts of a block row are copied from the windows of other ranks, or of this one, to scratch. There one block after
 * the other becomes codes and a scale, which are then copied to the window. From fp8 it is the other way round.
 * Windows are read and written through their page tables, scratch is plain memory. Usually the values are one part on
 * consecutive pages; then they, and the codes, are read or written in place, without scratch. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/larger.h"

#include <inttypes.h>

/* Scratch has one block row: values [rows, columns] and codes [rows, columns], row-major, scales [blocks].
 * It is as large as the largest one of both directions. */
treadle_status treadle_scratch_create(const treadle_device *device, int64_t values, int64_t codes,
                                      int64_t scales, treadle_scratch *scratch_p) {
  scratch_p->values = device->ops->scratch(device, (size_t)values);
  scratch_p->codes = device->ops->scratch(device, (size_t)codes);
  scratch_p->scales = device->ops->scratch(device, (size_t)scales * sizeof *scratch_p->scales);
  if (scratch_p->values && scratch_p->codes && scratch_p->scales) return TREADLE_OK;
  const treadle_status failed = device->ops->fence(device); /* it may be the device that is out */
  return failed == TREADLE_OK ? treadle_memory_is_out() : failed;
}

void treadle_scratch_release(const treadle_device *device, treadle_scratch *scratch) {
  if (scratch->values) device->ops->scratch_release(device, scratch->values);
  if (scratch->codes) device->ops->scratch_release(device, scratch->codes);
  if (scratch->scales) device->ops->scratch_release(device, scratch->scales);
  *scratch = (treadle_scratch){0};
}

treadle_status treadle_carry_block_rows_create(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *a = &c->plan->forward, *b = &c->plan->back;
  size_t count = a->block_rows.count > b->block_rows.count ? a->block_rows.count : b->block_rows.count;
  c->run.blocks = treadle_alloc_array(count + 1, sizeof *c->run.blocks);
  TRY(treadle_scratch_create(c->device, treadle_larger(a->scratch_bytes, b->scratch_bytes),
                             treadle_larger(a->scratch_codes, b->scratch_codes),
                             treadle_larger(a->scratch_scales, b->scratch_scales), &c->run.scratch));
  if (!c->run.blocks) return treadle_memory_is_out();
  memset(c->run.blocks, 0, (count + 1) * sizeof *c->run.blocks); /* touched */
out:
  return status;
}

void treadle_carry_block_rows_release(treadle_carry *c) {
  treadle_free(c->run.blocks);
  treadle_scratch_release(c->device, &c->run.scratch);
}

/* ---- Between a window and scratch ---- */

/* What a rank has in its window goes to scratch. window: that one, where it is of this node; what is of another node lies in
 * the area, from byte *area on, which moves on. */
static void bring(treadle_carry *c, const treadle_op *op, const treadle_paged *window,
                  const treadle_paged *scratch, int64_t *area) {
  if (!treadle_net_is(c, op->source)) {
    c->device->ops->copy(c->device, op, window, scratch);
    return;
  }
  const treadle_paged come = {.base = c->net.area};
  const treadle_op read = treadle_parcel_read(op, *area);
  c->device->ops->copy(c->device, &read, &come, scratch);
  *area += treadle_far_input_bytes(op);
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
static void make_blocks(const treadle_carry *c, const treadle_block_row *block_row,
                        const treadle_scratch *scratch, treadle_matrix values, treadle_matrix codes) {
  const treadle_device *device = c->device;
  treadle_dtype dtype = (treadle_dtype)block_row->value_dtype;
  int64_t column = 0;
  for (int64_t block = 0; column < block_row->columns; block++) {
    int64_t columns = block_row->block_columns - (block == 0 ? block_row->skip : 0);
    if (columns > block_row->columns - column) columns = block_row->columns - column;
    const treadle_matrix of_values = treadle_matrix_at(values, column * values.column_stride),
                         of_codes = treadle_matrix_at(codes, column);
    float *scale = &scratch->scales[block];
    if (block_row->quantises)
      device->ops->quantise(device, of_codes, scale, of_values, dtype, block_row->rows, columns);
    else
      device->ops->dequantise(device, of_values, dtype, of_codes, scale, block_row->rows, columns);
    column += columns;
  }
}

/* ---- Planted faults ---- */

static bool is_spoiled(const treadle_carry *c, treadle_fault fault, size_t run) {
  return c->faults.planted == fault && c->faults.at == run;
}

static treadle_status spoil_scale(treadle_carry *c, const treadle_block_row *run) {
  treadle_status status = TREADLE_OK;
  const treadle_device *device = c->device;
  float scale;
  if (!is_spoiled(c, TREADLE_FAULT_BLOCK_ROW_SCALE,
                  (size_t)(run - treadle_carry_direction(c, c->to)->block_rows.items)))
    return TREADLE_OK;
  device->ops->move(device, &scale, c->run.scratch.scales, sizeof scale);
  TRY(device->ops->fence(device));
  scale *= 2;
  device->ops->move(device, c->run.scratch.scales, &scale, sizeof scale);
  TRY(device->ops->fence(device));
out:
  return status;
}

/* ---- Waves ---- */

/* Block row `position` of a run, whose inputs of other nodes begin at byte `area`.
 * To fp8: values, blocks, then codes and scales to the window. From fp8: codes and scales, blocks, then
 * values to the window. What was made or read in place needs no copy; what is of another node never lies in place. */
static treadle_status carry_out(treadle_carry *c, const treadle_block_row *run, int32_t position,
                                int64_t area) {
  treadle_status status = TREADLE_OK;
  const treadle_block_row at = treadle_block_row_at(run, position), *block_row = &at;
  const treadle_block_row_part *parts =
      &treadle_carry_direction(c, c->to)->block_row_parts.items[block_row->part_first];
  const treadle_op first = treadle_block_row_part_at(run, &parts[0], position);
  treadle_side old = treadle_side_other(c->to);
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)block_row->value_dtype);
  const treadle_scratch *room = &c->run.scratch;
  const treadle_paged *own = &c->views[c->to][c->group->rank], values_room = treadle_paged_of(room->values),
                      codes_room = treadle_paged_of(room->codes),
                      scales_room = treadle_paged_of(room->scales);
  const treadle_paged *from = block_row->twin ? own : &c->views[old][parts[0].op.source];
  treadle_matrix values = treadle_matrix_of(room->values, block_row->columns * size, size);
  treadle_matrix codes = treadle_matrix_of(room->codes, block_row->columns, 1);
  const int32_t source = parts[0].op.source;
  bool far = treadle_net_is(c, source);
  bool has_values = !(block_row->quantises && far) &&
                    find_values(block_row->quantises ? from : own, block_row, &first, &values);
  bool cut = block_row->code_rows < block_row->rows || block_row->code_columns < block_row->columns;
  bool has_codes = !cut && (block_row->quantises || !far) &&
                   find_matrix(block_row->quantises ? own : from, block_row->codes, block_row->code_stride,
                               1, block_row, &codes);
  const treadle_op of_codes = treadle_block_row_codes(block_row, source),
                   of_scales = treadle_block_row_scales(block_row, source);
  if (block_row->quantises) {
    for (int64_t i = 0; i < block_row->parts && !has_values; i++) {
      const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
      bring(c, &op, &c->views[old][op.source], &values_room, &area);
    }
    make_blocks(c, block_row, room, values, codes);
    TRY(spoil_scale(c, run));
    if (!has_codes) c->device->ops->copy(c->device, &of_codes, &codes_room, own);
    c->device->ops->copy(c->device, &of_scales, &scales_room, own);
  } else {
    if (!has_codes) bring(c, &of_codes, from, &codes_room, &area);
    bring(c, &of_scales, from, &scales_room, &area);
    TRY(spoil_scale(c, run));
    make_blocks(c, block_row, room, values, codes);
    for (int64_t i = 0; i < block_row->parts && !has_values; i++) {
      const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
      c->device->ops->copy(c->device, &op, &values_room, own);
    }
  }
out:
  return status;
}

void treadle_carry_block_rows_order(treadle_carry *c, const treadle_block_row *block_row,
                                    const treadle_block_row_part *parts, const treadle_scratch *scratch) {
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)block_row->value_dtype);
  const treadle_paged *windows = c->views[treadle_side_other(c->to)],
                      room = treadle_paged_of(scratch->values);
  treadle_matrix values = treadle_matrix_of(scratch->values, block_row->columns * size, size);
  const treadle_matrix codes = treadle_matrix_of(scratch->codes, block_row->columns, 1);
  const treadle_op first = treadle_block_row_part_at(block_row, &parts[0], 0);
  if (!find_values(&windows[first.source], block_row, &first, &values)) {
    for (int64_t i = 0; i < block_row->parts; i++) {
      const treadle_op op = treadle_block_row_part_at(block_row, &parts[i], 0);
      c->device->ops->copy(c->device, &op, &windows[op.source], &room);
    }
  }
  make_blocks(c, block_row, scratch, values, codes);
}

static treadle_far_input_sources far_sources(const treadle_carry *c) {
  return (treadle_far_input_sources){c->group->nodes, c->group->rank};
}

/* Where the inputs of a run begin, -1: it has none of other nodes. */
static int64_t inputs_of(const treadle_carry *c, size_t position) {
  const treadle_far_inputs *inputs = &c->net.in[c->to].inputs;
  return inputs->bytes > 0 ? inputs->at[position] : -1;
}

/* All block rows of a run have one wave. Coverage and bytes are noted once, for all of them. */
static treadle_status carry_out_run(treadle_carry *c, size_t position, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_carry_direction(c, c->to);
  const treadle_block_row *block_row = &direction->block_rows.items[position];
  const treadle_block_row_part *parts = &direction->block_row_parts.items[block_row->part_first];
  const treadle_far_input_sources sources = far_sources(c);
  int64_t area = inputs_of(c, position),
          each = area >= 0 ? treadle_far_inputs_each(&sources, block_row, parts) : 0;
  for (int32_t i = 0; i < block_row->count; i++) {
    TRY(treadle_carry_look(c));
    TRY(carry_out(c, block_row, i, area + i * each));
  }
  c->run.blocks[position].mark += treadle_block_row_mark(block_row, parts);
  c->run.blocks[position].times++;
  c->run.blocks[position].wave = wave;
  c->figures->copied_bytes += (size_t)treadle_block_row_written(block_row, parts);
  c->figures->pulled_bytes += (size_t)treadle_block_row_moved(block_row, parts);
  for (int64_t k = 0; k < block_row->parts && area >= 0; k++)
    c->figures->node_moved_bytes +=
        (size_t)treadle_net_part_bytes(sources.nodes, sources.rank, block_row, &parts[k]);
out:
  return status;
}

static treadle_turn turn_of(const treadle_carry *c, size_t position) {
  if (treadle_carry_direction(c, c->to)->block_rows.items[position].twin) return TREADLE_TURN_TWIN;
  return inputs_of(c, position) < 0 ? TREADLE_TURN_NEAR : TREADLE_TURN_FAR;
}

treadle_status treadle_carry_block_rows_run(treadle_carry *c, int32_t wave, treadle_turn turn) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_carry_direction(c, c->to);
  for (int32_t i = direction->block_row_first[wave]; i < direction->block_row_first[wave + 1]; i++)
    if (turn_of(c, (size_t)i) == turn && !is_spoiled(c, TREADLE_FAULT_BLOCK_ROW_DROP, (size_t)i) &&
        !is_spoiled(c, TREADLE_FAULT_BLOCK_ROW_LATE, (size_t)i))
      TRY(carry_out_run(c, (size_t)i, wave));
  if (c->faults.planted == TREADLE_FAULT_BLOCK_ROW_LATE && wave == c->plan->waves - 1 &&
      turn_of(c, c->faults.at) == turn)
    TRY(carry_out_run(c, c->faults.at, wave));
out:
  return status;
}

treadle_status treadle_carry_block_rows_check(const treadle_carry *c, uint64_t *sum_p) {
  const treadle_direction *direction = treadle_carry_direction(c, c->to);
  for (size_t i = 0; i < direction->block_rows.count; i++) {
    const treadle_block_row *block_row = &direction->block_rows.items[i];
    *sum_p += c->run.blocks[i].mark;
    if (c->run.blocks[i].times != 1)
      return treadle_fail(
          TREADLE_DIFFERENT,
          "coverage: rank %d: blocks of tensor '%s' in wave %d were written %u times (bytes %" PRId64 "..)",
          c->group->rank, c->plan->from->model->tensors[block_row->tensor].name, block_row->wave,
          c->run.blocks[i].times, block_row->codes);
    if (c->run.blocks[i].wave != block_row->wave)
      return treadle_fail(
          TREADLE_DIFFERENT,
          "coverage: rank %d: blocks of tensor '%s' were made in wave %d instead of wave %d",
          c->group->rank, c->plan->from->model->tensors[block_row->tensor].name, c->run.blocks[i].wave,
          block_row->wave);
  }
  return TREADLE_OK;
}

/* The block rows of a wave: quantising to fp8 blocks, and dequantising from them.
 *
 * To fp8, values become codes and scales, block by block; from fp8 it is the other way round. What lies in one piece in a
 * window is read or written there. Mostly that is all: the values of a block row are in one piece, or in several that are
 * cut between blocks, and its codes and scales are in one piece each. All else goes through scratch: copies before the
 * blocks are made, and after.
 *
 * Block rows are asked for together, in three calls: copies to scratch, blocks, copies from scratch. On a device there is scratch for many of
 * them; the host makes one after the other, so that it stays in caches. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/larger.h"

#include <inttypes.h>

/* ---- Scratch ---- */

enum { ALIGNMENT = 64, SCRATCH_OF_DEVICE = 16 << 20, MOST_SLOTS = 64 };

static int64_t rounded(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

treadle_status treadle_scratch_create(const treadle_device *device, int64_t values, int64_t codes,
                                      int64_t scales, int slots, treadle_scratch *s) {
  s->value_bytes = rounded(values);
  s->code_bytes = rounded(codes);
  s->scale_bytes = rounded(scales * (int64_t)sizeof(float));
  s->slots = slots;
  s->values = device->ops->scratch(device, (size_t)(slots * s->value_bytes));
  s->codes = device->ops->scratch(device, (size_t)(slots * s->code_bytes));
  s->scales = device->ops->scratch(device, (size_t)(slots * s->scale_bytes));
  if (s->values && s->codes && s->scales) return TREADLE_OK;
  const treadle_status failed = device->ops->fence(device); /* it may be the device that is out */
  return failed == TREADLE_OK ? treadle_memory_is_out() : failed;
}

void treadle_scratch_release(const treadle_device *device, treadle_scratch *scratch) {
  if (scratch->values) device->ops->scratch_release(device, scratch->values);
  if (scratch->codes) device->ops->scratch_release(device, scratch->codes);
  if (scratch->scales) device->ops->scratch_release(device, scratch->scales);
  *scratch = (treadle_scratch){0};
}

/* Of a slot: values [rows, columns] and codes [rows, columns], row-major, scales [blocks]. */
typedef struct room {
  treadle_paged values, codes, scales;
} room;

static room room_of(const treadle_scratch *s, int slot) {
  return (room){treadle_paged_of(s->values + slot * s->value_bytes),
                treadle_paged_of(s->codes + slot * s->code_bytes),
                treadle_paged_of(s->scales + slot * s->scale_bytes)};
}

/* As large as the largest block row of both directions. */
static treadle_status create_scratch(treadle_carry *c) {
  const treadle_direction *a = &c->plan->forward, *b = &c->plan->back;
  const int64_t values = treadle_larger(a->scratch_bytes, b->scratch_bytes),
                codes = treadle_larger(a->scratch_codes, b->scratch_codes),
                scales = treadle_larger(a->scratch_scales, b->scratch_scales);
  const int64_t fit = SCRATCH_OF_DEVICE / (values + codes + scales + 1);
  const int most = fit > MOST_SLOTS ? MOST_SLOTS : fit > 1 ? (int)fit : 1;
  return treadle_scratch_create(c->device, values, codes, scales,
                                treadle_device_is_host(c->device) ? 1 : most, &c->run.scratch);
}

treadle_status treadle_carry_block_rows_create(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  const size_t a = c->plan->forward.block_rows.count, b = c->plan->back.block_rows.count,
               count = (a > b ? a : b) + 1;
  c->run.blocks = treadle_alloc_array(count, sizeof *c->run.blocks);
  c->run.batch = treadle_alloc(sizeof *c->run.batch);
  TRY(create_scratch(c));
  if (!c->run.blocks || !c->run.batch) return treadle_memory_is_out();
  memset(c->run.blocks, 0, count * sizeof *c->run.blocks); /* touched */
  memset(c->run.batch, 0, sizeof *c->run.batch);
out:
  return status;
}

void treadle_carry_block_rows_release(treadle_carry *c) {
  treadle_free(c->run.blocks);
  treadle_free(c->run.batch);
  treadle_scratch_release(c->device, &c->run.scratch);
}

/* ---- What is asked for together ---- */

static void ask(treadle_carry *c) {
  treadle_block_batch *batch = c->run.batch;
  treadle_copies_ask(c, &batch->in);
  if (batch->strip_count > 0) c->device->ops->blocks(c->device, batch->strips, batch->strip_count);
  batch->strip_count = 0;
  treadle_copies_ask(c, &batch->out);
}

/* And its scratch is free for others. */
static void ask_whole(treadle_carry *c) {
  ask(c);
  c->run.batch->slot = 0;
}

static room take_room(treadle_carry *c) {
  if (c->run.batch->slot == c->run.scratch.slots) ask_whole(c);
  return room_of(&c->run.scratch, c->run.batch->slot++);
}

static void add_strip(treadle_carry *c, const treadle_strip *strip) {
  if (c->run.batch->strip_count == TREADLE_STRIPS) ask(c);
  c->run.batch->strips[c->run.batch->strip_count++] = *strip;
}

static void add_out(treadle_carry *c, const treadle_op *op, const treadle_paged *scratch) {
  if (c->run.batch->out.count == TREADLE_COPIES) ask(c);
  treadle_copies_add(c, &c->run.batch->out, op, scratch, &c->views[c->to][c->group->rank]);
}

/* What a rank has in its window goes to scratch. window: that one, where it is of this node; what is of another node lies in
 * the area, from byte *area on, which moves on. */
static void bring(treadle_carry *c, const treadle_op *op, const treadle_paged *window,
                  const treadle_paged *scratch, int64_t *area) {
  if (!treadle_net_is(c, op->source)) {
    treadle_copies_add(c, &c->run.batch->in, op, window, scratch);
    return;
  }
  const treadle_paged come = {.base = c->net.area};
  const treadle_op read = treadle_parcel_read(op, *area);
  treadle_copies_add(c, &c->run.batch->in, &read, &come, scratch);
  *area += treadle_far_input_bytes(op);
}

/* ---- What lies in one piece in a window ---- */

/* A matrix [rows, columns] at these distances, where its pages follow each other in memory. size: of a value. From the
 * first element to the last, both included, 3 rows of 100 bytes that begin every 128 bytes are 356. */
static bool find_matrix(const treadle_paged *window, int64_t at, treadle_matrix form, int64_t size,
                        int64_t rows, int64_t columns, treadle_matrix *matrix_p) {
  const int64_t bytes = (rows - 1) * form.row_stride + (columns - 1) * form.column_stride + size;
  if ((rows > 1 && form.row_stride < 0) || (columns > 1 && form.column_stride < size) ||
      treadle_paged_extent(window, at, bytes) < bytes)
    return false;
  form.base = treadle_paged_address(window, at);
  form.into = window->into ? treadle_paged_into(window, at) : NULL;
  *matrix_p = form;
  return true;
}

static bool find_codes(const treadle_paged *window, const treadle_block_row *row, treadle_matrix *codes_p) {
  const bool cut = row->code_rows < row->rows || row->code_columns < row->columns;
  const treadle_matrix form = {.row_stride = row->code_stride, .column_stride = 1};
  return !cut && find_matrix(window, row->codes, form, 1, row->rows, row->columns, codes_p);
}

static bool find_scales(const treadle_paged *window, const treadle_block_row *row,
                        treadle_matrix *scales_p) {
  const treadle_matrix form = {.column_stride = row->scale_stride};
  return find_matrix(window, row->scales, form, (int64_t)sizeof(float), 1, treadle_block_row_blocks(row),
                     scales_p);
}

/* Values of an op that are whole columns in one piece of a window, from a block's first to a block's last. */
typedef struct place {
  treadle_matrix values;
  int64_t column, columns; /* of the block row */
} place;

static bool find_values(const treadle_paged *window, const treadle_block_row *row, const treadle_op *op,
                        place *place_p) {
  const int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)row->value_dtype), last = op->ndim - 1;
  const int64_t *stride = row->quantises ? op->from_stride : op->to_stride;
  const int64_t *in_scratch = row->quantises ? op->to_stride : op->from_stride;
  const int64_t column = (row->quantises ? op->to : op->from) / size; /* in the scratch's first row */
  const bool rows = op->ndim == 2 && op->size[0] == row->rows && in_scratch[0] == row->columns * size,
             one = op->ndim == 1 && op->size[0] == (int64_t)row->rows * row->columns;
  if (op->add || op->from_dtype != op->to_dtype || !(rows || one) || stride[last] != size ||
      in_scratch[last] != size || column >= row->columns) /* a square may lie there transposed */
    return false;
  const int64_t columns = rows ? op->size[1] : row->columns, end = column + columns,
                before = column > 0 ? column + row->skip : 0;
  if (before % row->block_columns != 0 ||
      (end < row->columns && (end + row->skip) % row->block_columns != 0))
    return false;
  const treadle_matrix form = {.row_stride = rows ? stride[0] : columns * size, .column_stride = size};
  place_p->column = column;
  place_p->columns = columns;
  return find_matrix(window, row->quantises ? op->from : op->to, form, size, row->rows, columns,
                     &place_p->values);
}

/* The part of a strip that has these values. */
static treadle_strip strip_at(const treadle_strip *whole, const place *at) {
  treadle_strip strip = *whole;
  strip.values = at->values;
  strip.columns = at->columns;
  if (at->column == 0) return strip;
  const int64_t blocks = (at->column + whole->skip) / whole->width;
  strip.codes = treadle_matrix_at(whole->codes, at->column * whole->codes.column_stride);
  strip.scales = treadle_matrix_at(whole->scales, blocks * whole->scales.column_stride);
  strip.skip = 0;
  return strip;
}

/* ---- Block rows ---- */

/* A block row alone, `position` of its run. */
typedef struct making {
  treadle_block_row row;
  const treadle_block_row *run;
  const treadle_block_row_part *parts;
  int32_t position;
  treadle_strip strip; /* all of it */
  bool has_values;     /* all parts lie where they may stay */
} making;

static treadle_op part_of(const making *m, int64_t i) {
  return treadle_block_row_part_at(m->run, &m->parts[i], m->position);
}

/* Where values lie in a window. */
static const treadle_paged *window_of(const treadle_carry *c, const making *m, const treadle_op *op) {
  return m->row.quantises ? &c->views[treadle_side_other(c->to)][op->source]
                          : &c->views[c->to][c->group->rank];
}

static bool has_all_values(const treadle_carry *c, const making *m) {
  place at;
  for (int64_t i = 0; i < m->row.parts; i++) {
    const treadle_op op = part_of(m, i);
    if ((m->row.quantises && treadle_net_is(c, op.source)) ||
        !find_values(window_of(c, m, &op), &m->row, &op, &at))
      return false;
  }
  return true;
}

static making begin(const treadle_carry *c, const treadle_block_row *run,
                    const treadle_block_row_part *parts, int32_t position) {
  making m = {.row = treadle_block_row_at(run, position), .run = run, .parts = parts, .position = position};
  m.strip = (treadle_strip){.rows = m.row.rows,
                            .columns = m.row.columns,
                            .width = m.row.block_columns,
                            .skip = m.row.skip,
                            .dtype = (treadle_dtype)m.row.value_dtype,
                            .back = !m.row.quantises};
  m.has_values = has_all_values(c, &m);
  return m;
}

/* What has no place of its own has one in scratch. */
static void use_room(making *m, const room *r, bool codes, bool scales) {
  const int64_t size = (int64_t)treadle_dtype_bytes(m->strip.dtype);
  if (!m->has_values) m->strip.values = treadle_matrix_of(r->values.into, m->row.columns * size, size);
  if (codes) m->strip.codes = treadle_matrix_of(r->codes.into, m->row.columns, 1);
  if (scales) m->strip.scales = treadle_matrix_of(r->scales.into, 0, (int64_t)sizeof(float));
}

static void add_strips(treadle_carry *c, const making *m) {
  if (!m->has_values) {
    add_strip(c, &m->strip);
    return;
  }
  for (int64_t i = 0; i < m->row.parts; i++) {
    place at = {0};
    const treadle_op op = part_of(m, i);
    (void)find_values(window_of(c, m, &op), &m->row, &op, &at); /* again as it was found */
    const treadle_strip strip = strip_at(&m->strip, &at);
    add_strip(c, &strip);
  }
}

/* ---- Planted faults ---- */

static bool is_spoiled(const treadle_carry *c, treadle_fault fault, size_t run) {
  return c->faults.planted == fault && c->faults.at == run;
}

static treadle_status spoil_scale(treadle_carry *c, const room *r) {
  treadle_status status = TREADLE_OK;
  const treadle_device *device = c->device;
  float scale;
  ask(c);
  device->ops->move(device, &scale, r->scales.base, sizeof scale);
  TRY(device->ops->fence(device));
  scale *= 2;
  device->ops->move(device, r->scales.into, &scale, sizeof scale);
  TRY(device->ops->fence(device));
out:
  return status;
}

/* ---- Waves ---- */

void treadle_carry_block_rows_begin(treadle_carry *c) {
  treadle_block_batch *batch = c->run.batch;
  memset(c->run.blocks, 0, treadle_carry_direction(c, c->to)->block_rows.count * sizeof *c->run.blocks);
  treadle_copies_begin(&batch->in, false);
  treadle_copies_begin(&batch->out, false);
  batch->strip_count = 0;
  batch->slot = 0;
}

/* Block row `position` of a run, whose inputs of other nodes begin at byte `area`.
 * To fp8: values, blocks, then codes and scales to the window. From fp8: codes and scales, blocks, then
 * values to the window. What is of another node never lies in place. */
static treadle_status carry_out(treadle_carry *c, const treadle_block_row *run, int32_t position,
                                int64_t area, bool spoiled) {
  treadle_status status = TREADLE_OK;
  making m =
      begin(c, run, &treadle_carry_direction(c, c->to)->block_row_parts.items[run->part_first], position);
  const treadle_block_row *row = &m.row;
  const int32_t source = m.parts[0].op.source;
  const treadle_paged *own = &c->views[c->to][c->group->rank];
  const treadle_paged *from = row->twin ? own : &c->views[treadle_side_other(c->to)][source];
  const treadle_paged *coded = row->quantises ? own : from; /* the window of codes and scales */
  const bool near = row->quantises || !treadle_net_is(c, source);
  const bool has_codes = near && find_codes(coded, row, &m.strip.codes),
             has_scales = near && !spoiled && find_scales(coded, row, &m.strip.scales);
  const treadle_op of_codes = treadle_block_row_codes(row, source),
                   of_scales = treadle_block_row_scales(row, source);
  room r = {{0}, {0}, {0}};
  if (!m.has_values || !has_codes || !has_scales) r = take_room(c);
  use_room(&m, &r, !has_codes, !has_scales);
  if (row->quantises) {
    for (int64_t i = 0; i < row->parts && !m.has_values; i++) {
      const treadle_op op = part_of(&m, i);
      bring(c, &op, window_of(c, &m, &op), &r.values, &area);
    }
    add_strips(c, &m);
    if (spoiled) TRY(spoil_scale(c, &r));
    if (!has_codes) add_out(c, &of_codes, &r.codes);
    if (!has_scales) add_out(c, &of_scales, &r.scales);
  } else {
    if (!has_codes) bring(c, &of_codes, from, &r.codes, &area);
    if (!has_scales) bring(c, &of_scales, from, &r.scales, &area);
    if (spoiled) TRY(spoil_scale(c, &r));
    add_strips(c, &m);
    for (int64_t i = 0; i < row->parts && !m.has_values; i++) {
      const treadle_op op = part_of(&m, i);
      add_out(c, &op, &r.values);
    }
  }
out:
  return status;
}

void treadle_carry_block_rows_order(treadle_carry *c, const treadle_block_row *block_row,
                                    const treadle_block_row_part *parts, const treadle_scratch *scratch) {
  making m = begin(c, block_row, parts, 0);
  const room r = room_of(scratch, 0);
  int64_t none = 0;
  use_room(&m, &r, true, true);
  for (int64_t i = 0; i < m.row.parts && !m.has_values; i++) {
    const treadle_op op = part_of(&m, i);
    bring(c, &op, window_of(c, &m, &op), &r.values, &none);
  }
  add_strips(c, &m);
  ask_whole(c);
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
    TRY(carry_out(c, block_row, i, area + i * each,
                  is_spoiled(c, TREADLE_FAULT_BLOCK_ROW_SCALE, position)));
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
  ask_whole(c);
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

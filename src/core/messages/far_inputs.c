#include "messages/far_inputs.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "messages/outbound.h"

/* The window's side has rows at code_stride. Scratch is [rows, columns], of which the window may have a part: [code_rows, code_columns]
 * from (code_row, code_column) on. */
treadle_op treadle_block_row_codes(const treadle_block_row *block_row, int32_t rank) {
  bool write = block_row->quantises;
  treadle_op op = {.wave = block_row->wave,
                   .source = rank,
                   .from_dtype = TREADLE_FP8_E4M3,
                   .to_dtype = TREADLE_FP8_E4M3,
                   .tensor = block_row->tensor,
                   .ndim = 2,
                   .size = {block_row->code_rows, block_row->code_columns},
                   .elems = (int64_t)block_row->code_rows * block_row->code_columns};
  op.from_stride[1] = op.to_stride[1] = 1;
  *(write ? op.to_stride : op.from_stride) = block_row->code_stride;
  *(write ? op.from_stride : op.to_stride) = block_row->columns;
  *(write ? &op.to : &op.from) = block_row->codes;
  *(write ? &op.from : &op.to) = (int64_t)block_row->code_row * block_row->columns + block_row->code_column;
  return op;
}

/* One behind the other in scratch, at scale_stride in the window. */
treadle_op treadle_block_row_scales(const treadle_block_row *block_row, int32_t rank) {
  bool write = block_row->quantises;
  int64_t each = (int64_t)sizeof(float), blocks = treadle_block_row_blocks(block_row);
  treadle_op op = {.wave = block_row->wave,
                   .source = rank,
                   .from_dtype = TREADLE_FP32,
                   .to_dtype = TREADLE_FP32,
                   .tensor = block_row->tensor,
                   .ndim = 1,
                   .size = {blocks},
                   .elems = blocks};
  *(write ? op.to_stride : op.from_stride) = block_row->scale_stride;
  *(write ? op.from_stride : op.to_stride) = each;
  *(write ? &op.to : &op.from) = block_row->scales;
  return op;
}

bool treadle_far_input_is(const treadle_far_input_sources *sources, int32_t source) {
  if (!sources->nodes) return source == sources->rank;
  return sources->nodes->of[source] != sources->nodes->of[sources->rank];
}

static treadle_status walk_one(const treadle_far_input_sources *sources, const treadle_block_row *run,
                               const treadle_block_row_part *parts, int32_t position,
                               treadle_far_input_emit take, void *context) {
  treadle_status status = TREADLE_OK;
  if (run->quantises) {
    for (int64_t k = 0; k < run->parts; k++) {
      if (!treadle_far_input_is(sources, parts[k].op.source)) continue;
      const treadle_op op = treadle_block_row_part_at(run, &parts[k], position);
      TRY(take(context, &op));
    }
  } else if (!run->twin && run->parts > 0 && treadle_far_input_is(sources, parts[0].op.source)) {
    const treadle_block_row block_row = treadle_block_row_at(run, position);
    const treadle_op codes = treadle_block_row_codes(&block_row, parts[0].op.source),
                     scales = treadle_block_row_scales(&block_row, parts[0].op.source);
    TRY(take(context, &codes));
    TRY(take(context, &scales));
  }
out:
  return status;
}

treadle_status treadle_far_inputs_walk(const treadle_far_input_sources *sources,
                                       const treadle_block_row *run, const treadle_block_row_part *parts,
                                       treadle_far_input_emit take, void *context) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < run->count; i++) TRY(walk_one(sources, run, parts, i, take, context));
out:
  return status;
}

int64_t treadle_far_input_bytes(const treadle_op *op) {
  int64_t bytes = op->elems * (int64_t)treadle_dtype_narrower_bytes((treadle_dtype)op->from_dtype,
                                                                    (treadle_dtype)op->to_dtype);
  return (bytes + TREADLE_STAGING_ALIGNMENT - 1) / TREADLE_STAGING_ALIGNMENT * TREADLE_STAGING_ALIGNMENT;
}

static treadle_status add_bytes(void *context, const treadle_op *op) {
  *(int64_t *)context += treadle_far_input_bytes(op);
  return TREADLE_OK;
}

int64_t treadle_far_inputs_each(const treadle_far_input_sources *sources, const treadle_block_row *run,
                                const treadle_block_row_part *parts) {
  int64_t bytes = 0;
  (void)walk_one(sources, run, parts, 0, add_bytes, &bytes); /* fails only with its `take` */
  return bytes;
}

treadle_status treadle_far_inputs_make(const treadle_direction *direction, int32_t waves,
                                       const treadle_far_input_sources *sources,
                                       treadle_far_inputs *inputs) {
  size_t count = direction->block_rows.count;
  treadle_far_inputs_release(inputs);
  inputs->at = treadle_alloc_array(count + 1, sizeof *inputs->at);
  if (!inputs->at) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  for (int32_t wave = 0; wave < waves && count > 0; wave++) {
    int64_t end = 0;
    for (int32_t i = direction->block_row_first[wave]; i < direction->block_row_first[wave + 1]; i++) {
      const treadle_block_row *run = &direction->block_rows.items[i];
      int64_t each =
          treadle_far_inputs_each(sources, run, direction->block_row_parts.items + run->part_first);
      inputs->at[i] = each > 0 ? end : -1;
      end += run->count * each;
    }
    if (end > inputs->bytes) inputs->bytes = end;
  }
  return TREADLE_OK;
}

void treadle_far_inputs_release(treadle_far_inputs *inputs) {
  treadle_free(inputs->at);
  *inputs = (treadle_far_inputs){0};
}

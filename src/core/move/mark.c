/* What ops and block rows write: the marks that coverage is the sum of, and bytes. */
#include "move/move.h"

#include "base/argument.h"
#include "base/hash.h"

uint64_t treadle_op_mark(const treadle_op *op) {
  TREADLE_NEED_OR(op, 0);
  uint64_t mark = treadle_hash_more((uint64_t)op->to, op->to_dtype);
  for (int d = 0; d < op->ndim; d++) {
    mark = treadle_hash_more(mark, (uint64_t)op->size[d]);
    mark = treadle_hash_more(mark, (uint64_t)op->to_stride[d]);
  }
  return mark;
}

uint64_t treadle_block_row_mark(const treadle_block_row *block_row, const treadle_block_row_part *parts) {
  uint64_t mark = treadle_hash_more(
      (uint64_t)block_row->code_rows << 32 | (uint32_t)block_row->code_columns, block_row->quantises);
  mark = treadle_hash_more(mark, (uint64_t)block_row->count);
  if (block_row->quantises) {
    mark = treadle_hash_more(mark, (uint64_t)block_row->code_step);
    mark = treadle_hash_more(mark, (uint64_t)block_row->scale_step);
    mark = treadle_hash_more(mark, (uint64_t)block_row->codes);
    mark = treadle_hash_more(mark, (uint64_t)block_row->code_stride);
    return treadle_hash_more(mark, (uint64_t)block_row->scales);
  }
  for (int64_t i = 0; i < block_row->parts; i++) {
    const treadle_op op = treadle_block_row_part_at(block_row, &parts[i], 0);
    mark = treadle_hash_more(mark, treadle_op_mark(&op));
    mark = treadle_hash_more(mark, (uint64_t)parts[i].step);
  }
  return mark;
}

int64_t treadle_block_row_written(const treadle_block_row *block_row, const treadle_block_row_part *parts) {
  int64_t bytes = 0;
  if (block_row->quantises)
    return block_row->count * ((int64_t)block_row->code_rows * block_row->code_columns +
                               treadle_block_row_blocks(block_row) * (int64_t)sizeof(float));
  for (int64_t i = 0; i < block_row->parts; i++)
    bytes += parts[i].op.elems * (int64_t)treadle_dtype_bytes((treadle_dtype)parts[i].op.to_dtype);
  return block_row->count * bytes;
}

int64_t treadle_block_row_moved(const treadle_block_row *block_row, const treadle_block_row_part *parts) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < block_row->parts; i++) bytes += parts[i].moved;
  return block_row->count * bytes;
}

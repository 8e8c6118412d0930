/* What planners emit and devices run, as data: one strided copy (op), and one row of fp8 blocks (block row). */
#ifndef TREADLE_MOVE_MOVE_H
#define TREADLE_MOVE_MOVE_H

#include "base/array.h"
#include "base/dtype.h"
#include "treadle_device.h"

#include <stdbool.h>

/* Rows and columns of a block of fp8. */
enum { TREADLE_BLOCK_ROW_SIDE = 128 };

/* Of an op (treadle_device.h), what planners and the carry use, besides what a device reads:
 *
 *   wave     of the direction it belongs to: 0 runs first
 *   source   physical rank whose window is read; -1: a fill
 *   twin     it reads the destination window of its source: this rank's own, after the wave's other copies; another rank's (a relay), when
 *            that one's pulls of the wave have arrived
 *   wire     of a relay: bytes of an element as it came to its source; else 0
 *   tensor   canonical, for messages; of a fill what it fills with
 *   storage  of the destination window
 *   made     not 0: fp8 codes that the source makes of its values, or the fp32 scales of their blocks (plan/block_rows.h). Then `from` is not a
 *            place in a window: it counts bytes of all codes of the tensor, in whole rows of blocks, or of all scales; a row of blocks has this
 *            many of them.
 *
 * The fastest axis has both strides equal to the element sizes wherever the tensors allow. */
typedef TREADLE_ARRAY(treadle_op) treadle_op_array;

/* A row of fp8 blocks, or of parts of blocks, that is quantised or dequantised on its way (plan/block_rows.h): its values lie in
 * scratch memory in between, row-major, rows x columns of value_dtype. Block rows of one wave that are alike, but for lying one
 * step further each, are one run: the first of them, and how many there are. Runs of several waves may share their parts. */
typedef struct treadle_block_row {
  int32_t wave;
  int32_t tensor, storage; /* canonical, for messages; of the destination window */
  int32_t count;           /* of the run; scratch is used again for each */
  int32_t begin;           /* of the run, among the block rows that share its parts */
  bool
      quantises; /* parts bring values to scratch, codes and scales are made of them and written; else codes
                              and scales are read, and parts take the values out of scratch */
  bool twin;     /* the codes that are read are those of this rank's own destination window */
  uint8_t value_dtype;
  int32_t rows, columns; /* rows of one block at the most; any columns */
  int32_t skip;          /* columns of the first block that lie in front */
  int32_t block_columns; /* of a whole block */
  int32_t code_row, code_rows, code_column,
      code_columns;              /* those of them whose codes the window has: all, but where blocks
                                                             that are quantised are cut */
  int64_t codes, code_stride;    /* bytes: the first code that its window has, and from row to row */
  int64_t scales, scale_stride;  /* bytes: the scale of the first block, and from block to block */
  int64_t code_step, scale_step; /* bytes: from one block row of the run to the next */
  int64_t part_first, parts;
} treadle_block_row;

/* A copy between a window and scratch. Its source is the rank whose values or codes are read. */
typedef struct treadle_block_row_part {
  treadle_op op; /* of the first block row that has it; the side of scratch counts bytes in scratch */
  int64_t step;  /* bytes: from one block row of the run to the next, in the window */
  int64_t moved; /* bytes that count as moved, in each block row */
} treadle_block_row_part;

/* One block row of a run, alone; and a copy of it. */
static inline treadle_block_row treadle_block_row_at(const treadle_block_row *run, int32_t i) {
  treadle_block_row block_row = *run;
  block_row.count = 1;
  block_row.begin += i;
  block_row.codes += i * run->code_step;
  block_row.scales += i * run->scale_step;
  return block_row;
}

static inline treadle_op treadle_block_row_part_at(const treadle_block_row *run,
                                                   const treadle_block_row_part *part, int32_t i) {
  treadle_op op = part->op;
  op.wave = run->wave;
  *(run->quantises ? &op.from : &op.to) += (run->begin + i) * part->step;
  return op;
}

typedef TREADLE_ARRAY(treadle_block_row) treadle_block_rows;
typedef TREADLE_ARRAY(treadle_block_row_part) treadle_block_row_parts;

/* Bytes that an op moves: elements in the narrower type, of relays as they came to the node. */
static inline int64_t treadle_op_moved(const treadle_op *op) {
  return op->elems * (op->wire ? op->wire
                               : (int64_t)treadle_dtype_narrower_bytes((treadle_dtype)op->from_dtype,
                                                                       (treadle_dtype)op->to_dtype));
}

/* What treadle_op_mark (treadle_device.h) is of an op, of a run of block rows, with their parts. */
uint64_t treadle_block_row_mark(const treadle_block_row *block_row, const treadle_block_row_part *parts);
/* Bytes that the block rows of a run write in the destination window, and those that count as moved. */
int64_t treadle_block_row_written(const treadle_block_row *block_row, const treadle_block_row_part *parts);
int64_t treadle_block_row_moved(const treadle_block_row *block_row, const treadle_block_row_part *parts);
/* Blocks that a block row has, or has parts of. */
static inline int64_t treadle_block_row_blocks(const treadle_block_row *block_row) {
  return ((int64_t)block_row->skip + block_row->columns + block_row->block_columns - 1) /
         block_row->block_columns;
}

#endif

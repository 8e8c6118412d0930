/* What a source makes for readers on other nodes: rows of fp8 blocks, of values that it has whole, alone or with other ranks of its node. Each is made once for all of its codes and
 * scales that go one behind the other, in scratch [rows, columns] and [blocks]. */
#ifndef TREADLE_MESSAGES_ORDERED_H
#define TREADLE_MESSAGES_ORDERED_H

#include "base/hash_index.h"
#include "plan/block_rows.h"

/* While messages are made. */
typedef struct treadle_ordered_walk {
  const treadle_plan *plan;
  bool back;
  treadle_sink sink;
  treadle_near near;
  treadle_block_row_walk walk;
  treadle_hash_index found;
} treadle_ordered_walk;

/* A row of blocks, and where its columns begin. */
typedef struct treadle_ordered_row {
  treadle_block_row block_row; /* its codes are all in scratch, none in a window */
  int64_t expert, down, across, blocks;
  int64_t columns; /* of the tensor */
} treadle_ordered_row;

/* A zeroed struct makes nothing. */
typedef struct treadle_ordered {
  TREADLE_ARRAY(treadle_ordered_row) list;
  treadle_block_row_parts parts;                        /* they read windows of this rank's node */
  bool reads_others;                                    /* than this rank's */
  int64_t scratch_bytes, scratch_codes, scratch_scales; /* of the largest */
  treadle_ordered_walk *walk;                           /* NULL: all is there */
} treadle_ordered;

/* Of the rank of a plan, in one direction. */
treadle_status treadle_ordered_begin(const treadle_plan *plan, bool back, treadle_ordered *ordered);
/* What an op of a reader needs, that is `made` and of one row of blocks: `part` of `whole`, which tells the columns. */
treadle_status treadle_ordered_add(treadle_ordered *ordered, const treadle_op *whole,
                                   const treadle_op *part, int64_t *number_p);
/* The op as it reads that in scratch: of codes, or of scales. */
treadle_op treadle_ordered_read(const treadle_ordered *ordered, int64_t number, const treadle_op *op);
void treadle_ordered_end(treadle_ordered *ordered); /* what was begun */
void treadle_ordered_release(treadle_ordered *ordered);

#endif

/* Block rows: quantising to fp8 blocks and dequantising from them, while copying.
 *
 * A block row is a row of blocks: canonical rows [n * block, (n + 1) * block) of one expert. All of its elements, codes and
 * scales have one wave, that of the block row's first element, in both directions and on every rank. So a page that has a
 * part of a block is not reused before every rank has made that block. Ordinary copies of such tensors, also of codes, are
 * cut where that wave changes.
 *
 *   to fp8      each row of blocks of a destination shard is one block row: its values are brought to scratch in the
 *               type of the source, from as many ranks as have a part of it, and quantised; a shard may begin or end
 *               inside a block, which is then brought whole, and its scale may stand in several places: the first is
 *               written, the others are copies of it within the window
 *   from fp8    each row of blocks of a destination piece: codes and scales are read from one rank, dequantised to
 *               scratch, and the values taken to their places; a piece may begin inside a block, and a block may be on
 *               several ranks
 *   derived     what an fp8 layout holds in another type (W_UK) is dequantised from the codes beside it, as engines do
 *
 * Over several nodes codes are made where their values are, so that codes travel (block_rows_near.c), and values of blocks are shared
 * (block_rows_share.c).
 *
 * Counting: a block that is quantised from one other rank's values moves a byte a value, and its scale; one whose values
 * come from several ranks moves what this rank does not hold, in the type of the source. A block that is
 * dequantised moves a byte a value, and its scale once. Codes that come from another node count themselves, with their scales. */
#ifndef TREADLE_PLAN_BLOCK_ROWS_H
#define TREADLE_PLAN_BLOCK_ROWS_H

#include "layout/scale_set.h"
#include "plan/direction.h"
#include "plan/near.h"
#include "plan/step.h"

/* A box whose values this rank does not hold, and a cell that has it. */
typedef struct treadle_block_row_want {
  treadle_box box;
  treadle_cell cell;
} treadle_block_row_want;

/* Values of a box, where they are read. */
typedef struct treadle_block_row_values {
  treadle_box box;     /* what is taken */
  treadle_piece piece; /* of this one, on `rank` */
  int64_t rank;
} treadle_block_row_values;

/* Another rank that codes of the tensor at hand are read from, and what it has of one expert. */
typedef struct treadle_block_row_source {
  int64_t rank; /* -1: none */
  int64_t expert;
  treadle_pieces codes_held, scales_held;  /* of the tensor */
  treadle_placed_rectangles codes, scales; /* of the expert */
} treadle_block_row_source;

/* Columns of a row of blocks that are read from one rank. */
typedef struct treadle_block_row_columns {
  treadle_rectangle of;
  int64_t rank;
  bool twin;       /* from this rank's own destination window */
  int64_t row_end; /* block rows below may have a nearer source */
  treadle_placed_rectangle codes, scales;
} treadle_block_row_columns;

/* Another rank of the node, and where its window of `to` has codes and scales of the tensor at hand. */
typedef struct treadle_block_row_peer {
  int32_t rank;
  treadle_placed_rectangles codes, scales;
} treadle_block_row_peer;

typedef struct treadle_block_row_peer_list {
  TREADLE_ARRAY(treadle_block_row_peer) all;
  size_t count; /* of them, those of the tensor at hand */
} treadle_block_row_peer_list;

/* A rank that gets the same codes, as a number among peers; -1: this one. */
typedef struct treadle_block_row_seat {
  int32_t peer;
  const treadle_placed_rectangle *codes;
} treadle_block_row_seat;

/* A rank that gets the same values of blocks, in this piece; NULL: this one. */
typedef struct treadle_block_row_sharer {
  int32_t rank;
  const treadle_piece *piece;
} treadle_block_row_sharer;

/* Ranks that were asked for sources last, in a circle. */
typedef struct treadle_block_row_source_list {
  TREADLE_ARRAY(treadle_block_row_source) all;
  size_t last, next; /* the one asked last, and the one to be given up next */
} treadle_block_row_source_list;

typedef struct treadle_block_row_walk {
  const treadle_lanes *lanes;
  const treadle_layout *from, *to;
  int64_t rank;
  treadle_sink *sink;
  treadle_near *near; /* the caller's: the node's ranks; its `nodes` are NULL where there is one node */
  const treadle_pieces
      *lent;             /* the caller's, with sink->of_source: what that rank has of the tensor at hand */
  int32_t tensor;        /* of weights: where `blocks` and the lane at hand belong to; -1: none yet */
  treadle_blocks blocks; /* of it */
  bool has_common;
  treadle_common common; /* of the lane at hand */
  treadle_cells cells, other_cells;
  bool has_sources; /* `held` and all places are those of the tensor */
  treadle_boxes boxes, rest, spare;
  bool uneven; /* of the sources at hand one is a piece that is not a cell */
  treadle_pieces held;
  treadle_pieces
      here; /* those of `held` that have something of an expert, number here_expert; -1: of none yet */
  int64_t here_expert;
  treadle_placed_rectangles codes, scales, own_codes, own_scales;
  treadle_block_row_source_list lenders;
  TREADLE_ARRAY(treadle_block_row_columns) columns;
  bool repeats;                   /* scales stand in several places of this window */
  bool by_row;                    /* a row of blocks is made alone */
  int64_t row_moved, row_written; /* what the rows at hand move and write, for their sum */
  int64_t scales_left;            /* places whose scale is still to be made */
  treadle_block_row_peer_list peers;
  TREADLE_ARRAY(treadle_block_row_seat) seats;
  TREADLE_ARRAY(treadle_block_row_sharer) sharers; /* of the piece at hand */
  TREADLE_ARRAY(treadle_block_row_want) wanted;
  TREADLE_ARRAY(treadle_block_row_values) sources;
  treadle_block_row_parts parts; /* of the block row at hand, and their boxes */
  treadle_boxes part_boxes;
  treadle_scale_set scale_set; /* blocks of the tensor whose scale has been counted */
} treadle_block_row_walk;

void treadle_block_row_walk_init(treadle_block_row_walk *walk, const treadle_lanes *lanes,
                                 const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                 treadle_sink *sink);
void treadle_block_row_walk_release(treadle_block_row_walk *walk);

/* The step of fp8 blocks; its self is a treadle_block_row_walk. All pieces of a tensor come together, since the scale of a block counts
 * once; further copies of codes in the window are ops that copy the first. */
extern const treadle_step treadle_block_rows_step;

/* ---- Block rows one at a time, in the order that senders and readers share (messages/ordered.h) ---- */

/* Makes w->sources, which have each value of a rectangle once, and w->rest, what of it this rank has not; over nodes, what none
 * of the node has. */
treadle_status treadle_block_rows_find_sources(treadle_block_row_walk *w, const treadle_rectangle *of);
/* Makes w->parts: the copies from the sources at hand to scratch. */
treadle_status treadle_block_rows_make_parts(treadle_block_row_walk *w, const treadle_rectangle *of);
/* Turns to a tensor and to what there is of it on this rank, unless it is at hand already. */
treadle_status treadle_block_rows_start_sources(treadle_block_row_walk *w, int32_t tensor);
/* Of the tensor at hand, for messages. */
const char *treadle_block_rows_name(const treadle_block_row_walk *w);

#endif

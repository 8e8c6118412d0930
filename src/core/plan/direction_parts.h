/* What direction.c, direction_sources.c and direction_near.c share: a walk over the destination pieces of one rank. */
#ifndef TREADLE_PLAN_DIRECTION_PARTS_H
#define TREADLE_PLAN_DIRECTION_PARTS_H

#include "plan/block_rows.h"

#include "layout/piece_index.h"
#include "plan/near.h"

/* A box is striped over this many holders at most, so that the cost of a plan does not grow with the number of
 * replicas; tensors and readers begin at other holders, which spreads the rest. */
enum { TREADLE_MAX_STRIPES = 4 };

typedef struct treadle_walk {
  const treadle_lanes *lanes;
  const treadle_layout *from, *to;
  int64_t rank;
  treadle_sink *sink;
  treadle_block_row_walk block_rows;
  const treadle_step *step;   /* of the tensor at hand */
  void *self;                 /* the step's */
  const treadle_piece *piece; /* the destination piece at hand */
  treadle_common common;
  const treadle_pieces *pieces;
  treadle_pieces held, copies, values; /* of the tensor at hand: here; there; there, but for codes */
  treadle_piece_index near_held, near_copies, near_values;
  treadle_pieces lent; /* with of_source: of the tensor, there */
  treadle_piece_index near_lent;
  treadle_near near; /* the other ranks of this rank's node */
  treadle_cells to_cells, from_cells;
  treadle_boxes rest, spare, stripe, waves, done;
} treadle_walk;

/* Where a source's elements lie: offset of the element at `box.start`, strides by axis. */
typedef struct treadle_source {
  int32_t rank;
  bool twin;    /* in its destination window */
  uint8_t wire; /* of a relay: as in an op */
  treadle_dtype dtype;
  int8_t add;
  const treadle_box *box;
  int64_t offset;
  const int64_t *stride;
} treadle_source;

/* Ops of a part of w->piece, all from one source: one for each wave. */
treadle_status treadle_walk_emit_waves(treadle_walk *w, const treadle_box *box, const treadle_source *from);

/* A piece of a rank's window as a source. */
static inline treadle_source treadle_source_of(const treadle_piece *piece, int32_t rank, bool twin) {
  return (treadle_source){.rank = rank,
                          .twin = twin,
                          .dtype = piece->dtype,
                          .add = piece->add,
                          .box = &piece->box,
                          .offset = piece->offset,
                          .stride = piece->stride};
}

/* Ops of what a source has of w->rest; the rest stays there. */
treadle_status treadle_walk_take_source(treadle_walk *w, const treadle_source *from);

/* Ops of what `held` has of w->rest, which lies in `box`; the rest stays there. twin: `held` are pieces of the window that is written. */
treadle_status treadle_walk_take_held(treadle_walk *w, const treadle_box *box, const treadle_pieces *held,
                                      treadle_piece_index *piece_index, bool twin);

/* Ops of a part of w->piece that lies in one cell of each layout. */
treadle_status treadle_walk_take_box(treadle_walk *w, const treadle_box *box, const treadle_cell *from_cell,
                                     const treadle_cell *to_cell);

/* Ops of a box whose rows are striped over holders of a cell, `most` at the most; seats: of these, NULL: of all. */
treadle_status treadle_walk_take_stripes(treadle_walk *w, const treadle_box *box, const treadle_cell *cell,
                                         const treadle_seats *seats, int64_t most);

/* The same of w->rest, of which this rank has nothing, where there are several nodes. */
treadle_status treadle_walk_take_near(treadle_walk *w, const treadle_cell *from_cell,
                                      const treadle_cell *to_cell);

#endif

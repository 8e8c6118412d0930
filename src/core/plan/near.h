/* What the ranks of this rank's node have and want of a tensor, so that each byte enters the node once.
 *
 * Sources come in this order: this rank, the other ranks of its node, ranks of other nodes. What none of the node's ranks has, those that
 * want it share: each pulls some rows from other nodes, and reads the other rows from the windows of those that pull them, when their bytes of
 * the wave have arrived. Such a read is a relay: an op with `twin`, whose source is another rank. A rank that wants nothing relays
 * nothing.
 *
 * All ranks of a node come to the same shares without talking: they follow from the cells, the node's ranks, and what these have. */
#ifndef TREADLE_PLAN_NEAR_H
#define TREADLE_PLAN_NEAR_H

#include "base/nodes.h"
#include "layout/piece_index.h"

typedef struct treadle_seat { /* a rank that has a cell, and which of its holders it is */
  int32_t rank;
  int64_t holder;
} treadle_seat;

typedef TREADLE_ARRAY(treadle_seat) treadle_seats;

/* Pieces of one tensor on the ranks of a node, by rank, those of a rank by address. */
typedef struct treadle_near_pieces {
  treadle_pieces pieces;
  TREADLE_ARRAY(int32_t) rank; /* by piece */
  treadle_piece_index index;
  int32_t tensor; /* they are of this one; -1: of none yet */
} treadle_near_pieces;

/* A zeroed struct is that of one node, on which nothing is to be done. */
typedef struct treadle_near {
  const treadle_nodes *nodes; /* NULL: one node */
  int64_t rank;
  const int32_t *ranks; /* [count] of the node, ascending */
  int32_t count;
  treadle_near_pieces from, to;
  treadle_seats has, wants; /* the cells at hand */
  bool found;               /* `wants` is of the destination cell at hand */
  treadle_boxes share, rest, spare;
} treadle_near;

/* nodes: NULL, or of one node: nothing is near. */
void treadle_near_init(treadle_near *near, const treadle_nodes *nodes, int64_t rank);
void treadle_near_release(treadle_near *near);

/* The node's ranks that have a cell, each once, ascending. */
treadle_status treadle_near_find(const treadle_near *near, const treadle_layout *layout,
                                 const treadle_cell *cell, treadle_seats *seats);
/* Lists the pieces of a tensor, where they are not those at hand. */
treadle_status treadle_near_list(const treadle_near *near, const treadle_layout *layout, int32_t tensor,
                                 treadle_near_pieces *list);

#endif

/* What a rank has of each tensor in one layout, in the order of its window. */
#ifndef TREADLE_LAYOUT_HOLDINGS_H
#define TREADLE_LAYOUT_HOLDINGS_H

#include "layout/layout.h"

typedef struct treadle_holding { /* what a rank has of one tensor in one layout */
  int32_t tensor;                /* -1: a fill */
  int64_t offset;                /* of its first piece */
  uint64_t pieces;               /* equal: the same boxes, laid alike from the first piece on */
  uint64_t apart;   /* the same, codes laid alike among themselves, and values among themselves */
  int64_t first[2]; /* where its values begin, where its codes do; -1: there are none */
} treadle_holding;

/* A zeroed struct with a layout is ready. */
typedef struct treadle_holdings {
  const treadle_layout *layout;
  TREADLE_ARRAY(treadle_holding) list;
  uint64_t window;       /* its size, and where which holding has a piece */
  int32_t *at;           /* by tensor: its holding, -1 when there is none */
  int32_t *first;        /* by tensor, with forms: its first holding, fills counted */
  treadle_pieces pieces; /* of the window; with forms, of the tensor listed last */
} treadle_holdings;

/* Lists the holdings of a rank. */
treadle_status treadle_holdings_take(treadle_holdings *holdings, int64_t rank);
void treadle_holdings_release(treadle_holdings *holdings);

/* A piece, counted from `start` on each axis and from `offset` in memory. */
uint64_t treadle_piece_hash(uint64_t seed, const treadle_piece *piece, const int64_t *start,
                            int64_t offset);

#endif

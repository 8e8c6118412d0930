/* One direction of a plan: the ops of one rank that fill its window of `to` from the windows of `from`. */
#ifndef TREADLE_PLAN_DIRECTION_H
#define TREADLE_PLAN_DIRECTION_H

#include "base/nodes.h"
#include "layout/cuts.h"
#include "layout/sums.h"
#include "plan/lanes.h"
#include "plan/plan.h"

/* Takes each op as it is made; waves are canonical (those of the forward direction). */
typedef struct treadle_sink {
  treadle_status (*take)(struct treadle_sink *sink, const treadle_op *op);
  /* A block row and its parts; never called where no_sources. */
  treadle_status (*take_block_row)(struct treadle_sink *sink, const treadle_block_row *block_row,
                                   const treadle_block_row_part *parts);
  treadle_cuts cuts; /* parts that were looked at; `all` is set beforehand */
  bool no_sources;   /* sources are not wanted: only which destination bytes have which wave */
  /* Bytes that nobody has to be asked for; only where counting is not NULL. */
  void (*take_sum)(struct treadle_sink *sink, int32_t tensor, int64_t moved, int64_t written);
  const treadle_counting *counting;
  bool
      figures; /* only bytes are counted: experts that lie alike may be one piece of this rank's own windows */
  bool
      own_only; /* only ops that read this rank's own windows are wanted, and no block rows: nothing is proved */
  bool
      of_source; /* only what reads the from-window of `source` is wanted, or what it makes; of block rows more may come: nothing is proved */
  int64_t source;
  const treadle_nodes *nodes; /* whose bytes are to enter a node once; NULL: there is one node */
} treadle_sink;

/* `from` and `to` are the direction's; lanes may have them the other way round. Where sources
 * are wanted, every destination piece is proved to be tiled by its ops. */
treadle_status treadle_direction_walk(const treadle_lanes *lanes, const treadle_layout *from,
                                      const treadle_layout *to, int64_t rank, treadle_sink *sink);

/* The same of some of the window's pieces; a fill stands behind what lies before it in its storage tensor. */
treadle_status treadle_direction_walk_pieces(const treadle_lanes *lanes, const treadle_layout *from,
                                             const treadle_layout *to, int64_t rank,
                                             const treadle_pieces *pieces, treadle_sink *sink);

/* Takes the ops that read this rank's own windows, but those of tensors with fp8 blocks. */
treadle_status treadle_direction_walk_own(const treadle_lanes *lanes, const treadle_layout *from,
                                          const treadle_layout *to, int64_t rank, treadle_sink *sink);

/* Is holder number `holder` of a cell one of those over which a reader stripes what it pulls of it, of all `holders`? */
bool treadle_stripes_meet(int32_t tensor, int64_t reader, int64_t holders, int64_t holder);

/* The dimensions of an op that copies `box` between these strides by axis. */
void treadle_op_set_dims(treadle_op *op, const treadle_box *box, int axes, const int64_t *from,
                         const int64_t *to);
/* Where the first element of `box` lies, where that of `base` lies at `offset`. */
int64_t treadle_box_offset(const treadle_box *box, const treadle_box *base, const int64_t *stride,
                           int64_t offset);

#endif

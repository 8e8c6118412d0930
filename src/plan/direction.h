/* One direction of a plan: the ops of one rank that fill its window of `to` from the windows of `from`. */
#ifndef TREADLE_PLAN_DIRECTION_H
#define TREADLE_PLAN_DIRECTION_H

#include "plan/classes.h"
#include "plan/plan.h"

/* Takes each op as it is made; waves are canonical (those of the forward direction). */
typedef struct treadle_sink {
  treadle_status (*take)(struct treadle_sink *sink, const treadle_op *op);
  bool no_sources; /* sources are not wanted: only which destination bytes have which wave */
} treadle_sink;

/* `from` and `to` are the direction's; classes may have them the other way round. Every destination piece is
 * proved to be tiled by its ops. */
treadle_status treadle_direction_walk(const treadle_classes *classes, const treadle_layout *from,
                                      const treadle_layout *to, int64_t rank, treadle_sink *sink);

#endif

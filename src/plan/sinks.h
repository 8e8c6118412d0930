/* What is done with the ops of a direction as they are made. */
#ifndef TREADLE_PLAN_SINKS_H
#define TREADLE_PLAN_SINKS_H

#include "plan/direction.h"
#include "plan/pages.h"

typedef struct treadle_page_sink { /* marks pages only */
  treadle_sink sink;
  treadle_page_life *pages;
  int64_t page_bytes;
} treadle_page_sink;

treadle_page_sink treadle_page_sink_make(treadle_page_life *pages, int64_t page_bytes);

typedef struct treadle_op_sink { /* marks pages, counts bytes, and keeps ops when told to */
  treadle_sink sink;
  treadle_page_life *pages;
  int64_t page_bytes;
  int64_t rank;
  int32_t waves;
  bool reverse; /* the direction is the way back: waves are turned round */
  bool keep;
  treadle_direction *direction;
} treadle_op_sink;

treadle_op_sink treadle_op_sink_make(const treadle_plan *plan, treadle_page_life *pages, bool reverse,
                                     treadle_direction *direction);

/* Sorts the ops that were kept by wave; in a wave: own, then others beginning with the next rank, then fills,
 * then twins; then by address. Fills wave_first. */
treadle_status treadle_op_sink_sort(treadle_plan *plan, treadle_direction *direction);

#endif

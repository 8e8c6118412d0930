/* Sinks: they receive the ops of a direction as these are made. */
#ifndef TREADLE_PLAN_SINKS_H
#define TREADLE_PLAN_SINKS_H

#include "plan/direction.h"
#include "plan/pages.h"

typedef struct treadle_page_sink { /* marks pages only */
  treadle_sink sink;
  treadle_page_life *pages;
  int64_t page_bytes;
  const treadle_arrangement *arrangement; /* of the window; NULL: as its layout has it */
  struct treadle_page_sink *also;         /* marks the same ops elsewhere; NULL: none does */
} treadle_page_sink;

treadle_page_sink treadle_page_sink_make(treadle_page_life *pages, int64_t page_bytes,
                                         const treadle_arrangement *arrangement);

/* Marks pages, counts bytes, and keeps ops when told to: placed, without what lies on aliased pages. The reads of other
 * ranks' to-windows are not placed. */
typedef struct treadle_op_sink {
  treadle_sink sink;
  const treadle_arrangement *arrangement; /* of the plan's to-window */
  treadle_block_row_parts parts;          /* of the block row at hand, placed */
  treadle_page_life *pages;
  int64_t page_bytes;
  int64_t rank;
  int32_t waves;
  bool reverse; /* the direction is the way back: waves are turned round */
  bool keep;
  const int32_t *times; /* by tensor: how often its bytes count; NULL: once. Then there are no pages */
  treadle_direction *direction;
} treadle_op_sink;

treadle_op_sink treadle_op_sink_make(const treadle_plan *plan, treadle_page_life *pages, bool reverse,
                                     treadle_direction *direction);
void treadle_op_sink_release(treadle_op_sink *sink);

/* Sorts the ops that were kept by wave; in a wave: own, then others beginning with the next rank, then fills,
 * then relays beginning with the next rank, then twins; then by address. Fills wave_first. */
treadle_status treadle_op_sink_sort(treadle_plan *plan, treadle_direction *direction);

#endif

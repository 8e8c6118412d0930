/* The bytes of a rank's plan, found once for tensors that lie alike.
 *
 * Tensors whose cells are alike in both layouts, and of which the rank holds the same in both, move the same bytes. One of them is
 * walked, in both directions, and counts for all. The plain twin is a walk of whole windows (treadle_plan_measure_on without
 * tracks); a test compares them. */
#ifndef TREADLE_PLAN_TALLY_H
#define TREADLE_PLAN_TALLY_H

#include "layout/signatures.h"
#include "plan/lanes.h"
#include "plan/plan.h"

/* Adds up both directions of a plan without params kept: bytes and lower bounds. */
treadle_status treadle_tally(treadle_plan *plan, const treadle_lanes *lanes,
                             const treadle_window_tracks *tracks);

#endif

/* The work of a plan, a bound or a report: the parts that it looks at are counted, and their number is limited. */
#ifndef TREADLE_LAYOUT_CUTS_H
#define TREADLE_LAYOUT_CUTS_H

#include "layout/layout.h"

#include <stdatomic.h>

enum { TREADLE_CUTS_OF_BLOCK_ROW = 8 }; /* a row of fp8 blocks costs as much as this many other parts */

/* Of all ranks that a report plans, whichever thread does. */
typedef _Atomic int64_t treadle_cuts_of_all;

/* Of one rank and one way, zeroed but for what is known. */
typedef struct treadle_cuts {
  const treadle_layout *from, *to;
  int64_t rank;
  treadle_cuts_of_all *all; /* NULL: no others are counted with it */
  int64_t count, told;      /* told: those that `all` has been told */
} treadle_cuts;

/* Refused beyond TREADLE_MAX_CUTS, and beyond what a report over all ranks of the model may plan. */
treadle_status treadle_cuts_add(treadle_cuts *cuts, size_t count);

#endif

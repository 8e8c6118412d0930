/* What dispatch.c finds, and dispatch_rows.c does with batches. */
#ifndef TREADLE_CONTROL_DISPATCH_H
#define TREADLE_CONTROL_DISPATCH_H

#include "treadle_control.h"

struct treadle_dispatch {
  treadle_dispatch_info info;
  treadle_dispatch_argument *arguments; /* [argument_count] */
  size_t argument_count;
  bool concatenated;                    /* what comes back; one result too, whose metrics become lists */
  treadle_dispatch_share *shares;       /* [workers] */
  treadle_dispatch_functions functions; /* of a custom kind */
};

#endif

/* Kinds of ranks: ranks of one kind have the same figures (windows, bytes, bounds, peak, smallest cap), so that a report
 * over all ranks measures one of each. */
#ifndef TREADLE_PLAN_KINDS_H
#define TREADLE_PLAN_KINDS_H

#include "layout/layout.h"

typedef struct treadle_kinds {
  int32_t count;
  int32_t *of;     /* [ranks] the kind of each rank */
  int64_t *first;  /* [count] a rank of each kind: the lowest */
  int32_t *like;   /* [count] the first kind with the same bytes: its own number, but for paired kinds */
  int32_t *cut[2]; /* [count] by layout, from first: the first kind whose window is cut alike */
} treadle_kinds;

treadle_status treadle_kinds_create(const treadle_layout *from, const treadle_layout *to,
                                    treadle_kinds *kinds);
/* Kinds for plans with alias: ranks of one kind also have what they hold in both layouts at the same places of both
 * windows, so that they alias the same pages. There are more of them where stages hold what other ranks want. */
treadle_status treadle_kinds_create_paired(const treadle_layout *from, const treadle_layout *to,
                                           treadle_kinds *kinds);
void treadle_kinds_release(treadle_kinds *kinds);

#endif

/* Sets of equal ranks: ranks of one set have the same figures (windows, bytes, bounds, peak, smallest cap), so that a report
 * over all ranks measures one of each. */
#ifndef TREADLE_REPORT_EQUAL_RANKS_H
#define TREADLE_REPORT_EQUAL_RANKS_H

#include "layout/layout.h"

typedef struct treadle_equal_ranks {
  int32_t count;
  int32_t *of;     /* [ranks] the set of each rank */
  int64_t *first;  /* [count] a rank of each set: the lowest */
  int32_t *like;   /* [count] the first set with the same bytes: its own number, but for paired sets */
  int32_t *cut[2]; /* [count] by layout, from first: the first set whose window is cut alike */
} treadle_equal_ranks;

treadle_status treadle_equal_ranks_create(const treadle_layout *from, const treadle_layout *to,
                                          treadle_equal_ranks *equal_ranks);
/* Sets for plans with alias: ranks of one set also have what they hold in both layouts at the same places of both
 * windows, so that they alias the same pages. There are more of them where stages hold what other ranks want. */
treadle_status treadle_equal_ranks_create_paired(const treadle_layout *from, const treadle_layout *to,
                                                 treadle_equal_ranks *equal_ranks);
void treadle_equal_ranks_release(treadle_equal_ranks *equal_ranks);

#endif

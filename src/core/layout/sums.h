/* Sums of bytes that are the same for many ranks: for rows of fp8 blocks of which a rank has nothing itself. Any number of threads may
 * look them up and add them. If the table is full, a sum is not kept, and is computed again. */
#ifndef TREADLE_LAYOUT_SUMS_H
#define TREADLE_LAYOUT_SUMS_H

#include "layout/layout.h"

typedef struct treadle_sums treadle_sums;

treadle_status treadle_sums_create(treadle_sums **sums_p);
void treadle_sums_destroy(treadle_sums *sums);
bool treadle_sums_find(const treadle_sums *sums, uint64_t key, int64_t *sum_p);
void treadle_sums_add(treadle_sums *sums, uint64_t key, int64_t sum);

/* How tensors count for others, and where sums of other ranks are. */
typedef struct treadle_counting {
  const int32_t *times; /* by tensor: how often its bytes count */
  const uint64_t *kin;  /* treadle_kin_list of the pair */
  treadle_sums *sums;
} treadle_counting;

#endif

/* What all ranks of a switch will hold, before any of it is there: by the functions that a switch makes its plan, places its pages and counts
 * them with, run for each rank by one that meets nobody. No memory of that size is taken. */
#ifndef TREADLE_SWITCH_FORESEE_H
#define TREADLE_SWITCH_FORESEE_H

#include "treadle.h"

typedef struct treadle_foreseen {
  size_t by_mode[5][TREADLE_CLASSES]; /* by treadle_mode and class, as treadle_switch_resident has it */
  size_t shown[TREADLE_CLASSES];      /* in mode FORWARD, while the reference is there */
  size_t peak_bytes;                  /* over all arrows */
  size_t pool_bytes;
  int64_t kv_blocks;
} treadle_foreseen;

/* Of each rank its options, [ranks of the layouts], as treadle_switch_create takes them, with hooks of its engine. */
treadle_status treadle_switch_foresee(const treadle_layout *train, const treadle_layout *infer,
                                      const treadle_switch_options *options, treadle_foreseen *by_rank);

#endif

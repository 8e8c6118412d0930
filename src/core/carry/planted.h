/* What is to go wrong, on purpose (treadle_testing.h). Coverage, or comparing values, must catch it. */
#ifndef TREADLE_CARRY_PLANTED_H
#define TREADLE_CARRY_PLANTED_H

#include "move/move.h"
#include "treadle_testing.h"

typedef struct treadle_faults {
  treadle_fault planted; /* in the next run */
  size_t at;             /* which copy, or run of block rows */
  treadle_op misplaced;
  treadle_injection injection;
} treadle_faults;

static inline bool treadle_fault_is_of_copies(treadle_fault fault) {
  return fault >= TREADLE_FAULT_DROP && fault <= TREADLE_FAULT_MISPLACE;
}
static inline bool treadle_fault_is_of_block_rows(treadle_fault fault) {
  return fault >= TREADLE_FAULT_BLOCK_ROW_DROP;
}

#endif

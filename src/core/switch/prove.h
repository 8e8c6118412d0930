/* Planted mistakes, the internal part (treadle_testing.h has the public one). Coverage, or comparing values, must catch them. */
#ifndef TREADLE_SWITCH_PROVE_H
#define TREADLE_SWITCH_PROVE_H

#include "treadle_testing.h"

static inline bool treadle_fault_is_of_copies(treadle_fault fault) {
  return fault >= TREADLE_FAULT_DROP && fault <= TREADLE_FAULT_MISPLACE;
}
static inline bool treadle_fault_is_of_block_rows(treadle_fault fault) {
  return fault >= TREADLE_FAULT_BLOCK_ROW_DROP;
}

#endif

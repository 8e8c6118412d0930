/* Faults on purpose, for treadle switch --check=prove and for tests: what coverage, or comparing values, must catch. */
#ifndef TREADLE_SWITCH_PROVE_H
#define TREADLE_SWITCH_PROVE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum treadle_fault {
  TREADLE_FAULT_NONE = 0,
  TREADLE_FAULT_DROP,        /* one copy is not made */
  TREADLE_FAULT_DOUBLE,      /* one copy is made twice */
  TREADLE_FAULT_MISPLACE,    /* one copy is written at a wrong place of the window */
  TREADLE_FAULT_EARLY,       /* pages are reclaimed without waiting for who reads them */
  TREADLE_FAULT_LATE_TWIN,   /* pages are reclaimed before the twin has them */
  TREADLE_FAULT_SKIP_COMMIT, /* a rank does not wait for the others to commit */
  TREADLE_FAULT_ALIAS,       /* a page is shared with another than the plan says */
  TREADLE_FAULT_BAND_DROP,   /* a run of bands (fp8 blocks) is not made */
  TREADLE_FAULT_BAND_LATE,   /* a run of bands is made in the last wave, which is not its own */
  TREADLE_FAULT_BAND_SCALE   /* the first scale of each band of a run is doubled */
} treadle_fault;

static inline bool treadle_fault_is_of_copies(treadle_fault fault) {
  return fault >= TREADLE_FAULT_DROP && fault <= TREADLE_FAULT_MISPLACE;
}
static inline bool treadle_fault_is_of_bands(treadle_fault fault) {
  return fault >= TREADLE_FAULT_BAND_DROP;
}

/* The next switch of `rank` gets the fault; `seed` chooses which copy, or which run of bands. Called on every
 * rank or on that one alone; other ranks do nothing. Refused on `rank` when it has nothing to spoil. The switch then
 * fails on all ranks with a message that names rank, tensor and wave; mode may be LOST. But for a wrong scale: that is
 * a wrong value at the right place, so the switch goes on, and comparing the window must find it. Local. */
treadle_status treadle_switch_plant(treadle_switch *sw, treadle_fault fault, int rank, uint64_t seed);

/* Fills the pages that no class but the KV cache holds with noise made from `seed`: what the next switch writes comes to lie
 * on them. Local. */
void treadle_switch_noise(treadle_switch *sw, uint64_t seed);

#endif

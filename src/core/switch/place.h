/* Where pages lie (place.c). */
#ifndef TREADLE_SWITCH_PLACE_H
#define TREADLE_SWITCH_PLACE_H

#include "switch/terms.h"

/* What lies on no page, since own tensors lie there (own.c). */
typedef struct treadle_holes {
  uint8_t *marks[2]; /* by mode and page of the window; NULL: there are none */
  int64_t count[2];
  bool taken; /* what the options say was taken */
  treadle_arena arena;
} treadle_holes;

/* Pages of a class, without holes. */
int64_t treadle_place_held(const treadle_page_tables *place, treadle_class which);
/* What decides where pages lie. */
typedef struct treadle_place_terms {
  const treadle_plan *plan;
  const treadle_terms *terms;
  const treadle_holes *holes;
  int rank;
  size_t work_bytes;     /* of the engine's work memory */
  int64_t staging_bytes; /* in whole pages */
} treadle_place_terms;

/* Settles the physical page of each page of each window; the pool has at least `least` pages. */
treadle_status treadle_place_windows(const treadle_place_terms *in, int64_t least,
                                     treadle_page_tables *place);

#endif

/* A mapping that is made read-only for a while, and writable again, at the cost of its page tables.
 *
 * mprotect walks all pages: 40 ms a GB each way with pages of 4 KiB, where a switch that shares its pages takes
 * less. So the writable pages are moved to another address, a table at a time (0.2 ms a GB), and the mapping that
 * is left behind, with no page in it, becomes read-only: what reads it gets the same bytes by way of a fault. */
#ifndef TREADLE_MEMORY_PARKING_H
#define TREADLE_MEMORY_PARKING_H

#include "base/status.h"

#include <stdbool.h>

typedef struct treadle_parking {
  char *window; /* the mapping: one piece, shared, writable */
  size_t bytes;
  char *room, *place; /* where its pages are parked: address range, and where in it */
  bool closed, parked;
} treadle_parking;

/* The window begins at 2 MiB, as those of a pool do, and must be one mapping. */
treadle_status treadle_parking_init(treadle_parking *parking, void *window, size_t bytes);
void treadle_parking_release(
    treadle_parking *parking); /* the window stays, with whatever protection it has */

/* Writes to the window fault; or they do not any more. Where the system does not move tables, both are slower. */
void treadle_parking_close(treadle_parking *parking);
/* False: the system refuses, and the window stays closed. */
bool treadle_parking_open(treadle_parking *parking);

#endif

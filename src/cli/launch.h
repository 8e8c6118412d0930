/* Who started this process, which rank that makes it, and how it meets the others.
 *
 *   an MPI launcher   ranks and the name by which they meet come from MPI, through libtreadle_mpi.so, which is loaded only then
 *   torchrun          from its environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *   nobody            one rank
 */
#ifndef TREADLE_CLI_LAUNCH_H
#define TREADLE_CLI_LAUNCH_H

#include "base/status.h"

typedef struct treadle_launch {
  int rank, size;
  char name[65];      /* by which the ranks meet; "": one rank, alone */
  void (*stop)(void); /* ends MPI; NULL: it does not run */
} treadle_launch;

/* A failure is this process's own: whoever else there is does not know of it. */
treadle_status treadle_launch_find(treadle_launch *launch);

#endif

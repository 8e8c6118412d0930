/* Starting and stopping MPI, for programs that are run under a launcher: the command does it here, so that
 * only this folder knows MPI. The ranks then meet with treadle_group_mpi() (treadle.h). */
#ifndef TREADLE_TRANSPORT_MPI_H
#define TREADLE_TRANSPORT_MPI_H

#include "base/status.h"

/* Initialises MPI unless that is done, with errors returned instead of fatal. A process that no launcher
 * started is rank 0 of 1. Collective. */
treadle_status treadle_mpi_start(int *rank_p, int *size_p);

/* Finalises MPI if it runs. Collective: it waits for the other ranks, so not after a failed switch. */
void treadle_mpi_stop(void);

#endif

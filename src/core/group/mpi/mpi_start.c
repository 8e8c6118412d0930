/* Starting and stopping MPI. */
#include "treadle_tools.h"

#include <mpi.h>
#include <stddef.h>

treadle_status treadle_mpi_start(int *rank_p, int *size_p) {
  int running = 0;
  if (!rank_p || !size_p)
    return treadle_error_set(TREADLE_REFUSED, rank_p ? "treadle_mpi_start: no size_p (NULL)"
                                                     : "treadle_mpi_start: no rank_p (NULL)");
  if (MPI_Initialized(&running) != MPI_SUCCESS || (!running && MPI_Init(NULL, NULL) != MPI_SUCCESS))
    return treadle_error_set(TREADLE_SYSTEM, "MPI does not start");
  if (MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
      MPI_Comm_rank(MPI_COMM_WORLD, rank_p) != MPI_SUCCESS ||
      MPI_Comm_size(MPI_COMM_WORLD, size_p) != MPI_SUCCESS)
    return treadle_error_set(TREADLE_SYSTEM, "MPI does not say which rank this is");
  return TREADLE_OK;
}

void treadle_mpi_stop(void) {
  int running = 0, stopped = 0;
  if (MPI_Initialized(&running) != MPI_SUCCESS || MPI_Finalized(&stopped) != MPI_SUCCESS) return;
  if (running && !stopped) MPI_Finalize();
}

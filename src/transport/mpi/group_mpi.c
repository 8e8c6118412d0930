/* The ranks of an MPI communicator: MPI tells them a common random name, then they meet as processes of one
 * machine. No MPI call is made afterwards: a rank that dies must not take the recovery of the others with
 * it.
 *
 * This folder is a library of its own, libtreadle_mpi, so that libtreadle can be loaded where there is no MPI, or another one. It uses
 * what libtreadle shows to everybody, and treadle_mpi_meet not even that: a program that loads it by itself may have its own
 * copy of libtreadle. */
#include "treadle_tools.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* The limits of a time limit, as treadle_group_open has them, so that ranks can say beforehand that they will be refused. */
static bool is_good(double seconds) { return seconds > 0 && seconds <= 1 << 30; }

/* One door for MPI's return codes (they come back only where the communicator returns errors). */
static treadle_status check(int code, const char *call, treadle_mpi_meeting *meeting) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  if (code == MPI_SUCCESS) return TREADLE_OK;
  MPI_Error_string(code, text, &length);
  snprintf(meeting->why, sizeof meeting->why, "%s: %.400s", call, text);
  return TREADLE_SYSTEM;
}

#define CALL(call, name)                                                                                   \
  do {                                                                                                     \
    status = check(call, name, meeting);                                                                   \
    if (status != TREADLE_OK) goto out;                                                                    \
  } while (0)

/* All ranks are on one machine, or everybody refuses. */
static treadle_status check_node(MPI_Comm comm, treadle_mpi_meeting *meeting) {
  treadle_status status = TREADLE_OK;
  MPI_Comm node = MPI_COMM_NULL;
  int node_rank, first, nodes;
  CALL(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, meeting->rank, MPI_INFO_NULL, &node),
       "MPI_Comm_split_type");
  CALL(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank");
  first = node_rank == 0;
  CALL(MPI_Allreduce(&first, &nodes, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce");
  if (nodes > 1) {
    status = TREADLE_REFUSED;
    snprintf(meeting->why, sizeof meeting->why,
             "the %d ranks are on %d nodes: they meet at an address, give --meet ADDRESS:PORT of rank 0's node",
             meeting->size, nodes);
  }
out:
  if (node != MPI_COMM_NULL) MPI_Comm_free(&node);
  return status;
}

/* MPI waits without a limit, so a rank that will be refused says so before it goes. */
static treadle_status agree(MPI_Comm comm, bool refused, treadle_mpi_meeting *meeting) {
  treadle_status status = TREADLE_OK;
  int mine = refused, all = 0;
  CALL(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce");
  if (all > 0 && !refused) {
    status = TREADLE_PEER;
    snprintf(meeting->why, sizeof meeting->why, "group: the arguments of %d other ranks were refused", all);
  } else if (refused) {
    status = TREADLE_REFUSED;
  }
out:
  return status;
}

treadle_status treadle_mpi_meet(const void *comm, bool refused, treadle_mpi_meeting *meeting_p) {
  treadle_status status = TREADLE_OK;
  treadle_mpi_meeting *meeting = meeting_p;
  int running = 0, stopped = 0;
  unsigned char random[16];
  if (!meeting) return treadle_error_set(TREADLE_REFUSED, "treadle_mpi_meet: no meeting_p (NULL)");
  *meeting = (treadle_mpi_meeting){0};
  if (MPI_Initialized(&running) != MPI_SUCCESS || MPI_Finalized(&stopped) != MPI_SUCCESS || !running ||
      stopped) {
    snprintf(meeting->why, sizeof meeting->why, "group: MPI is not running; call MPI_Init first");
    return TREADLE_STATE;
  }
  MPI_Comm all = comm ? *(const MPI_Comm *)comm : MPI_COMM_WORLD;
  if (all == MPI_COMM_NULL) { /* nobody to say it to */
    snprintf(meeting->why, sizeof meeting->why, "group: no communicator (MPI_COMM_NULL)");
    return TREADLE_REFUSED;
  }
  status = agree(all, refused, meeting);
  if (status != TREADLE_OK) goto out;
  CALL(MPI_Comm_rank(all, &meeting->rank), "MPI_Comm_rank");
  CALL(MPI_Comm_size(all, &meeting->size), "MPI_Comm_size");
  status = check_node(all, meeting);
  if (status != TREADLE_OK) goto out;
  if (meeting->rank == 0 && getrandom(random, sizeof random, 0) == (ssize_t)sizeof random)
    for (size_t i = 0; i < sizeof random; i++) snprintf(meeting->name + 2 * i, 3, "%02x", random[i]);
  CALL(MPI_Bcast(meeting->name, (int)sizeof meeting->name, MPI_CHAR, 0, all), "MPI_Bcast");
  if (!meeting->name[0]) {
    status = TREADLE_SYSTEM;
    snprintf(meeting->why, sizeof meeting->why, "group: rank 0 has no random numbers");
  }
out:
  return status;
}

treadle_status treadle_group_mpi(const void *comm, double timeout_seconds, treadle_group **group_p) {
  treadle_mpi_meeting meeting;
  if (group_p) *group_p = NULL;
  treadle_status status = treadle_mpi_meet(comm, !group_p || !is_good(timeout_seconds), &meeting);
  if (!group_p) return treadle_error_set(TREADLE_REFUSED, "treadle_group_mpi: no group_p (NULL)");
  if (status != TREADLE_OK && meeting.why[0]) return treadle_error_set(status, meeting.why);
  return treadle_group_open(meeting.name, meeting.rank, meeting.size, timeout_seconds, group_p);
}

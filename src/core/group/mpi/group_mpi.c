/* The ranks of an MPI communicator: MPI tells them a common random name, then they meet as processes of one machine, or by a store at an
 * address of rank 0's, which MPI tells them, too. No MPI call is made afterwards: a rank that dies must not take the recovery of the others
 * with it.
 *
 * This folder is a library of its own, libtreadle_mpi, so that libtreadle can be loaded where there is no MPI, or another one. It uses
 * what libtreadle shows to everybody, and treadle_mpi_meet* not even that: a program that loads it by itself may have its own
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
             "group: the %d ranks are on %d nodes, and meet as ranks of one (treadle_mpi_meet_nodes is for "
             "several)",
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

/* MPI runs, there is a communicator, and no rank is refused. */
static treadle_status begin(const void *comm, bool refused, treadle_mpi_meeting *meeting, MPI_Comm *all_p) {
  treadle_status status = TREADLE_OK;
  int running = 0, stopped = 0;
  *meeting = (treadle_mpi_meeting){0};
  if (MPI_Initialized(&running) != MPI_SUCCESS || MPI_Finalized(&stopped) != MPI_SUCCESS || !running ||
      stopped) {
    snprintf(meeting->why, sizeof meeting->why, "group: MPI is not running; call MPI_Init first");
    return TREADLE_STATE;
  }
  *all_p = comm ? *(const MPI_Comm *)comm : MPI_COMM_WORLD;
  if (*all_p == MPI_COMM_NULL) { /* nobody to say it to */
    snprintf(meeting->why, sizeof meeting->why, "group: no communicator (MPI_COMM_NULL)");
    return TREADLE_REFUSED;
  }
  status = agree(*all_p, refused, meeting);
  if (status != TREADLE_OK) goto out;
  CALL(MPI_Comm_rank(*all_p, &meeting->rank), "MPI_Comm_rank");
  CALL(MPI_Comm_size(*all_p, &meeting->size), "MPI_Comm_size");
out:
  return status;
}

/* Rank 0 draws it. */
static treadle_status tell_name(MPI_Comm all, treadle_mpi_meeting *meeting) {
  treadle_status status = TREADLE_OK;
  unsigned char random[16];
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

treadle_status treadle_mpi_meet(const void *comm, bool refused, treadle_mpi_meeting *meeting_p) {
  MPI_Comm all;
  if (!meeting_p) return treadle_error_set(TREADLE_REFUSED, "treadle_mpi_meet: no meeting_p (NULL)");
  treadle_status status = begin(comm, refused, meeting_p, &all);
  if (status == TREADLE_OK) status = check_node(all, meeting_p);
  if (status == TREADLE_OK) status = tell_name(all, meeting_p);
  return status;
}

/* ---- Any number of nodes ---- */

/* Rank 0's address, where a rank is on another node than rank 0; else "". */
static treadle_status tell_address(MPI_Comm all, const treadle_node_address *mine,
                                   treadle_mpi_meeting *meeting, char *address) {
  treadle_status status = TREADLE_OK;
  treadle_node_address first = *mine;
  int elsewhere, others = 0;
  CALL(MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, all), "MPI_Bcast");
  elsewhere = memcmp(first.node, mine->node, sizeof first.node) != 0;
  CALL(MPI_Allreduce(&elsewhere, &others, 1, MPI_INT, MPI_SUM, all), "MPI_Allreduce");
  if (others == 0) return TREADLE_OK;
  if (!first.outside || !memchr(first.address, 0, sizeof first.address)) {
    snprintf(meeting->why, sizeof meeting->why,
             "%d of the %d ranks are on other nodes than rank 0, whose machine has no address by which "
             "others reach it: "
             "give one (--meet ADDRESS:PORT)",
             others, meeting->size);
    return TREADLE_REFUSED;
  }
  memcpy(address, first.address, sizeof first.address);
out:
  return status;
}

treadle_status treadle_mpi_meet_nodes(const void *comm, bool refused, const treadle_node_address *mine,
                                      treadle_mpi_meeting *meeting_p, char *address_p) {
  MPI_Comm all;
  const char *lack = !mine ? "mine" : !address_p ? "address_p" : NULL;
  if (address_p) *address_p = 0;
  if (!meeting_p) return treadle_error_set(TREADLE_REFUSED, "treadle_mpi_meet_nodes: no meeting_p (NULL)");
  treadle_status status = begin(comm, refused || lack, meeting_p, &all);
  if (lack && !meeting_p->why[0])
    snprintf(meeting_p->why, sizeof meeting_p->why, "treadle_mpi_meet_nodes: no %s (NULL)", lack);
  if (status == TREADLE_OK) status = tell_address(all, mine, meeting_p, address_p);
  if (status == TREADLE_OK) status = tell_name(all, meeting_p);
  return status;
}

/* ---- Groups ---- */

static treadle_status open_by_store(const treadle_mpi_meeting *meeting, const char *address,
                                    double timeout_seconds, treadle_group **group_p) {
  treadle_store store = TREADLE_INIT(treadle_store);
  const treadle_store_options options = {.struct_size = sizeof options,
                                         .address = address,
                                         .job = meeting->name,
                                         .rank = meeting->rank,
                                         .ranks = meeting->size,
                                         .timeout_seconds = timeout_seconds};
  treadle_status status = treadle_store_open(&options, &store);
  if (status != TREADLE_OK) return status;
  status = treadle_group_store(&store, meeting->rank, meeting->size, -1, timeout_seconds, group_p);
  treadle_store_close(&store);
  return status;
}

treadle_status treadle_group_mpi(const void *comm, double timeout_seconds, treadle_group **group_p) {
  treadle_mpi_meeting meeting;
  treadle_node_address mine;
  char address[sizeof mine.address];
  if (group_p) *group_p = NULL;
  treadle_status found = treadle_machine_address(&mine);
  treadle_status status = treadle_mpi_meet_nodes(
      comm, !group_p || found != TREADLE_OK || !is_good(timeout_seconds), &mine, &meeting, address);
  if (!group_p) return treadle_error_set(TREADLE_REFUSED, "treadle_group_mpi: no group_p (NULL)");
  if (status != TREADLE_OK && meeting.why[0]) return treadle_error_set(status, meeting.why);
  if (found != TREADLE_OK) return found;
  if (address[0]) return open_by_store(&meeting, address, timeout_seconds, group_p);
  return treadle_group_open(meeting.name, meeting.rank, meeting.size, timeout_seconds, group_p);
}

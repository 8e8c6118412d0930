/* The ranks of an MPI communicator: MPI tells them a common random name, then they meet as processes of one
 * machine. No MPI call is made afterwards: a rank that dies must not take the recovery of the others with
 * it. */
#include "transport/group.h"

#include "base/argument.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* One door for MPI's return codes (they come back only where the communicator returns errors). */
static treadle_status check(int code, const char *call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  if (code == MPI_SUCCESS) return TREADLE_OK;
  MPI_Error_string(code, text, &length);
  return treadle_fail(TREADLE_SYSTEM, "%s: %s", call, text);
}

/* All ranks are on one machine, or everybody refuses. */
static treadle_status check_node(MPI_Comm comm, int rank, int size) {
  treadle_status status = TREADLE_OK;
  MPI_Comm node = MPI_COMM_NULL;
  int node_rank, first, nodes;
  TRY(check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type"));
  TRY(check(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank"));
  first = node_rank == 0;
  TRY(check(MPI_Allreduce(&first, &nodes, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce"));
  if (nodes > 1)
    status = treadle_fail(
        TREADLE_REFUSED,
        "the %d ranks are on %d nodes: a switch works on one node so far, start all ranks there", size,
        nodes);
out:
  if (node != MPI_COMM_NULL) MPI_Comm_free(&node);
  return status;
}

static treadle_status check_arguments(MPI_Comm comm, double timeout_seconds, treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  if (!group_p) return treadle_refuse_null("treadle_group_mpi", "group_p");
  if (comm == MPI_COMM_NULL) return treadle_refuse_null("treadle_group_mpi", "communicator");
  TRY(treadle_check_seconds("treadle_group_mpi", "timeout_seconds", timeout_seconds));
out:
  return status;
}

/* MPI waits without a limit, so a rank whose arguments are refused says so before it goes. */
static treadle_status agree(MPI_Comm comm, treadle_status mine) {
  treadle_status status = TREADLE_OK;
  int refused = mine != TREADLE_OK, all = 0;
  TRY(check(MPI_Allreduce(&refused, &all, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce"));
  if (all > 0 && !refused)
    return treadle_fail(TREADLE_PEER, "group: the arguments of %d other ranks were refused", all);
out:
  return mine != TREADLE_OK ? mine : status;
}

treadle_status treadle_group_mpi(const void *comm, double timeout_seconds, treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  int running = 0, stopped = 0, rank, size;
  char name[33] = "";
  if (group_p) *group_p = NULL;
  if (MPI_Initialized(&running) != MPI_SUCCESS || MPI_Finalized(&stopped) != MPI_SUCCESS || !running ||
      stopped)
    return !group_p ? treadle_refuse_null(__func__, "group_p")
                    : treadle_fail(TREADLE_STATE, "group: MPI is not running; call MPI_Init first");
  MPI_Comm all = comm ? *(const MPI_Comm *)comm : MPI_COMM_WORLD;
  status = check_arguments(all, timeout_seconds, group_p);
  if (all == MPI_COMM_NULL) return status; /* nobody to say it to */
  TRY(agree(all, status));
  TRY(check(MPI_Comm_rank(all, &rank), "MPI_Comm_rank"));
  TRY(check(MPI_Comm_size(all, &size), "MPI_Comm_size"));
  TRY(check_node(all, rank, size));
  unsigned char random[16];
  if (rank == 0 && getrandom(random, sizeof random, 0) == (ssize_t)sizeof random)
    for (size_t i = 0; i < sizeof random; i++) snprintf(name + 2 * i, 3, "%02x", random[i]);
  TRY(check(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, all), "MPI_Bcast"));
  if (!name[0]) {
    status = treadle_fail(TREADLE_SYSTEM, "group: rank 0 has no random numbers: %s", strerror(errno));
    goto out;
  }
  TRY(treadle_group_open(name, rank, size, timeout_seconds, group_p));
out:
  return status;
}

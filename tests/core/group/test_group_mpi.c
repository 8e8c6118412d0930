/* The ranks of an MPI launcher: all of them, and a part of them. cli/test_mpi_hosts.sh runs it on two hosts, too.
 * ctest: ranks=4 */
#include "test.h"
#include "group/ranks.h"
#include "treadle_tools.h"

#include <math.h>
#include <mpi.h>
#include <string.h>

static int talk(treadle_group *group, int rank, int size) {
  int all[8];
  RANK_TRUE(treadle_group_rank(group) == rank && treadle_group_size(group) == size);
  for (int i = 0; i < 50; i++) {
    int mine = i * 10 + rank;
    RANK_OK(treadle_group_gather(group, &mine, sizeof mine, all));
    for (int peer = 0; peer < size; peer++) RANK_TRUE(all[peer] == i * 10 + peer);
  }
  return 0;
}

/* Nodes as ranks say them: what MPI thinks of the machine plays no part. */
static int meet_nodes(int rank, int size) {
  treadle_mpi_meeting meeting, names[4];
  treadle_node_address mine = {.address = "10.9.8.7:6543", .outside = true}, other = mine;
  char address[sizeof mine.address];
  RANK_OK(treadle_mpi_meet_nodes(NULL, false, &mine, &meeting, address));
  RANK_TRUE(address[0] == 0 && meeting.rank == rank && meeting.size == size && strlen(meeting.name) == 32);
  if (rank >= 2) other = (treadle_node_address){.node[31] = 1}; /* who is not rank 0 needs no address */
  RANK_OK(treadle_mpi_meet_nodes(NULL, false, &other, &meeting, address));
  RANK_TRUE(strcmp(address, "10.9.8.7:6543") == 0 && strlen(meeting.name) == 32);
  MPI_Allgather(&meeting, sizeof meeting, MPI_BYTE, names, sizeof meeting, MPI_BYTE, MPI_COMM_WORLD);
  for (int peer = 0; peer < size; peer++) RANK_TRUE(strcmp(names[peer].name, names[0].name) == 0);

  other.outside = false;
  RANK_TRUE(treadle_mpi_meet_nodes(NULL, false, &other, &meeting, address) == TREADLE_REFUSED);
  RANK_TRUE(strstr(meeting.why, "2 of the 4 ranks are on other nodes than rank 0") && !address[0]);
  bool lacks = rank == 3; /* the others hear of it */
  RANK_TRUE(treadle_mpi_meet_nodes(NULL, false, lacks ? NULL : &mine, &meeting, address) ==
            (lacks ? TREADLE_REFUSED : TREADLE_PEER));
  RANK_TRUE(strstr(meeting.why, lacks ? "no mine (NULL)" : "arguments of 1 other rank"));
  RANK_TRUE(treadle_mpi_meet_nodes(NULL, false, &mine, &meeting, lacks ? NULL : address) ==
            (lacks ? TREADLE_REFUSED : TREADLE_PEER));
  RANK_TRUE(strstr(meeting.why, lacks ? "no address_p (NULL)" : "arguments of 1 other rank"));
  RANK_TRUE(treadle_mpi_meet_nodes(NULL, rank == 0, &mine, &meeting, address) ==
            (rank == 0 ? TREADLE_REFUSED : TREADLE_PEER));
  return 0;
}

static int play(int rank, int size) {
  treadle_group *world, *part;
  RANK_OK(treadle_group_mpi(NULL, 30, &world));
  if (talk(world, rank, size)) return 1;
  MPI_Comm half;
  RANK_TRUE(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half) == MPI_SUCCESS);
  int part_rank, part_size;
  MPI_Comm_rank(half, &part_rank);
  MPI_Comm_size(half, &part_size);
  RANK_OK(treadle_group_mpi(&half, 30, &part));
  if (talk(part, part_rank, part_size)) return 1;
  MPI_Comm_free(&half);
  RANK_OK(treadle_group_barrier(world)); /* both groups live side by side */
  treadle_group *none = part;
  RANK_FAILS(TREADLE_REFUSED, "timeout_seconds of nan", treadle_group_mpi(NULL, NAN, &none));
  RANK_TRUE(!none);
  RANK_FAILS(TREADLE_REFUSED, "no communicator", treadle_group_mpi(&(MPI_Comm){MPI_COMM_NULL}, 1, &none));
  if (rank == 1) /* no other waits for it in MPI */
    RANK_FAILS(TREADLE_REFUSED, "no group_p", treadle_group_mpi(NULL, 1, NULL));
  else
    RANK_FAILS(TREADLE_PEER, "arguments of 1 other rank", treadle_group_mpi(NULL, 1, &none));
  treadle_group_close(part);
  treadle_group_close(world);
  return meet_nodes(rank, size);
}

int main(int count, char **words) {
  treadle_group *group;
  int rank, size, bad = 0, all_bad = 0;
  if (ranks_said(TREADLE_STATE, treadle_group_mpi(NULL, 1, &group), "MPI is not running", "before MPI_Init",
                 __FILE__, __LINE__))
    return 1;
  if (MPI_Init(&count, &words) != MPI_SUCCESS) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bad = play(rank, size);
  MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all_bad != 0;
}

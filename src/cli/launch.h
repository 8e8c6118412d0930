/* Who started this process, which rank that makes it, and how it meets the others.
 *
 *   --meet ...        from the options: a store that rank 0 serves there
 *   an MPI launcher   ranks and the name by which they meet come from MPI, through libtreadle_mpi.so, which is loaded only then; on several
 *                     nodes also the address of a store that rank 0 serves there
 *   torchrun          from its environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; on several nodes rank 0 serves a store at the port
 *                     behind that
 *   nobody            one rank; refused where Slurm has started several processes without PMI
 */
#ifndef TREADLE_CLI_LAUNCH_H
#define TREADLE_CLI_LAUNCH_H

#include "base/status.h"

typedef struct treadle_launch {
  int rank, size;
  int nodes;     /* this many groups of neighbours are nodes; 0: they are found */
  int node;      /* the node of this rank, where nodes have given sizes; -1: they have not */
  char name[65]; /* by which the ranks meet; "": one rank, alone, or by `meet` */
  char address
      [128]; /* of the store by which ranks of several nodes meet, which MPI has told them, and `name` is their job; "": not so */
  const char *meet,
      *job;           /* the address of the store by which the ranks meet, and their job; NULL: not so */
  double seconds;     /* until all have come to the address; 0: as long as the group waits */
  void (*stop)(void); /* ends MPI; NULL: it does not run */
} treadle_launch;

/* What the options say of it, as texts and numbers; zeroes and rank -1: nothing. */
typedef struct treadle_launch_options {
  const char *meet, *job, *nodes;
  int64_t rank, ranks;
  double seconds;
} treadle_launch_options;

/* A failure is this process's own: whoever else there is does not know of it. Options may be NULL; the launch has their texts. */
treadle_status treadle_launch_find(const treadle_launch_options *options, treadle_launch *launch);
/* The ranks meet; a launch without others gives a group of one. */
treadle_status treadle_launch_meet(const treadle_launch *launch, double timeout_seconds,
                                   treadle_group **group_p);

#endif

/* Ranks of a bench as processes of its own. */
#ifndef TREADLE_BENCH_PROCESSES_H
#define TREADLE_BENCH_PROCESSES_H

#include "bench.h"

#include <sys/wait.h>

/* What a rank does; `group_name` is one that no other group has. */
typedef treadle_status (*bench_rank)(const char *group_name, int rank, void *context);

/* Rank 0 is this process, which alone sees what is written to the context. 0: all went well. */
static inline int bench_processes(const char *name, int ranks, bench_rank run, void *context) {
  char group_name[40];
  int bad = 0;
  snprintf(group_name, sizeof group_name, "%.12s%dx%d", name, (int)getpid(), ranks);
  fflush(NULL);
  for (int rank = 1; rank < ranks; rank++) {
    pid_t child = fork();
    if (child == 0) _exit(run(group_name, rank, context) != TREADLE_OK);
    bad |= child < 0;
  }
  bad |= run(group_name, 0, context) != TREADLE_OK;
  for (int rank = 1, how; rank < ranks; rank++) bad |= wait(&how) < 0 || how != 0;
  return bad;
}

#endif

/* What the benches that run on several ranks share: giving up together, memory, a step's time. */
#ifndef TREADLE_BENCH_RANKS_H
#define TREADLE_BENCH_RANKS_H

#include "bench.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "group/group.h"

#include <mpi.h>
#include <stdio.h>

static _Noreturn inline void bench_give_up(const char *message) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fprintf(stderr, "%s: rank %d: %s\n", program_invocation_short_name, rank, message);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

#define MUST(call)                                                                                         \
  do {                                                                                                     \
    if (call) bench_give_up(treadle_error_message());                                                      \
  } while (0)

static inline void *bench_allocate(size_t count, size_t each_bytes) {
  void *memory = treadle_alloc_array(count + 1, each_bytes); /* a rank may hold nothing */
  if (!memory) bench_give_up("memory is out");
  memset(memory, 1, (count + 1) * each_bytes); /* touched */
  return memory;
}

/* The largest over ranks. */
static inline double bench_largest(treadle_group *group, double mine) {
  double *all = bench_allocate((size_t)group->size, sizeof *all), largest = 0;
  MUST(treadle_group_gather(group, &mine, sizeof mine, all));
  for (int rank = 0; rank < group->size; rank++)
    if (all[rank] > largest) largest = all[rank];
  treadle_free(all);
  return largest;
}

/* Over all ranks. */
static inline double bench_sum(treadle_group *group, double mine) {
  double *all = bench_allocate((size_t)group->size, sizeof *all), sum = 0;
  MUST(treadle_group_gather(group, &mine, sizeof mine, all));
  for (int rank = 0; rank < group->size; rank++) sum += all[rank];
  treadle_free(all);
  return sum;
}

/* From barrier to barrier, the largest over ranks. The barriers are treadle's: its waiting ranks sleep,
 * those of MPI would take processor time from the others. */
static inline double bench_time(treadle_group *group, void (*step)(void *context), void *context) {
  MUST(treadle_group_barrier(group));
  double begin = treadle_clock_seconds();
  step(context);
  MUST(treadle_group_barrier(group));
  return bench_largest(group, treadle_clock_seconds() - begin);
}

#endif

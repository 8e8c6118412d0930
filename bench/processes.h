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

/* What a result begins with. */
typedef struct bench_size {
  int ranks, runs;
  int more; /* processes beside the ranks that are counted */
} bench_size;

enum { BENCH_MAX_RUNS = 101, BENCH_MAX_RANKS = 8 };

/* main() of a bench_NAME [--runs N] [--json] for 2, 4 and 8 processes: `result`, which begins with a bench_size, is measured by `run` and
 * printed, as an item of a list where `json` says so. */
static inline int bench_by_ranks(int count, char **texts, const char *name, bench_rank run, void *result,
                                 void (*print)(const void *result, bool json)) {
  bench_size *size = result;
  bool json = false;
  int bad = 0;
  for (int i = 1; i < count; i++) {
    const char *value;
    if (strcmp(texts[i], "--json") == 0)
      json = true;
    else if ((value = bench_option(texts, &i, "--runs")))
      size->runs = atoi(value);
    else
      return fprintf(stderr, "usage: bench_%s [--runs N] [--json]\n", name), 2;
  }
  if (size->runs < 1 || size->runs > BENCH_MAX_RUNS)
    return fprintf(stderr, "bench_%s: --runs from 1 to %d\n", name, BENCH_MAX_RUNS), 2;
  for (size->ranks = 2; size->ranks <= BENCH_MAX_RANKS && !bad; size->ranks *= 2) {
    bad = bench_processes(name, size->ranks + size->more, run, result);
    if (json && !bad) printf("%s", size->ranks == 2 ? "[\n" : ",\n");
    if (!bad) print(result, json);
    fflush(stdout);
  }
  if (json && !bad) printf("\n]\n");
  return bad;
}

#endif

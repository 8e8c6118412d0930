/* Many runs: processes that each do hundreds of them, watched by this one. */
#ifndef TREADLE_TESTS_FUZZ_COMMANDS_WORK_H
#define TREADLE_TESTS_FUZZ_COMMANDS_WORK_H

#include "commands/run.h"

enum { FUZZ_RUNS = 2000 };

typedef struct fuzz_work {
  const fuzz_base *base;
  const char *home;  /* runs lie in home/run */
  const char *found; /* where cases of what was found are kept; "" for nowhere */
  uint64_t first, runs;
} fuzz_work;

/* How many runs were bad: each case of a folder, or each seed from first. */
int fuzz_work_corpus(const fuzz_work *work, const char *corpus);
int fuzz_work_seeds(const fuzz_work *work);

#endif

/* One run of the command: its files, its words, what is checked of it.
 *
 * A run lies in a folder of its own, which is the present one while it is made and run: `command` has the words, one a line
 * (a line "#fail N" lets the N-th allocation fail, "#limit N" files longer than N bytes, "#exit N" says how it must end), and
 * the other files are what the words name. So a folder is a case that can be run again. */
#ifndef TREADLE_TESTS_FUZZ_COMMANDS_RUN_H
#define TREADLE_TESTS_FUZZ_COMMANDS_RUN_H

#include "commands/base.h"

enum { FUZZ_WORDS = 48, FUZZ_WORD = 1100 };

typedef struct fuzz_run {
  int count; /* the first word is the subcommand */
  char words[FUZZ_WORDS][FUZZ_WORD];
  long fail_at;    /* allocation; 0: none */
  int64_t limit;   /* bytes of a file; 0: none */
  int exit_status; /* that it must have; -1: any that is allowed */
  bool continues;  /* there was a folder out when it began */
} fuzz_run;

/* Makes the run of a seed in the present folder, which is empty. */
void fuzz_run_make(const fuzz_base *base, uint64_t seed, fuzz_run *run);
bool fuzz_run_read(const char *path, fuzz_run *run);
void fuzz_run_write(const char *path, const fuzz_run *run);
bool fuzz_run_has(const fuzz_run *run, const char *word);

/* A layout for this many ranks: text of a layout that fits the model, perhaps with keys that do not; files it names are made. */
void fuzz_layout_make(treadle_random *random, const fuzz_base *base, const fuzz_model *model,
                      const oracle_model *oracle, int64_t ranks, char text[FUZZ_WORD]);

/* Runs it here; the exit status. The process may also end in it. */
int fuzz_run_call(const fuzz_run *run);

/* What must hold after a run that ended with a status: of its words, its output, and its folder, the present one. NULL, or what
 * does not hold. */
const char *fuzz_run_check(const fuzz_run *run, int exit_status, const fuzz_bytes *output,
                           const fuzz_bytes *messages);

#endif

/* Running the command in this process, which no launcher has started, and keeping a run in a file. */
#include "commands/run.h"

#include "base/alloc.h"
#include "cli/cli.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static void set_limit(rlim_t bytes) {
  struct rlimit most;
  if (getrlimit(RLIMIT_FSIZE, &most)) err(3, "getrlimit");
  most.rlim_cur = bytes;
  if (setrlimit(RLIMIT_FSIZE, &most)) err(3, "setrlimit");
}

enum { LARGEST_FILE = 1 << 28 }; /* what a command writes takes its time, too */

int fuzz_run_call(const fuzz_run *run) {
  static char words[FUZZ_WORDS][FUZZ_WORD];
  char *texts[FUZZ_WORDS + 2] = {words[0]};
  strcpy(words[0], "treadle");
  for (int i = 0; i < run->count; i++)
    texts[i + 1] = strcpy(words[i + 1 == FUZZ_WORDS ? i : i + 1], run->words[i]);
  set_limit(run->limit ? (rlim_t)run->limit : LARGEST_FILE);
  treadle_alloc_fail_at(run->fail_at);
  int exit_status = treadle_main(run->count + 1, texts);
  treadle_alloc_fail_at(0);
  set_limit(LARGEST_FILE);
  fflush(NULL);
  clearerr(stdout);
  return exit_status;
}

bool fuzz_run_has(const fuzz_run *run, const char *word) {
  for (int i = 0; i < run->count; i++)
    if (strcmp(run->words[i], word) == 0) return true;
  return false;
}

void fuzz_run_write(const char *path, const fuzz_run *run) {
  fuzz_bytes text = {0};
  if (run->exit_status >= 0) fuzz_bytes_add(&text, "#exit %d\n", run->exit_status);
  if (run->fail_at) fuzz_bytes_add(&text, "#fail %ld\n", run->fail_at);
  if (run->limit) fuzz_bytes_add(&text, "#limit %lld\n", (long long)run->limit);
  for (int i = 0; i < run->count; i++) fuzz_bytes_add(&text, "%s\n", run->words[i]);
  fuzz_file_replace(path, text.at, text.count);
  fuzz_bytes_release(&text);
}

bool fuzz_run_read(const char *path, fuzz_run *run) {
  fuzz_bytes text = {0};
  *run = (fuzz_run){.exit_status = -1};
  if (!fuzz_file_read(path, &text)) return false;
  for (char *at = text.at, *end; *at && run->count < FUZZ_WORDS; at = end + 1) {
    end = strchrnul(at, '\n');
    long long number;
    char what[8];
    if (sscanf(at, "#%7s %lld", what, &number) != 2)
      snprintf(run->words[run->count++], FUZZ_WORD, "%.*s", (int)(end - at), at);
    else if (strcmp(what, "exit") == 0)
      run->exit_status = (int)number;
    else if (strcmp(what, "fail") == 0)
      run->fail_at = (long)number;
    else if (strcmp(what, "limit") == 0)
      run->limit = number;
    if (!*end) break;
  }
  fuzz_bytes_release(&text);
  return true;
}

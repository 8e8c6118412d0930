/* Signals of treadle sft and treadle train. */
#include "cli/stop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

/* SIGUSR1 is what launchers pass on to all ranks: at Ctrl-C they give them a second or two. */
static void ask(int number) {
  asked = 1;
  signal(number, SIG_DFL);
}

/* Not SIG_IGN, which the commands of rewards would inherit. */
static void pass_over(int number) { (void)number; }

void treadle_stop_listen(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction before;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], ask);
  if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_DFL) signal(SIGHUP, ask);
  signal(SIGPIPE, pass_over);
}

bool treadle_stop_asked(void *context) {
  (void)context;
  return asked != 0;
}

/* Is the process that has started this one a launcher of Open MPI? Its name is its program's. */
static bool by_open_mpi(pid_t parent) {
  static const char *const names[] = {"mpirun\n", "mpiexec\n", "orterun\n", "prterun\n"};
  char path[64], name[32] = "";
  snprintf(path, sizeof path, "/proc/%lld/comm", (long long)parent);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  bool there = fgets(name, sizeof name, file) != NULL, known = false;
  fclose(file);
  for (size_t i = 0; there && i < sizeof names / sizeof *names; i++) known |= strcmp(name, names[i]) == 0;
  return known;
}

void treadle_stop_say(const treadle_session *session) {
  const pid_t parent = getppid();
  if (session->rank == 0 && by_open_mpi(parent))
    fprintf(stderr,
            "treadle %s: kill -USR1 %lld ends the run after the step at hand, with a checkpoint; Ctrl-C "
            "leaves the ranks a "
            "second\n",
            session->command, (long long)parent);
}

/* Signals of treadle sft and treadle train. */
#include "cli/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static struct timespec first; /* when; written by the first handler that runs, read by later ones */

static double seconds_since(const struct timespec *then) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - then->tv_sec) + (double)(now.tv_nsec - then->tv_nsec) / 1e9;
}

static void ask(int number) {
  const int error = errno;
  if (!asked) {
    clock_gettime(CLOCK_MONOTONIC, &first);
    asked = 1;
  } else if (seconds_since(&first) > 1) {
    signal(number, SIG_DFL);
    raise(number); /* when the handler has returned */
  }
  errno = error;
}

/* Not SIG_IGN, which the commands of rewards would inherit. */
static void pass_over(int number) { (void)number; }

void treadle_stop_listen(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
  enum { COUNT = sizeof numbers / sizeof *numbers };
  struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART}, before;
  for (int i = 0; i < COUNT; i++) sigaddset(&action.sa_mask, numbers[i]);
  for (int i = 0; i < COUNT; i++)
    if (numbers[i] != SIGHUP || (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_DFL))
      sigaction(numbers[i], &action, NULL);
  signal(SIGPIPE, pass_over);
}

bool treadle_stop_asked(void *context) {
  (void)context;
  return asked != 0;
}

void treadle_stop_say(const treadle_session *session) {
  const char *launcher = getenv("TREADLE_LAUNCHER");
  if (session->size < 2 || session->rank > 0 || (launcher && strcmp(launcher, "ray") == 0)) return;
  fprintf(stderr,
          "treadle %s: kill -USR1 %ld (rank 0) ends the run after the step at hand, with a checkpoint; at "
          "Ctrl-C a launcher ends the ranks within seconds\n",
          session->command, (long)getpid());
}

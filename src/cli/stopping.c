/* Signals that ask a run to stop. */
#include "cli/stopping.h"

#include <errno.h>
#include <signal.h>
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

bool treadle_stopping_asked(void *context) {
  (void)context;
  return asked != 0;
}

void treadle_stopping_begin(const treadle_session *session, FILE *file) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(&action.sa_mask, numbers[i]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
  if (session->size < 2 || session->rank > 0) return;
  fprintf(file,
          "to stop it after the step that is under way, which is kept: kill -USR1 %ld (rank 0); at Ctrl-C "
          "the launcher "
          "ends the ranks within seconds, and what comes after the newest checkpoint is lost\n",
          (long)getpid());
  fflush(file);
}

/* What a subcommand says besides its result: errors, whether the result was written, progress, counts. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int treadle_exit_status(treadle_status status) {
  if (!status) return TREADLE_EXIT_OK;
  return status == TREADLE_REFUSED ? TREADLE_EXIT_REFUSED : TREADLE_EXIT_FAILED;
}

const char *treadle_bare_message(const char *command, const char *message) {
  size_t length = strlen(command);
  bool named = strncmp(message, command, length) == 0 && strncmp(message + length, ": ", 2) == 0;
  return named ? message + length + 2 : message;
}

int treadle_report_error(const char *command, treadle_status status) {
  fprintf(stderr, "treadle %s: %s\n", command, treadle_bare_message(command, treadle_error_message()));
  return treadle_exit_status(status);
}

int treadle_report_refusal(const char *command, treadle_status status) {
  return treadle_report_error(command, treadle_as_refusal(status));
}

int treadle_refuse_ranks(const char *command, const treadle_arguments *a) {
  treadle_status status = treadle_fail(
      TREADLE_REFUSED,
      "--ranks %lld is of --plan: say mpirun -n %lld treadle %s %s to train on that many, or "
      "add --plan to see what they would hold",
      (long long)a->ranks.count, (long long)a->ranks.count, command, treadle_text_shown(a->words[0]));
  return treadle_report_refusal(command, status);
}

int treadle_finish_output(const char *command, int exit_status) {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) return exit_status;
  fprintf(stderr, "treadle %s: the output could not be written%s%s\n", command, errno ? ": " : "",
          errno ? strerror(errno) : "");
  return exit_status ? exit_status : TREADLE_EXIT_FAILED;
}

/* ---- Progress -------------------------------------------------------------------------------- */

static double progress_begin, progress_last; /* when the command began, and last said something */
static bool progress_shown;

void treadle_progress_begin(void) { progress_begin = treadle_clock_seconds(); }

void treadle_progress(const char *format, ...) {
  double now = treadle_clock_seconds();
  if (now - progress_begin < 2 || now - progress_last < 0.1 || !isatty(STDERR_FILENO)) return;
  progress_last = now;
  va_list values;
  va_start(values, format);
  fputs("\r\033[K", stderr);
  vfprintf(stderr, format, values);
  va_end(values);
  fflush(stderr);
  progress_shown = true;
}

bool treadle_progress_watch(void *context, const char *doing, int64_t done, int64_t total) {
  (void)context;
  treadle_progress("%s %lld of %lld", doing, (long long)done, (long long)total);
  return true;
}

void treadle_progress_doing(void *context, const char *what, int64_t done, int64_t total) {
  (void)context;
  if (total)
    treadle_progress("%s %lld of %lld", what, (long long)done, (long long)total);
  else
    treadle_progress("%s", what);
}

double treadle_ratio(size_t moved, size_t lower_bound) {
  if (moved == lower_bound) return 1;
  return (double)moved / (double)lower_bound; /* infinite when the bound is 0: nothing had to move */
}

treadle_count_text treadle_count_of(int64_t elems) {
  static const struct {
    double from;
    const char *word;
  } words[] = {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}, {1e3, "thousand"}};
  treadle_count_text count;
  snprintf(count.text, sizeof count.text, "%lld", (long long)elems);
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if ((double)elems >= words[i].from) {
      snprintf(count.text, sizeof count.text, "%.4g %s", (double)elems / words[i].from, words[i].word);
      break;
    }
  return count;
}

void treadle_progress_end(void) {
  if (!progress_shown) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
  progress_shown = false;
}

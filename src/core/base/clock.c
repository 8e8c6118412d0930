/* Clocks of the system, and VmHWM of /proc: getrusage's maximum is that of the whole life of the process
 * image's ancestors after a fork, VmHWM is this process's own. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static double seconds_of(clockid_t clock) {
  struct timespec now = {0};
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double treadle_clock_seconds(void) { return seconds_of(CLOCK_MONOTONIC); }

double treadle_clock_processor_seconds(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

double treadle_clock_process_seconds(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

size_t treadle_clock_peak_rss_bytes(void) {
  FILE *file = fopen("/proc/self/status", "re");
  if (!file) return 0;
  char line[256];
  size_t kib = 0;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "VmHWM: %zu kB", &kib) == 1) break;
  fclose(file);
  return kib * 1024;
}

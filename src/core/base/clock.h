/* Time and processor time of this process, in seconds; peak resident memory in bytes. */
#ifndef TREADLE_BASE_CLOCK_H
#define TREADLE_BASE_CLOCK_H

#include <stddef.h>
#include <time.h>

double treadle_clock_seconds(void);           /* monotonic */
double treadle_clock_processor_seconds(void); /* this thread's processor time */
double treadle_clock_process_seconds(void);   /* that of all threads */
/* The same seconds, of a clock or a wait, as the system's calls take them; not below 0. */
static inline struct timespec treadle_clock_timespec(double seconds) {
  return (struct timespec){.tv_sec = (time_t)seconds,
                           .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
}

size_t treadle_clock_peak_rss_bytes(void); /* VmHWM, 0 where the system does not tell */

#endif

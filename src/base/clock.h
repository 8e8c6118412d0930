/* Time and processor time of this process, in seconds; peak resident memory in bytes. */
#ifndef TREADLE_BASE_CLOCK_H
#define TREADLE_BASE_CLOCK_H

#include <stddef.h>

double treadle_clock_seconds(void);           /* monotonic */
double treadle_clock_processor_seconds(void); /* this thread's processor time */
double treadle_clock_process_seconds(void);   /* that of all threads */
size_t treadle_clock_peak_rss_bytes(void);    /* VmHWM, 0 where the system does not tell */

#endif

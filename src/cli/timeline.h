/* Device bytes by class over time, as a picture (SVG). */
#ifndef TREADLE_CLI_TIMELINE_H
#define TREADLE_CLI_TIMELINE_H

#include "base/status.h"

typedef struct treadle_timeline treadle_timeline;

/* Room for all samples is made here: taking one allocates nothing. */
treadle_status treadle_timeline_create(treadle_timeline **timeline_p);
void treadle_timeline_destroy(treadle_timeline *timeline);

/* As treadle_switch_options.watch; the context is the timeline. */
void treadle_timeline_watch(void *timeline, const size_t bytes[TREADLE_CLASSES]);
/* From now on the mode, or the way to it, is called so; a text that stays. */
void treadle_timeline_name(treadle_timeline *timeline, const char *name);
/* The most bytes that were held at once. */
size_t treadle_timeline_peak(const treadle_timeline *timeline);

/* Can the file be written? Makes nothing. */
treadle_status treadle_timeline_check(const char *path);
/* Writes the picture, whole or not at all. bound: a line, as are words for what it is. */
treadle_status treadle_timeline_write(const treadle_timeline *timeline, const char *path, const char *title,
                                      size_t bound);

#endif

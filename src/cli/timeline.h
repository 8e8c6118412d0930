/* Device bytes by class over time, as a picture (SVG): timeline.c takes samples, timeline_draw.c draws them. */
#ifndef TREADLE_CLI_TIMELINE_H
#define TREADLE_CLI_TIMELINE_H

#include "base/status.h"

/* As many names as have room in the picture: modes and arrows in turn. What comes after the last one is not drawn. */
enum { TREADLE_TIMELINE_SAMPLES = 1 << 15, TREADLE_TIMELINE_NAMES = 24 };

typedef struct treadle_timeline_sample {
  double seconds;
  size_t bytes[TREADLE_CLASSES];
} treadle_timeline_sample;

typedef struct treadle_timeline_name_at {
  double seconds;
  const char *text;
} treadle_timeline_name_at;

typedef struct treadle_timeline {
  treadle_timeline_sample *samples;
  size_t count;
  treadle_timeline_name_at names[TREADLE_TIMELINE_NAMES];
  size_t name_count;
} treadle_timeline;

/* Room for all samples is made here: taking one allocates nothing. */
treadle_status treadle_timeline_create(treadle_timeline **timeline_p);
void treadle_timeline_destroy(treadle_timeline *timeline);

/* As treadle_switch_options.watch; the context is the timeline. */
void treadle_timeline_watch(void *timeline, const size_t *bytes, int classes);
/* From now on the mode is called so, or the arrow that is taken ("to infer"); a text that stays. */
void treadle_timeline_name(treadle_timeline *timeline, const char *name);
/* The bytes of all classes. */
size_t treadle_timeline_sum(const treadle_timeline_sample *sample);
/* The most bytes that were held at once. */
size_t treadle_timeline_peak(const treadle_timeline *timeline);

/* Can the file be written? Makes nothing. */
treadle_status treadle_timeline_check(const char *path);

/* treadle_switch_bound, treadle_switch_pool_bound: lines of the picture. */
typedef struct treadle_timeline_bounds {
  size_t in_switches, of_pool;
} treadle_timeline_bounds;

/* Writes the picture, whole or not at all. Something must have been named. */
treadle_status treadle_timeline_write(const treadle_timeline *timeline, const char *path, const char *title,
                                      treadle_timeline_bounds bounds);

#endif

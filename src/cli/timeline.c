/* Samples of what the device holds, and the names of what was done meanwhile. */
#include "cli/timeline.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <assert.h>
#include <string.h>

treadle_status treadle_timeline_create(treadle_timeline **timeline_p) {
  treadle_timeline *t = treadle_alloc(sizeof *t);
  if (t) t->samples = treadle_alloc_array(TREADLE_TIMELINE_SAMPLES, sizeof *t->samples);
  *timeline_p = t;
  return t && t->samples ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a timeline");
}

void treadle_timeline_destroy(treadle_timeline *t) {
  if (t) treadle_free(t->samples);
  treadle_free(t);
}

size_t treadle_timeline_sum(const treadle_timeline_sample *s) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += s->bytes[c];
  return sum;
}

/* When there is no more room, every other sample goes, but for the fuller one of each two. */
static void thin_out(treadle_timeline *t) {
  for (size_t i = 0; i < t->count / 2; i++) {
    const treadle_timeline_sample *a = &t->samples[2 * i], *b = a + 1;
    t->samples[i] = treadle_timeline_sum(a) > treadle_timeline_sum(b) ? *a : *b;
  }
  t->count /= 2;
}

void treadle_timeline_watch(void *timeline, const size_t *bytes, int classes) {
  treadle_timeline *t = timeline;
  assert(classes == TREADLE_CLASSES);
  (void)classes;
  if (t->count > 0 && memcmp(t->samples[t->count - 1].bytes, bytes, sizeof t->samples->bytes) == 0) return;
  if (t->count == TREADLE_TIMELINE_SAMPLES) thin_out(t);
  treadle_timeline_sample *s = &t->samples[t->count++];
  s->seconds = treadle_clock_seconds();
  memcpy(s->bytes, bytes, sizeof s->bytes);
}

void treadle_timeline_name(treadle_timeline *t, const char *text) {
  if (t->name_count < TREADLE_TIMELINE_NAMES)
    t->names[t->name_count++] = (treadle_timeline_name_at){treadle_clock_seconds(), text};
}

size_t treadle_timeline_peak(const treadle_timeline *t) {
  size_t peak = 0;
  for (size_t i = 0; i < t->count; i++)
    if (treadle_timeline_sum(&t->samples[i]) > peak) peak = treadle_timeline_sum(&t->samples[i]);
  return peak;
}

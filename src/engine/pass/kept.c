#include "pass/kept.h"

#include "nn/row_stats.h"

#include <math.h>

/* e^-1000 is 0 in fp32, as is e^-x of any x above 88; a share of the largest logit is more where fp32 would round 1000
 * away. */
static float far_below(float largest, float temperature) {
  const float distance = 1000 * temperature, share = fabsf(largest);
  return largest - (distance > share ? distance : share);
}

void treadle_kept_leave(float *logits, int64_t vocabulary, const int32_t *ids, size_t count,
                        float temperature) {
  float largest = -INFINITY;
  int64_t at = 0;
  for (size_t i = 0; i < count; i++) largest = logits[ids[i]] > largest ? logits[ids[i]] : largest;
  const float out = far_below(largest, temperature);
  for (size_t i = 0; i < count; i++) {
    while (at < ids[i]) logits[at++] = out;
    at = (int64_t)ids[i] + 1;
  }
  while (at < vocabulary) logits[at++] = out;
}

static void put(float *logits, int64_t vocabulary, const int32_t *ids, size_t count, float value) {
  for (size_t i = 0; i < count; i++)
    if (ids[i] >= 0 && ids[i] < vocabulary) logits[ids[i]] = value;
}

void treadle_kept_without(float *logits, int64_t vocabulary, const int32_t *ids, size_t count,
                          float temperature) {
  if (!count) return;
  put(logits, vocabulary, ids, count, -INFINITY); /* the largest is one of the others */
  const float largest = treadle_row_stats_of(logits, vocabulary).largest;
  put(logits, vocabulary, ids, count, far_below(largest, temperature));
}

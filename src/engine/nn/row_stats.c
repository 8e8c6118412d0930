/* One look at a row: lanes of vectors are compared alike, so that NaN is found wherever it stands. */
#include "nn/row_stats.h"

#include <math.h>

enum { LANES = 8 };

static void look_at_some(const float *x, int count, float *lane, int *bad, int *hole) {
  for (int k = 0; k < count; k++) {
    lane[k] = x[k] > lane[k] ? x[k] : lane[k];
    bad[k] |= !(x[k] < INFINITY);
    hole[k] |= x[k] == -INFINITY;
  }
}

treadle_row_stats treadle_row_stats_of(const float *logits, int64_t count) {
  float lane[LANES];
  int bad[LANES] = {0}, hole[LANES] = {0};
  int64_t i = 0;
  treadle_row_stats stats = {.largest = -INFINITY};
  for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
  for (; i + LANES <= count; i += LANES) look_at_some(logits + i, LANES, lane, bad, hole);
  look_at_some(logits + i, (int)(count - i), lane, bad, hole);
  for (int k = 0; k < LANES; k++) {
    stats.largest = lane[k] > stats.largest ? lane[k] : stats.largest;
    stats.has_bad |= bad[k];
    stats.has_holes |= hole[k];
  }
  return stats;
}

double treadle_row_largest_of(const double *logits, int64_t count) {
  double lane[LANES], largest = -INFINITY;
  int64_t i = 0;
  for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] = logits[i + k] > lane[k] ? logits[i + k] : lane[k];
  for (; i < count; i++) lane[0] = logits[i] > lane[0] ? logits[i] : lane[0];
  for (int k = 0; k < LANES; k++) largest = lane[k] > largest ? lane[k] : largest;
  return largest;
}

int64_t treadle_row_first(const float *logits, float value) {
  int64_t i = 0;
  while (logits[i] != value) i++;
  return i;
}

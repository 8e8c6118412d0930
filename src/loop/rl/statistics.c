#include "rl/statistics.h"

#include <math.h>

static const double least = 1e-8;

double treadle_rl_masked_mean(const double *values, const unsigned char *mask, size_t count) {
  double sum = 0, counted = 0;
  for (size_t i = 0; i < count; i++) {
    if (mask && !mask[i]) continue;
    sum += values[i];
    counted++;
  }
  return sum / (counted + least);
}

treadle_status treadle_rl_masked_variance(const double *values, const unsigned char *mask, size_t count,
                                          double *variance_p) {
  const double mean = treadle_rl_masked_mean(values, mask, count);
  double sum = 0, counted = 0;
  for (size_t i = 0; i < count; i++) {
    if (mask && !mask[i]) continue;
    sum += (values[i] - mean) * (values[i] - mean);
    counted++;
  }
  if (counted < 2)
    REFUSE("a variance needs two values at least, and there %s", counted < 1 ? "are none" : "is one");
  *variance_p = sum / (counted + least) * (counted / (counted - 1));
  return TREADLE_OK;
}

treadle_status treadle_rl_whiten(double *values, size_t count) {
  double mean = treadle_rl_masked_mean(values, NULL, count), variance;
  treadle_status status;
  TRY(treadle_rl_masked_variance(values, NULL, count, &variance));
  for (size_t i = 0; i < count; i++) values[i] = (values[i] - mean) / sqrt(variance + least);
out:
  return status;
}

/* Looking through rows of logits. */
#ifndef TREADLE_NN_ROW_STATS_H
#define TREADLE_NN_ROW_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* What one look at a row finds. Lanes of vectors are compared alike, so that NaN is found wherever it stands. */
typedef struct treadle_row_stats {
  float largest;
  bool has_bad;   /* NaN or +inf */
  bool has_holes; /* -inf */
} treadle_row_stats;
treadle_row_stats treadle_row_stats_of(const float *logits, int64_t count);
double treadle_row_largest_of(const double *logits, int64_t count);
/* The first that is `value`, which is there. */
int64_t treadle_row_first(const float *logits, float value);

#endif

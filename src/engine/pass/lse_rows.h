/* What log-probabilities are measured by, of rows of logits that are divided among the threads of a pass. Each row is one thread's alone, so the
 * number of threads changes no bit. */
#ifndef TREADLE_PASS_LSE_ROWS_H
#define TREADLE_PASS_LSE_ROWS_H

#include "base/team.h"
#include "nn/rows.h"

typedef struct treadle_lse_row {
  const float *logits; /* [vocabulary] */
  float temperature;   /* of log-probabilities */
  double lse; /* the logarithm of the sum of e^(logit / temperature); not finite where a logit is not */
} treadle_lse_row;

/* Of one row, whose logits are finite. */
double treadle_lse_of(const treadle_row_ops *ops, const float *logits, int64_t vocabulary,
                      float temperature);

/* Fills in lse of rows [count]. */
void treadle_lse_rows_run(treadle_team *team, treadle_lse_row *rows, int64_t count, int64_t vocabulary);

#endif

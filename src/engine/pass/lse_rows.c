#include "pass/lse_rows.h"

#include "base/finite.h"
#include "nn/exp.h"

#include <math.h>

double treadle_lse_of(const treadle_row_ops *ops, const float *logits, int64_t vocabulary,
                      float temperature) {
  float largest;
  double sum;
  ops->sum_exp(logits, vocabulary, temperature, &largest, &sum);
  return (double)largest + treadle_log(sum);
}

typedef struct adding {
  const treadle_row_ops *ops;
  treadle_lse_row *rows;
  int64_t count, vocabulary;
} adding;

static void add_rows(void *context, int32_t index, int32_t threads) {
  const adding *w = context;
  const int64_t end = w->count * (index + 1) / threads;
  for (int64_t i = w->count * index / threads; i < end; i++) {
    treadle_lse_row *row = &w->rows[i];
    row->lse = NAN;
    if (!treadle_row_is_finite(row->logits, w->vocabulary)) continue;
    row->lse = treadle_lse_of(w->ops, row->logits, w->vocabulary, row->temperature);
  }
}

void treadle_lse_rows_run(treadle_team *team, treadle_lse_row *rows, int64_t count, int64_t vocabulary) {
  adding w = {.ops = treadle_row_ops_choose(), .rows = rows, .count = count, .vocabulary = vocabulary};
  treadle_team_run(team, add_rows, &w);
}

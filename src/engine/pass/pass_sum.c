/* Sums of leaves, of this rank and the others, and biases. */
#include "pass/pass_steps.h"

#include "base/dtype.h"

void treadle_pass_add_bias(const treadle_pass *pass, float *row, const treadle_weight *bias) {
  if (!bias) return;
  for (int32_t s = 0; s < bias->segment_count; s++) {
    const treadle_segment *segment = &bias->segments[s];
    pass->row_ops->add(row + segment->first - bias->first_row, treadle_pass_at(pass, segment), bias->dtype,
                       segment->rows);
  }
}

typedef struct adding {
  treadle_pass *pass;
  const treadle_weight *bias;
  int64_t rows;
} adding;

static void add_rows(void *context, int32_t index, int32_t count) {
  const adding *a = context;
  int64_t hidden = a->pass->transformer->hidden, begin = a->rows * index / count,
          end = a->rows * (index + 1) / count;
  for (int64_t r = begin; r < end; r++) {
    float *sum = a->pass->buffers.sum + r * hidden;
    treadle_pass_add_bias(a->pass, sum, a->bias);
    a->pass->row_ops->add(a->pass->buffers.x + r * hidden, sum, TREADLE_FP32, hidden);
  }
}

treadle_status treadle_pass_add_sum(treadle_pass *pass, const treadle_weight *weight, int64_t leaves,
                                    const treadle_weight *bias, bool speaks, int64_t rows) {
  adding a = {.pass = pass, .bias = bias, .rows = rows};
  treadle_status status;
  TRY(treadle_pass_sum(pass, weight, leaves, speaks, rows));
  treadle_pass_share(pass, add_rows, &a, rows * pass->transformer->hidden);
out:
  return status;
}

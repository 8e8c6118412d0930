#include "plan/runs.h"

#include "base/dtype.h"

typedef struct dimension {
  int64_t size, window, message; /* strides */
} dimension;

/* Slowest in the message first. */
static int take_dimensions(const treadle_op *op, bool writes, dimension *all) {
  int count = 0;
  for (int d = 0; d < op->ndim; d++) {
    const dimension one = {op->size[d], writes ? op->to_stride[d] : op->from_stride[d],
                           writes ? op->from_stride[d] : op->to_stride[d]};
    if (one.size == 1) continue;
    int at = count++;
    for (; at > 0 && all[at - 1].message < one.message; at--) all[at] = all[at - 1];
    all[at] = one;
  }
  return count;
}

bool treadle_runs_of(const treadle_op *op, bool writes, treadle_runs *runs) {
  dimension all[TREADLE_MAX_AXES];
  int count = take_dimensions(op, writes, all);
  *runs = (treadle_runs){.bytes = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype),
                         .count = 1,
                         .window = writes ? op->to : op->from};
  if (op->from_dtype != op->to_dtype || op->add) return false;
  for (; count > 0 && all[count - 1].window == runs->bytes; count--) runs->bytes *= all[count - 1].size;
  runs->ndim = count;
  for (int d = 0; d < count; d++) {
    runs->size[d] = all[d].size;
    runs->stride[d] = all[d].window;
    runs->count *= all[d].size;
  }
  return true;
}

int64_t treadle_runs_at(const treadle_runs *runs, int64_t i) {
  int64_t at = runs->window;
  for (int d = runs->ndim - 1; d >= 0; d--) {
    at += i % runs->size[d] * runs->stride[d];
    i /= runs->size[d];
  }
  return at;
}

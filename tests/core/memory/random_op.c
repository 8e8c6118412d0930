#include "memory/random_op.h"

#include "base/dtype.h"
#include "test.h"

void random_table(treadle_random *random, int32_t *table, int pages) {
  for (int i = 0; i < pages; i++) table[i] = i;
  for (int i = pages - 1; i > 0; i--) { /* some neighbours stay neighbours */
    int k = (int)treadle_random_below(random, i + 1);
    if (k % 3 == 0) continue;
    int32_t t = table[i];
    table[i] = table[k];
    table[k] = t;
  }
}

/* Strides that hold what is inside, with gaps now and then; `order` has the dimensions from slow to fast. */
static int64_t draw_strides(treadle_random *random, treadle_op *op, int64_t *strides, int64_t each,
                            const int *order) {
  int64_t inner = each;
  for (int i = op->ndim - 1; i >= 0; i--) {
    int d = order[i];
    int64_t gap = treadle_random_below(random, 3);
    strides[d] = inner + (gap == 0   ? 0
                          : gap == 1 ? each * treadle_random_below(random, 5)
                                     : inner * treadle_random_below(random, 3));
    if (i == op->ndim - 1 && treadle_random_below(random, 8) != 0) strides[d] = each;
    inner = strides[d] * (op->size[d] - 1) + inner;
    if (i > 0 && treadle_random_below(random, 2)) inner = (inner + 63) / 64 * 64;
  }
  return inner;
}

static void draw_sizes(treadle_random *random, treadle_op *op) {
  op->ndim = (uint8_t)treadle_random_below(random, 5);
  for (int d = 0; d < op->ndim; d++) op->size[d] = 1 + treadle_random_below(random, 6);
  if (op->ndim == 0) return;
  static const int64_t rows[] = {1, 3, 31, 32, 100, 128, 256, 500, 512, 600, 1024, 2048, 2100, 5000};
  op->size[op->ndim - 1] = rows[treadle_random_below(random, TEST_COUNT(rows))];
  if (op->ndim > 1 && treadle_random_below(random, 3) == 0) /* planes of several tiles */
    for (int d = op->ndim - 2; d < op->ndim; d++) op->size[d] = 1 + treadle_random_below(random, 200);
}

/* Half of the time the source has its dimensions in another order: a transposing copy. */
static void draw_order(treadle_random *random, int ndim, int *order) {
  for (int d = 0; d < ndim; d++) order[d] = d;
  if (treadle_random_below(random, 2)) return;
  for (int d = ndim - 1; d > 0; d--) {
    int k = (int)treadle_random_below(random, d + 1), t = order[d];
    order[d] = order[k];
    order[k] = t;
  }
}

treadle_op random_op(treadle_random *random, int64_t room, bool fill, bool convert) {
  for (;;) {
    treadle_op op = {.source = fill ? -1 : 0, .elems = 1};
    op.from_dtype = (uint8_t)(1 + treadle_random_below(random, 4));
    op.to_dtype = convert ? (uint8_t)(1 + treadle_random_below(random, 4)) : op.from_dtype;
    if (convert) op.add = (int8_t)treadle_random_between(random, -1, 1);
    draw_sizes(random, &op);
    int order[TREADLE_MAX_AXES];
    draw_order(random, op.ndim, order);
    int64_t from = draw_strides(random, &op, op.from_stride,
                                (int64_t)treadle_dtype_bytes((treadle_dtype)op.from_dtype), order);
    draw_order(random, op.ndim, order);
    int64_t to = draw_strides(random, &op, op.to_stride,
                              (int64_t)treadle_dtype_bytes((treadle_dtype)op.to_dtype), order);
    if (from > room || to > room) continue;
    for (int d = 0; d < op.ndim; d++) op.elems *= op.size[d];
    op.from = treadle_random_below(random, room - from + 1); /* any byte: no alignment is promised */
    op.to = treadle_random_below(random, room - to + 1);
    if (treadle_random_below(random, 2)) op.to &= ~INT64_C(63);
    if (treadle_random_below(random, 2)) op.from &= ~INT64_C(3);
    return op;
  }
}

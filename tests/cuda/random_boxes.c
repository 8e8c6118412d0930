#include "cuda/random_boxes.h"

#include "base/dtype.h"
#include "memory/random_op.h"

void random_side_draw(random_side *s, treadle_random *random, char *room) {
  s->base =
      room + (treadle_random_below(random, 2) ? RANDOM_SLACK - (int64_t)((uintptr_t)room % RANDOM_SLACK)
                                              : treadle_random_below(random, RANDOM_SLACK));
  s->paged = (treadle_paged){.base = s->base, .into = s->base};
  if (treadle_random_below(random, 3) == 0) return;
  s->paged.table = s->table;
  s->paged.page_shift = (int)treadle_random_between(random, RANDOM_LEAST_SHIFT, 13);
  random_table(random, s->table, RANDOM_ROOM >> s->paged.page_shift);
}

/* Strides that hold what is inside, with gaps now and then, in a random order of the axes, which is that of the op
 * half of the time; the bytes that they take, and the first element's offset. */
static int64_t draw_strides(treadle_random *random, const treadle_op *op, int64_t *strides, int64_t each,
                            int64_t *first_p) {
  int order[TREADLE_MAX_AXES];
  const bool turned = treadle_random_below(random, 2);
  for (int d = 0; d < op->ndim; d++) {
    int k = turned ? (int)treadle_random_below(random, d + 1) : d;
    order[d] = order[k];
    order[k] = d;
  }
  int64_t inner = each;
  *first_p = 0;
  for (int i = op->ndim - 1; i >= 0; i--) {
    const int d = order[i];
    const int64_t kind = treadle_random_below(random, 6);
    int64_t stride = inner;
    if (kind == 0) stride += treadle_random_below(random, 5) * each;
    if (kind == 1) stride += treadle_random_below(random, 3) * inner;
    if (kind == 2 && i < op->ndim - 1) stride = (stride + 15) / 16 * 16;
    if (kind == 3 && treadle_random_below(random, 8) == 0) stride += treadle_random_below(random, 4);
    inner += stride * (op->size[d] - 1);
    const bool backwards = treadle_random_below(random, 8) == 0;
    if (backwards) *first_p += stride * (op->size[d] - 1);
    strides[d] = backwards ? -stride : stride;
  }
  return inner;
}

static void draw_sizes(treadle_random *random, treadle_op *op) {
  static const int64_t rows[] = {1,   3,   12,  31,  32,   64,   96,   100,  128,
                                 256, 500, 512, 600, 1024, 2048, 2100, 5000, 30000};
  op->ndim = (uint8_t)treadle_random_below(random, TREADLE_MAX_AXES + 1);
  if (op->ndim == TREADLE_MAX_AXES) op->ndim = (uint8_t)treadle_random_below(random, TREADLE_MAX_AXES + 1);
  for (int d = 0; d < op->ndim; d++) op->size[d] = 1 + treadle_random_below(random, op->ndim < 4 ? 6 : 3);
  if (op->ndim == 0) return;
  op->size[op->ndim - 1] = rows[treadle_random_below(random, (int64_t)(sizeof rows / sizeof *rows))];
  if (op->ndim < 2 || treadle_random_below(random, 2)) return;
  for (int d = 0; d < op->ndim; d++) /* planes of several tiles */
    op->size[d] = 1 + treadle_random_below(random, d < op->ndim - 2 ? 2 : 150);
}

static void place(treadle_random *random, int64_t *at_p, int64_t bytes, const random_side *s) {
  *at_p = treadle_random_below(random, RANDOM_ROOM - bytes + 1); /* any byte: no alignment is promised */
  if (treadle_random_below(random, 4) == 0) return;
  *at_p &= ~INT64_C(63);
  if (!s->paged.table && treadle_random_below(random, 2) == 0) /* so that the address is aligned, too */
    *at_p += *at_p > 0 ? -(int64_t)((uintptr_t)s->base % 16) : 0;
}

treadle_op random_op_draw(treadle_random *random, const random_side *from, const random_side *to) {
  for (;;) {
    const bool fill = treadle_random_below(random, 10) == 0, convert = treadle_random_below(random, 2) == 0;
    treadle_op op = {.source = fill ? -1 : 0, .elems = 1, .tensor = TREADLE_FILL_ZEROS};
    if (treadle_random_below(random, 2)) op.tensor = TREADLE_FILL_MINUS_INFINITY;
    op.from_dtype = (uint8_t)(1 + treadle_random_below(random, TREADLE_INT32));
    op.to_dtype = convert ? (uint8_t)(1 + treadle_random_below(random, TREADLE_INT32)) : op.from_dtype;
    if (convert) op.add = (int8_t)treadle_random_between(random, -1, 1);
    draw_sizes(random, &op);
    for (int d = 0; d < op.ndim; d++) op.elems *= op.size[d];
    if (op.elems > 20000 && treadle_random_below(random, 8) > 0) continue;
    int64_t from_first, to_first;
    int64_t from_bytes =
        draw_strides(random, &op, op.from_stride,
                     (int64_t)treadle_dtype_bytes((treadle_dtype)op.from_dtype), &from_first);
    int64_t to_bytes = draw_strides(random, &op, op.to_stride,
                                    (int64_t)treadle_dtype_bytes((treadle_dtype)op.to_dtype), &to_first);
    if (from_bytes > RANDOM_ROOM || to_bytes > RANDOM_ROOM) continue;
    place(random, &op.from, from_bytes, from);
    place(random, &op.to, to_bytes, to);
    if (op.from + from_bytes > RANDOM_ROOM || op.to + to_bytes > RANDOM_ROOM) continue;
    op.from += from_first;
    op.to += to_first;
    return op;
  }
}

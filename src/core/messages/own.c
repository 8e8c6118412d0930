/* Own tensors: finding them, and ops that touch one at a time. */
#include "messages/own.h"

#include "base/dtype.h"
#include "messages/split.h"

#include <assert.h>
#include <string.h>

/* The first span that ends behind byte `at`. */
static size_t first_behind(const treadle_own_spans *spans, int64_t at) {
  size_t low = 0, high = spans->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (spans->items[middle].offset + spans->items[middle].bytes <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const treadle_own_span *treadle_own_find(const treadle_own_spans *spans, int64_t at) {
  size_t i = first_behind(spans, at);
  return i < spans->count && spans->items[i].offset <= at ? &spans->items[i] : NULL;
}

int64_t treadle_own_until(const treadle_own_spans *spans, int64_t at) {
  size_t i = first_behind(spans, at);
  if (i == spans->count) return INT64_MAX;
  const treadle_own_span *span = &spans->items[i];
  return span->offset <= at ? span->offset + span->bytes - 1 : span->offset - 1;
}

/* ---- Ops ---- */

static treadle_reach reach_of(const treadle_op *op, int64_t at, const int64_t *stride,
                              treadle_dtype dtype) {
  treadle_reach reach = {at, at + (int64_t)treadle_dtype_bytes(dtype) - 1};
  for (int d = 0; d < op->ndim; d++)
    *(stride[d] < 0 ? &reach.first : &reach.last) += (op->size[d] - 1) * stride[d];
  return reach;
}

treadle_reach treadle_op_reads(const treadle_op *op) {
  return reach_of(op, op->from, op->from_stride, (treadle_dtype)op->from_dtype);
}

treadle_reach treadle_op_writes(const treadle_op *op) {
  return reach_of(op, op->to, op->to_stride, (treadle_dtype)op->to_dtype);
}

/* ---- Splitting ---- */

/* The windows of an op, as far as they are looked at, and who takes its parts. */
typedef struct splitter {
  const treadle_own_spans *to, *from; /* NULL: not looked at */
  treadle_own_part take;
  void *context;
} splitter;

/* How many indices of the dimension that reaches farthest fit before `limit`, and which one that is. An op of [8, 100] elements of 2
 * bytes with strides 256 and 2, from byte 0 on, and a limit of 600: rows 0 and 1 end before it. */
static int64_t fitting(const treadle_op *op, const int64_t *stride, treadle_reach reach, int64_t limit,
                       int *dimension_p) {
  int d = 0;
  for (int i = 1; i < op->ndim; i++)
    if (op->size[i] > 1 && (op->size[d] == 1 || stride[i] > stride[d])) d = i;
  *dimension_p = d;
  int64_t rest = reach.last - (op->size[d] - 1) * stride[d]; /* of its first index alone */
  if (rest > limit) return 0;
  return stride[d] > 0 ? (limit - rest) / stride[d] + 1 : op->size[d];
}

/* The side of an op on which it does not stay in one place: its strides and reach, and up to which byte it may go. NULL: none. */
static const int64_t *find_crossing(const splitter *s, const treadle_op *op, treadle_reach *reach_p,
                                    int64_t *limit_p) {
  if (s->to) {
    *reach_p = treadle_op_writes(op);
    *limit_p = treadle_own_until(s->to, reach_p->first);
    if (reach_p->last > *limit_p) return op->to_stride;
  }
  if (!s->from) return NULL;
  *reach_p = treadle_op_reads(op);
  *limit_p = treadle_own_until(s->from, reach_p->first);
  return reach_p->last > *limit_p ? op->from_stride : NULL;
}

/* Indices that fit go as one; an index that does not is split by its other dimensions. */
static void split(const splitter *s, const treadle_op *whole) {
  treadle_op op = *whole;
  treadle_reach reach;
  int64_t limit;
  for (const int64_t *stride; (stride = find_crossing(s, &op, &reach, &limit));) {
    int d;
    int64_t count = fitting(&op, stride, reach, limit, &d);
    if (count < 1) count = 1;
    assert(op.size[d] > count); /* an element lies in one storage tensor */
    const treadle_op head = treadle_op_part(&op, d, 0, count);
    split(s, &head);
    op = treadle_op_part(&op, d, count, op.size[d]);
  }
  s->take(s->context, &op);
}

void treadle_own_parts_written(const treadle_op *op, const treadle_own_spans *to, treadle_own_part take,
                               void *context) {
  split(&(splitter){.to = to, .take = take, .context = context}, op);
}

void treadle_own_parts_read(const treadle_op *op, const treadle_own_spans *from, treadle_own_part take,
                            void *context) {
  split(&(splitter){.from = from, .take = take, .context = context}, op);
}

/* ---- Plans ---- */

typedef struct windows {
  const treadle_plan *plan;
  const treadle_own_spans *to, *from; /* by rank */
  treadle_op_array *ops;
  treadle_status status;
} windows;

static void push(void *context, const treadle_op *part) {
  windows *w = context;
  if (w->status == TREADLE_OK) w->status = treadle_array_push(w->ops, *part);
}

static treadle_status split_op(void *context, const treadle_op *op, treadle_op_array *ops) {
  windows *w = context;
  const treadle_nodes *nodes = w->plan->nodes;
  splitter s = {.to = &w->to[w->plan->rank], .take = push, .context = w};
  bool reads = op->source >= 0;
  w->ops = ops;
  if (reads && !op->twin && nodes && nodes->of[op->source] != nodes->of[w->plan->rank])
    return treadle_array_push(ops, *op);
  if (reads) s.from = op->twin ? &w->to[op->source] : &w->from[op->source];
  split(&s, op);
  return w->status;
}

treadle_status treadle_own_split(treadle_plan *plan, const treadle_own_spans *to,
                                 const treadle_own_spans *from) {
  windows w = {.plan = plan, .to = to, .from = from};
  return treadle_direction_split(&plan->forward, plan->waves, split_op, &w);
}

/* ---- Pages ---- */

int64_t treadle_own_holes(const treadle_own_spans *spans, const treadle_own_span *others, size_t count,
                          int64_t page_bytes, int64_t pages, uint8_t *holes) {
  int64_t marked = 0;
  memset(holes, 0, (size_t)pages);
  for (size_t i = 0; i < spans->count; i++) {
    int64_t last = (spans->items[i].offset + spans->items[i].bytes - 1) / page_bytes;
    for (int64_t page = spans->items[i].offset / page_bytes; spans->items[i].bytes && page <= last; page++)
      holes[page] = 1;
  }
  for (size_t i = 0; i < count; i++) {
    int64_t last = (others[i].offset + others[i].bytes - 1) / page_bytes;
    for (int64_t page = others[i].offset / page_bytes; others[i].bytes && page <= last; page++)
      holes[page] = 0;
  }
  for (int64_t page = 0; page < pages; page++) marked += holes[page];
  return marked;
}

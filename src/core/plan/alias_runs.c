/* Runs: bytes that lie in both windows of a rank in the same order.
 *
 * Both directions are walked with one wave, which gives the fewest ops. Ops that copy the rank's own bytes are divided into
 * stretches. Stretches that follow each other, with one distance between the two windows, are joined, whatever tensors they
 * belong to. A run is what both directions have. */
#include "plan/alias.h"

#include "base/dtype.h"
#include "base/limits.h"
#include "plan/direction.h"

#include <stdlib.h>

/* An op of more short stretches than this, short against a page, will not fill one. */
enum { MANY_STRETCHES = 64, SHORT_OF_PAGE = 16 };

typedef struct run_sink {
  treadle_sink sink;
  int64_t rank, page_bytes;
  bool reverse; /* ops go from the to-window to the from-window */
  treadle_resident_runs *runs;
} run_sink;

static treadle_status push(run_sink *s, int64_t from, int64_t to, int64_t bytes) {
  treadle_resident_run run = {.to = to, .bytes = bytes, .distance = from - to};
  if (s->reverse) run = (treadle_resident_run){.to = from, .bytes = bytes, .distance = to - from};
  return treadle_array_push(s->runs, run);
}

/* The stretches of dimensions d.. of an op. */
static treadle_status take_stretches(run_sink *s, const treadle_op *op, int d, int64_t from, int64_t to,
                                     int64_t bytes) {
  treadle_status status = TREADLE_OK;
  if (d == op->ndim - 1) return push(s, from, to, bytes);
  for (int64_t i = 0; i < op->size[d]; i++)
    TRY(take_stretches(s, op, d + 1, from + i * op->from_stride[d], to + i * op->to_stride[d], bytes));
out:
  return status;
}

static treadle_status take_own(treadle_sink *sink, const treadle_op *op) {
  run_sink *s = (run_sink *)sink;
  int last = op->ndim - 1;
  int64_t each = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  if (op->source != s->rank || op->twin || op->add || op->from_dtype != op->to_dtype) return TREADLE_OK;
  if (op->from_stride[last] != each || op->to_stride[last] != each) return TREADLE_OK; /* turned */
  int64_t bytes = op->size[last] * each, stretches = op->elems / op->size[last];
  if (stretches > MANY_STRETCHES && bytes * SHORT_OF_PAGE < s->page_bytes) return TREADLE_OK;
  if (stretches > (int64_t)TREADLE_MAX_RUNS - (int64_t)s->runs->count) return TREADLE_OK; /* it is copied */
  return take_stretches(s, op, 0, op->from, op->to, bytes);
}

static int by_distance(const void *a, const void *b) {
  const treadle_resident_run *x = a, *y = b;
  if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
  return (x->to > y->to) - (x->to < y->to);
}

static int by_place(const void *a, const void *b) {
  const treadle_resident_run *x = a, *y = b;
  return (x->to > y->to) - (x->to < y->to);
}

/* Sorts runs by distance and place, and joins those that follow each other. */
static void join(treadle_resident_runs *runs) {
  size_t kept = 0;
  if (runs->count > 1) qsort(runs->items, runs->count, sizeof *runs->items, by_distance);
  for (size_t i = 0; i < runs->count; i++) {
    const treadle_resident_run run = runs->items[i];
    treadle_resident_run *last = kept > 0 ? &runs->items[kept - 1] : NULL;
    if (last && last->distance == run.distance && last->to + last->bytes == run.to)
      last->bytes += run.bytes;
    else
      runs->items[kept++] = run;
  }
  runs->count = kept;
}

/* What both have; both are joined. */
static treadle_status intersect(const treadle_resident_runs *a, const treadle_resident_runs *b,
                                treadle_resident_runs *runs) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
    const treadle_resident_run *x = &a->items[i], *y = &b->items[k];
    int64_t x_end = x->to + x->bytes, y_end = y->to + y->bytes;
    if (x->distance == y->distance) {
      int64_t begin = x->to > y->to ? x->to : y->to, end = x_end < y_end ? x_end : y_end;
      if (begin < end)
        TRY(treadle_array_push(runs, ((treadle_resident_run){begin, end - begin, x->distance})));
    }
    if (x->distance != y->distance ? x->distance < y->distance : x_end < y_end)
      i++;
    else
      k++;
  }
  if (runs->count > 1) qsort(runs->items, runs->count, sizeof *runs->items, by_place);
out:
  return status;
}

treadle_status treadle_resident_runs_find(const treadle_lanes *lanes, int64_t rank, int64_t page_bytes,
                                          treadle_resident_runs *runs) {
  treadle_status status = TREADLE_OK;
  treadle_lanes one = *lanes;
  treadle_resident_runs there = {0}, back = {0};
  one.waves = 1;
  run_sink sink = {.sink = {.take = take_own}, .rank = rank, .page_bytes = page_bytes, .runs = &there};
  TRY(treadle_direction_walk_own(&one, one.from, one.to, rank, &sink.sink));
  if (there.count == 0) goto out;
  sink.reverse = true;
  sink.runs = &back;
  TRY(treadle_direction_walk_own(&one, one.to, one.from, rank, &sink.sink));
  join(&there);
  join(&back);
  TRY(intersect(&there, &back, runs));
out:
  treadle_array_release(&there);
  treadle_array_release(&back);
  return status;
}

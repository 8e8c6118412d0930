/* Lists of runs, and their comparison without writing out elements. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

void golden_runs_add(golden_runs *runs, treadle_run run) {
  if (runs->count == runs->capacity) {
    runs->capacity = runs->capacity ? 2 * runs->capacity : 64;
    runs->items = realloc(runs->items, runs->capacity * sizeof *runs->items);
    if (!runs->items) abort();
  }
  runs->items[runs->count++] = run;
}

static int by_local_start(const void *a, const void *b) {
  int64_t x = ((const treadle_run *)a)->local_start, y = ((const treadle_run *)b)->local_start;
  return (x > y) - (x < y);
}

void golden_runs_sort(golden_runs *runs) {
  if (runs->count) qsort(runs->items, runs->count, sizeof *runs->items, by_local_start);
}

void golden_runs_release(golden_runs *runs) {
  free(runs->items);
  *runs = (golden_runs){0};
}

int32_t golden_find_storage(const golden_case *c, int64_t rank, const char *name,
                            treadle_storage_info *info_p) {
  int32_t count = c->subject->storage_count(c->layout, rank);
  for (int32_t i = 0; i < count; i++) {
    if (c->subject->storage(c->layout, rank, i, info_p) && strcmp(info_p->name, name) == 0) return i;
  }
  return -1;
}

/* "model.norm.weight[5] step 1 x 20" or "zeros x 20", into one of two buffers. */
static const char *describe(const golden_case *c, const treadle_run *run, int64_t skip, int which) {
  static char buffers[2][256];
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  long long left = (long long)(run->count - skip);
  if (run->tensor < 0 || !c->subject->tensor(c->layout, run->tensor, &info)) {
    snprintf(buffers[which], sizeof buffers[which], "%s x %lld",
             run->tensor == TREADLE_FILL_ZEROS            ? "zeros"
             : run->tensor == TREADLE_FILL_MINUS_INFINITY ? "minus infinity"
                                                          : "?",
             left);
  } else {
    snprintf(buffers[which], sizeof buffers[which], "%s[%lld] step %lld x %lld%s", info.name,
             (long long)(run->start + skip * run->stride), (long long)run->stride, left,
             run->add == 0    ? ""
             : run->add == -1 ? " less 1"
                              : " plus a number");
  }
  return buffers[which];
}

/* Walks through two lists of runs that both must cover 0..elems without holes. At every step a run of each
 * is under way, `in_a` and `in_b` elements of which are done; the common part must say the same. */
golden_verdict golden_compare_runs(const golden_case *c, int64_t rank, int32_t storage,
                                   const golden_runs *expected) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs = NULL;
  size_t count = 0;
  golden_verdict verdict = GOLDEN_EQUAL;
  if (!c->subject->storage(c->layout, rank, storage, &info) ||
      !c->subject->runs(c->layout, rank, storage, &runs, &count))
    return golden_differ(c, "rank %lld, storage %d: %s", (long long)rank, storage, c->subject->reason());
  int64_t elems = 1, position = 0, in_a = 0, in_b = 0;
  for (int i = 0; i < info.ndim; i++) elems *= info.shape[i];
  size_t a = 0, b = 0;
  while (position < elems) {
    const treadle_run none = {.local_start = -1, .tensor = -3};
    const treadle_run *x = a < count ? &runs[a] : &none,
                      *y = b < expected->count ? &expected->items[b] : &none;
    int64_t left_x = x->count - in_a, left_y = y->count - in_b, common = left_x < left_y ? left_x : left_y;
    bool same = x->local_start + in_a == position && y->local_start + in_b == position && common > 0 &&
                x->tensor == y->tensor && x->add == y->add &&
                (x->tensor < 0 || (x->start + in_a * x->stride == y->start + in_b * y->stride &&
                                   (common == 1 || x->stride == y->stride)));
    if (!same) {
      verdict = golden_differ(c, "rank %lld, chunk %d, %s, element %lld: golden %s, found %s",
                              (long long)rank, (int)info.chunk, info.name, (long long)position,
                              describe(c, y, in_b, 0), describe(c, x, in_a, 1));
      break;
    }
    position += common;
    in_a = common == left_x ? (a++, 0) : in_a + common;
    in_b = common == left_y ? (b++, 0) : in_b + common;
  }
  if (verdict == GOLDEN_EQUAL && (a != count || b != expected->count))
    verdict = golden_differ(c, "rank %lld, %s: runs after the last element", (long long)rank, info.name);
  for (size_t i = 1; verdict == GOLDEN_EQUAL && i < count; i++) { /* maximal, as treadle_run promises */
    const treadle_run *x = &runs[i - 1], *y = &runs[i];
    bool fill = x->tensor < 0 && x->tensor == y->tensor;
    bool goes_on = x->tensor >= 0 && x->tensor == y->tensor && x->add == y->add && x->stride == y->stride &&
                   x->start + x->count * x->stride == y->start;
    if (fill || goes_on)
      verdict = golden_differ(c, "rank %lld, %s: runs at %lld and %lld are one", (long long)rank, info.name,
                              (long long)x->local_start, (long long)y->local_start);
  }
  free(runs);
  return verdict;
}

/* Lives of pages, and their sharing.
 *
 * Every byte of a window has a canonical wave, so every page has a first and a last. Forward, from-page z is
 * free once all ranks have finished wave last(z), which a rank knows TREADLE_LAG - 1 waves late; to-page y is
 * written from wave first(y) on. So y may lie on z when last(z) <= first(y) - TREADLE_LAG. Taking both
 * in order of these waves and giving each y the earliest free z is a largest matching, and the number of
 * physical pages is then exactly the most that are in use at any wave. The way back is the same film backwards:
 * the same condition lets z be written again. */
#include "plan/pages.h"

#include "base/dtype.h"

#include <stdlib.h>

/* Marks what dimensions d.. of an op touch, from byte `at`. Dimensions whose stride is no more than a page leave
 * no page out, so that the rest is one range. */
static void touch(treadle_page_life *pages, int64_t page_bytes, const treadle_op *op, int d, int64_t at) {
  if (d < op->ndim && op->to_stride[d] > page_bytes) {
    for (int64_t i = 0; i < op->size[d]; i++)
      touch(pages, page_bytes, op, d + 1, at + i * op->to_stride[d]);
    return;
  }
  int64_t last = at + (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype) - 1;
  for (int i = d; i < op->ndim; i++) last += (op->size[i] - 1) * op->to_stride[i];
  for (int64_t page = at / page_bytes; page <= last / page_bytes; page++) {
    if (op->wave < pages[page].first) pages[page].first = op->wave;
    if (op->wave > pages[page].last) pages[page].last = op->wave;
  }
}

void treadle_pages_touch(treadle_page_life *pages, int64_t page_bytes, const treadle_op *op) {
  if (op->elems > 0) touch(pages, page_bytes, op, 0, op->to);
}

/* Page numbers by wave, stable: a counting sort. `by_last` sorts by last, else by first. */
static treadle_status sort_pages(const treadle_page_life *pages, int64_t count, int32_t waves, bool by_last,
                                 int32_t **order_p) {
  int32_t *order = treadle_alloc_array((size_t)count + 1, sizeof *order);
  int64_t *begin = treadle_alloc_array((size_t)waves + 1, sizeof *begin);
  *order_p = order;
  if (!order || !begin) {
    treadle_free(begin);
    return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  }
  for (int64_t i = 0; i < count; i++) begin[(by_last ? pages[i].last : pages[i].first) + 1]++;
  for (int32_t w = 0; w < waves; w++) begin[w + 1] += begin[w];
  for (int64_t i = 0; i < count; i++) {
    int32_t wave = by_last ? pages[i].last : pages[i].first;
    order[begin[wave]++] = (int32_t)i;
  }
  treadle_free(begin);
  return TREADLE_OK;
}

/* Notes that a write in wave `wave` must wait for `needed`. */
static void note(treadle_direction *direction, int32_t wave, int32_t needed) {
  if (!direction) return;
  if (needed > direction->need[wave]) direction->need[wave] = needed;
  if (wave < direction->first_reclaim) direction->first_reclaim = wave;
}

treadle_status treadle_pages_share(const treadle_page_life *from, int64_t from_count,
                                   const treadle_page_life *to, int64_t to_count, int32_t waves,
                                   int32_t *from_page, int32_t *to_page, treadle_direction *forward,
                                   treadle_direction *back, int64_t *physical_p) {
  treadle_status status = TREADLE_OK;
  int32_t *leaving = NULL, *coming = NULL;
  TRY(sort_pages(from, from_count, waves, true, &leaving));
  TRY(sort_pages(to, to_count, waves, false, &coming));
  if (from_page)
    for (int64_t i = 0; i < from_count; i++) from_page[i] = (int32_t)i;
  int64_t free_at = 0, physical = from_count;
  for (int64_t i = 0; i < to_count; i++) {
    int32_t y = coming[i], page;
    if (free_at < from_count && from[leaving[free_at]].last <= to[y].first - TREADLE_LAG) {
      page = leaving[free_at++];
      note(forward, to[y].first, from[page].last);
      note(back, waves - 1 - from[page].last, waves - 1 - to[y].first);
    } else {
      page = (int32_t)physical++;
    }
    if (to_page) to_page[y] = page;
  }
  *physical_p = physical;
out:
  treadle_free(leaving);
  treadle_free(coming);
  return status;
}

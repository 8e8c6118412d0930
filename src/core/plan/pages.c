/* Lives of pages (first and last wave), and which pages of the two windows share a physical page.
 *
 * Every byte of a window has a canonical wave, so every page has a first and a last wave. Forward, from-page z is
 * free once all ranks have finished wave last(z), which a rank knows TREADLE_LAG - 1 waves late; to-page y is
 * written from wave first(y) on. So y may lie on z when last(z) <= first(y) - TREADLE_LAG. Taking both
 * in order of these waves and giving each y the earliest free z is a largest matching, and the number of
 * physical pages is then exactly the most that are in use in any wave. The way back has the waves in reverse order:
 * the same condition lets z be written again.
 *
 * An aliased page is in use all the time, in both windows at once: it is neither free nor needed. */
#include "plan/pages.h"

#include "base/dtype.h"

#include <inttypes.h>
#include <stdlib.h>

/* A page that nothing has touched is [TREADLE_MAX_WAVES, -1]: the first wave sets both. */
static treadle_page_life *new_lives(int64_t count) {
  treadle_page_life *pages = treadle_alloc_array((size_t)count + 1, sizeof *pages);
  for (int64_t i = 0; pages && i < count; i++) pages[i] = (treadle_page_life){TREADLE_MAX_WAVES, -1};
  return pages;
}

treadle_status treadle_window_lives_create(int64_t from_pages, int64_t to_pages,
                                           treadle_window_lives *lives) {
  *lives = (treadle_window_lives){.from_count = from_pages, .to_count = to_pages};
  lives->from = new_lives(from_pages);
  lives->to = new_lives(to_pages);
  if (!lives->from || !lives->to) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  return TREADLE_OK;
}

void treadle_window_lives_release(treadle_window_lives *lives) {
  treadle_free(lives->from);
  treadle_free(lives->to);
}

void treadle_window_lives_settle(treadle_window_lives *lives) {
  for (int64_t i = 0; i < lives->from_count; i++)
    if (lives->from[i].last < 0) lives->from[i] = (treadle_page_life){0, 0};
  for (int64_t i = 0; i < lives->to_count; i++)
    if (lives->to[i].last < 0) lives->to[i] = (treadle_page_life){0, 0};
}

/* Marks what dimensions d.. of an op touch, from byte `at`. Dimensions whose stride is no more than a page leave
 * no page out, so that the rest is one range.
 * With pages of 4096 bytes, [3, 100] elements with strides 8192 and 32 are 3 ranges of 99 * 32 bytes and an
 * element. */
static void touch(treadle_page_life *pages, int64_t page_bytes, const treadle_op *op, int d, int64_t at) {
  if (d < op->ndim && op->to_stride[d] > page_bytes) {
    for (int64_t i = 0; i < op->size[d]; i++)
      touch(pages, page_bytes, op, d + 1, at + i * op->to_stride[d]);
    return;
  }
  int64_t last = at + (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype) - 1;
  for (int i = d; i < op->ndim; i++) last += (op->size[i] - 1) * op->to_stride[i];
  treadle_pages_mark(pages, page_bytes, at, last, op->wave);
}

void treadle_pages_touch(treadle_page_life *pages, int64_t page_bytes, const treadle_op *op, int64_t at) {
  if (op->elems > 0) touch(pages, page_bytes, op, 0, at);
}

void treadle_pages_touch_block_row(treadle_page_life *pages, int64_t page_bytes,
                                   const treadle_block_row *block_row,
                                   const treadle_block_row_part *parts) {
  if (!block_row->quantises) {
    for (int64_t i = 0; i < block_row->parts; i++)
      for (int32_t k = 0; k < block_row->count; k++) {
        const treadle_op op = treadle_block_row_part_at(block_row, &parts[i], k);
        treadle_pages_touch(pages, page_bytes, &op, op.to);
      }
    return;
  }
  /* What is written is codes [block rows, rows, columns] and scales [block rows, blocks]. */
  const treadle_op codes = {.wave = block_row->wave,
                            .to_dtype = TREADLE_FP8_E4M3,
                            .to = block_row->codes,
                            .ndim = 3,
                            .size = {block_row->count, block_row->code_rows, block_row->code_columns},
                            .to_stride = {block_row->code_step, block_row->code_stride, 1},
                            .elems = 1};
  const treadle_op scales = {.wave = block_row->wave,
                             .to_dtype = TREADLE_FP32,
                             .to = block_row->scales,
                             .ndim = 2,
                             .size = {block_row->count, treadle_block_row_blocks(block_row)},
                             .to_stride = {block_row->scale_step, block_row->scale_stride},
                             .elems = 1};
  treadle_pages_touch(pages, page_bytes, &codes, codes.to);
  treadle_pages_touch(pages, page_bytes, &scales, scales.to);
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
  /* begin[w]: how many pages have an earlier wave, so the place of the next page of wave w. */
  for (int64_t i = 0; i < count; i++) begin[(by_last ? pages[i].last : pages[i].first) + 1]++;
  for (int32_t w = 0; w < waves; w++) begin[w + 1] += begin[w];
  for (int64_t i = 0; i < count; i++) {
    int32_t wave = by_last ? pages[i].last : pages[i].first;
    order[begin[wave]++] = (int32_t)i;
  }
  treadle_free(begin);
  return TREADLE_OK;
}

/* Notes that a write in wave `wave` must wait for `needed`.
 * On the way back a wave w is waves - 1 - w, and the two pages change places: z is written, once y was read.
 * The distance of the two waves is the same. */
static void note(treadle_direction *direction, int32_t wave, int32_t needed) {
  if (!direction) return;
  if (needed > direction->need[wave]) direction->need[wave] = needed;
  if (wave < direction->first_reclaim) direction->first_reclaim = wave;
}

/* leaving: from-pages by last wave; coming: to-pages by first wave. free_at goes through `leaving` once:
 * if its page is not free early enough for this y, no later one is; y gets a fresh page, and the next y,
 * which comes no earlier, asks again. Shared pages are passed by; where from-pages are kept none gets
 * free. */
treadle_status treadle_window_lives_share(const treadle_window_lives *lives, int32_t waves,
                                          int32_t *from_page, int32_t *to_page, treadle_direction *forward,
                                          treadle_direction *back, int64_t *physical_p) {
  treadle_status status = TREADLE_OK;
  const treadle_page_life *from = lives->from, *to = lives->to;
  const int32_t *from_of = lives->arrangement ? lives->arrangement->from_of : NULL;
  const int32_t *to_of = lives->arrangement ? lives->arrangement->to_of : NULL;
  int32_t *leaving = NULL, *coming = NULL;
  TRY(sort_pages(from, lives->from_count, waves, true, &leaving));
  TRY(sort_pages(to, lives->to_count, waves, false, &coming));
  if (from_page)
    for (int64_t i = 0; i < lives->from_count; i++) from_page[i] = (int32_t)i;
  int64_t free_at = lives->kept ? lives->from_count : 0, physical = lives->from_count;
  for (int64_t i = 0; i < lives->to_count; i++) {
    int32_t y = coming[i], page;
    while (to_of && free_at < lives->from_count && to_of[leaving[free_at]] >= 0) free_at++;
    if (from_of && from_of[y] >= 0) {
      page = from_of[y];
    } else if (free_at < lives->from_count && from[leaving[free_at]].last <= to[y].first - TREADLE_LAG) {
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

/* Pages: the first and the last wave in which each page of a window is used, and its physical page. */
#ifndef TREADLE_PLAN_PAGES_H
#define TREADLE_PLAN_PAGES_H

#include "plan/plan.h"

typedef struct treadle_page_life {
  int32_t first, last; /* canonical waves of its first and last atom; first > last: never touched */
} treadle_page_life;

/* Of both windows of a rank. */
typedef struct treadle_window_lives {
  treadle_page_life *from, *to;
  int64_t from_count, to_count;
  const treadle_arrangement *arrangement; /* its aliased pages are no part of the sharing; NULL: none are */
  bool kept;                              /* from-pages are never free */
} treadle_window_lives;

treadle_status treadle_window_lives_create(int64_t from_pages, int64_t to_pages,
                                           treadle_window_lives *lives);
/* When all ops are marked: a page of which nothing is ever touched (gaps between storage tensors) lives in the
 * first wave. */
void treadle_window_lives_settle(treadle_window_lives *lives);
void treadle_window_lives_release(treadle_window_lives *lives);

/* Marks the pages of bytes begin..last as touched in a wave. */
static inline void treadle_pages_mark(treadle_page_life *pages, int64_t page_bytes, int64_t begin,
                                      int64_t last, int32_t wave) {
  for (int64_t page = begin / page_bytes; page <= last / page_bytes; page++) {
    if (wave < pages[page].first) pages[page].first = wave;
    if (wave > pages[page].last) pages[page].last = wave;
  }
}

/* Marks the pages that an op's destination touches, when it begins at byte `at`. */
void treadle_pages_touch(treadle_page_life *pages, int64_t page_bytes, const treadle_op *op, int64_t at);

/* Marks the pages that a block row writes. */
void treadle_pages_touch_block_row(treadle_page_life *pages, int64_t page_bytes,
                                   const treadle_block_row *block_row, const treadle_block_row_part *parts);

/* Puts the pages of both windows on as few physical pages as the lag allows. from_page and to_page may be
 * NULL when only the count is wanted. need (both directions) and first_reclaim are filled where directions are
 * given. */
treadle_status treadle_window_lives_share(const treadle_window_lives *lives, int32_t waves,
                                          int32_t *from_page, int32_t *to_page, treadle_direction *forward,
                                          treadle_direction *back, int64_t *physical_p);

#endif

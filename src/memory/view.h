/* A view: a window seen through its page table. Byte b of the window is at base + table[b / page] * page + b
 * % page. An extent is a range of the window that is contiguous in memory too. What may only be read, such as the windows of
 * other ranks and mapped files, has a base, and nowhere to write. */
#ifndef TREADLE_MEMORY_VIEW_H
#define TREADLE_MEMORY_VIEW_H

#include <stdint.h>
#include <string.h>

typedef struct treadle_view {
  const char *base;
  char *into;           /* the same where it may be written; NULL: it is only read */
  const int32_t *table; /* NULL: the window is contiguous at base */
  int page_shift;       /* log2 of the page size, with a table */
} treadle_view;

/* Contiguous memory that may be written. */
static inline treadle_view treadle_view_of(void *memory) {
  return (treadle_view){.base = memory, .into = memory};
}

/* Where byte `at` of the window lies in the pool that its table is of. */
static inline int64_t treadle_view_place(const treadle_view *view, int64_t at) {
  if (!view->table) return at;
  return ((int64_t)view->table[at >> view->page_shift] << view->page_shift) +
         (at & (((int64_t)1 << view->page_shift) - 1));
}

static inline const char *treadle_view_address(const treadle_view *view, int64_t at) {
  return view->base + treadle_view_place(view, at);
}
static inline char *treadle_view_into(const treadle_view *view, int64_t at) {
  return view->into + treadle_view_place(view, at);
}

/* How many of the `wanted` bytes from `at` on are contiguous in memory. */
static inline int64_t treadle_view_extent(const treadle_view *view, int64_t at, int64_t wanted) {
  if (!view->table) return wanted;
  int64_t page_bytes = (int64_t)1 << view->page_shift, page = at >> view->page_shift;
  int64_t bytes = page_bytes - (at & (page_bytes - 1));
  for (; bytes < wanted && view->table[page + 1] == view->table[page] + 1; page++) bytes += page_bytes;
  return bytes < wanted ? bytes : wanted;
}

/* `bytes` bytes from `at` on, across borders, into and out of a buffer. */
static inline void treadle_view_read(const treadle_view *view, int64_t at, void *buffer, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    int64_t part = treadle_view_extent(view, at + done, bytes - done);
    memcpy((char *)buffer + done, treadle_view_address(view, at + done), (size_t)part);
    done += part;
  }
}

static inline void treadle_view_write(const treadle_view *view, int64_t at, const void *buffer,
                                      int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    int64_t part = treadle_view_extent(view, at + done, bytes - done);
    memcpy(treadle_view_into(view, at + done), (const char *)buffer + done, (size_t)part);
    done += part;
  }
}

#endif

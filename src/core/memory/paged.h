/* A view: a window seen through its page table. Byte b of the window is at base + table[b / page] * page + b
 * % page. An extent is a range of the window that is contiguous in memory too. What may only be read, such as the windows of
 * other ranks and mapped files, has a base, and nowhere to write. */
#ifndef TREADLE_MEMORY_PAGED_H
#define TREADLE_MEMORY_PAGED_H

#include "treadle_device.h"

#include <string.h>

/* Contiguous memory that may be written. */
static inline treadle_paged treadle_paged_of(void *memory) {
  return (treadle_paged){.base = memory, .into = memory};
}

/* Where byte `at` of the window lies in the pool that its table is of. */
static inline int64_t treadle_paged_place(const treadle_paged *paged, int64_t at) {
  if (!paged->table) return at;
  return ((int64_t)paged->table[at >> paged->page_shift] << paged->page_shift) +
         (at & (((int64_t)1 << paged->page_shift) - 1));
}

static inline const char *treadle_paged_address(const treadle_paged *paged, int64_t at) {
  return paged->base + treadle_paged_place(paged, at);
}
static inline char *treadle_paged_into(const treadle_paged *paged, int64_t at) {
  return paged->into + treadle_paged_place(paged, at);
}

/* How many of the `wanted` bytes from `at` on are contiguous in memory. */
static inline int64_t treadle_paged_extent(const treadle_paged *paged, int64_t at, int64_t wanted) {
  if (!paged->table) return wanted;
  int64_t page_bytes = (int64_t)1 << paged->page_shift, page = at >> paged->page_shift;
  int64_t bytes = page_bytes - (at & (page_bytes - 1));
  for (; bytes < wanted && paged->table[page + 1] == paged->table[page] + 1; page++) bytes += page_bytes;
  return bytes < wanted ? bytes : wanted;
}

/* `bytes` bytes from `at` on, across borders, into and out of a buffer. */
static inline void treadle_paged_read(const treadle_paged *paged, int64_t at, void *buffer, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    int64_t part = treadle_paged_extent(paged, at + done, bytes - done);
    memcpy((char *)buffer + done, treadle_paged_address(paged, at + done), (size_t)part);
    done += part;
  }
}

static inline void treadle_paged_write(const treadle_paged *paged, int64_t at, const void *buffer,
                                       int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    int64_t part = treadle_paged_extent(paged, at + done, bytes - done);
    memcpy(treadle_paged_into(paged, at + done), (const char *)buffer + done, (size_t)part);
    done += part;
  }
}

#endif

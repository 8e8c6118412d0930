/* Finding a place in a list that ascends. */
#ifndef TREADLE_BASE_SEARCH_H
#define TREADLE_BASE_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* Of `count` numbers that ascend, the place of the last one that is at most `limit`; 0 where none is. Each lies `step` bytes behind
 * the one before it, so they may be a member of structs: treadle_last_at_most(&runs->first, sizeof *runs, count, rank). */
static inline int64_t treadle_last_at_most(const int64_t *first, size_t step, int64_t count,
                                           int64_t limit) {
  int64_t low = 0;
  for (int64_t high = count; high - low > 1;) {
    int64_t middle = low + (high - low) / 2;
    if (*(const int64_t *)(const void *)((const char *)first + (size_t)middle * step) <= limit)
      low = middle;
    else
      high = middle;
  }
  return low;
}

#endif

/* Copying strided boxes, at memory speed.
 *
 * A view is a window seen through its page table: byte b of the window is at base + table[b / page] * page
 * + b % page. The kernel walks the box, splits runs at page borders of either side, and hands runs to the
 * mover: stores that go past the cache (non-temporal) for what is large, with a prefetch of the rows to
 * come; the plain twin is memcpy, and the tests compare the two. Conversions of type are done run by run on
 * the way. */
#ifndef TREADLE_MEMORY_COPY_H
#define TREADLE_MEMORY_COPY_H

#include "plan/plan.h"

typedef struct treadle_view {
  char *base;
  const int32_t *table; /* NULL: the window is contiguous at base */
  int page_shift;       /* log2 of the page size, with a table */
} treadle_view;

typedef enum treadle_mover { TREADLE_MOVER_PLAIN = 0, TREADLE_MOVER_STREAM } treadle_mover;

/* What this processor is best served with. */
treadle_mover treadle_copy_choose(void);

/* Runs one op: reads `from` (ignored for a fill), writes `to`. */
void treadle_copy_op(const treadle_op *op, const treadle_view *from, const treadle_view *to,
                     treadle_mover mover);
/* Makes streamed stores visible to other processors before a flag is raised. */
void treadle_copy_fence(void);

#endif

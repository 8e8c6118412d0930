/* Copying strided boxes, at memory speed.
 *
 * The kernel walks the box, splits runs at page borders of either side, and hands runs to the mover: stores
 * that go past the cache (non-temporal) for what is large, with a prefetch of the rows to come; conversions
 * of type from registers to registers (cast.h); boxes whose fastest dimension differs on the two sides tile by
 * tile (copy_elems.h). The plain mover does the same with memcpy and loops over elements, and the tests
 * compare the two. */
#ifndef TREADLE_MEMORY_COPY_H
#define TREADLE_MEMORY_COPY_H

#include "memory/paged.h"
#include "move/move.h"

typedef enum treadle_mover { TREADLE_MOVER_PLAIN = 0, TREADLE_MOVER_STREAM } treadle_mover;

/* What this processor is best served with. */
treadle_mover treadle_copy_choose(void);

/* Runs one op: reads `from` (ignored for a fill), writes `to`. Dimensions may be in any order and overlap at
 * the source, not at the destination. */
void treadle_copy_op(const treadle_op *op, const treadle_paged *from, const treadle_paged *to,
                     treadle_mover mover);
/* Makes streamed stores visible to other processors before a flag is raised. */
void treadle_copy_fence(void);

#endif

/* Ops of a direction that are put in place of others, which write the same. */
#ifndef TREADLE_MESSAGES_SPLIT_H
#define TREADLE_MESSAGES_SPLIT_H

#include "plan/plan.h"

/* Appends the ops that an op becomes, which may be itself. TREADLE_NO_MEMORY. */
typedef treadle_status (*treadle_split_op)(void *context, const treadle_op *op, treadle_op_array *ops);

/* Of each op in its order; waves stay, and the coverage is that of the new ops. On failure the direction is not to be used. */
treadle_status treadle_direction_split(treadle_direction *direction, int32_t waves, treadle_split_op split,
                                       void *context);

/* Indices [first, end) of dimension d of an op. */
treadle_op treadle_op_part(const treadle_op *op, int d, int64_t first, int64_t end);

#endif

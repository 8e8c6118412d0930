/* Lists that each rank hands over to all others of its node, once, when a switch is made: too long for treadle_group_say. */
#ifndef TREADLE_CARRY_HANDOVER_H
#define TREADLE_CARRY_HANDOVER_H

#include "group/link.h"
#include "memory/pool.h"

typedef struct treadle_handover {
  treadle_pool *pool;
  treadle_peer_memory *all; /* by rank */
} treadle_handover;

/* Hands over `count` items of `each` bytes, and makes those of all ready to be read. Refused where a rank's memory cannot be read in
 * place. Collective. Also after a failure it is ended. */
treadle_status treadle_hand_over(treadle_group *group, const void *items, size_t count, size_t each,
                                 treadle_handover *h);
/* The items of a rank, as it has them: what they say is to be checked. Of ranks of other nodes there are none. */
const void *treadle_handed(const treadle_handover *h, int rank, size_t *count_p);
/* When all have read, or given up. Local. */
void treadle_handover_end(treadle_group *group, treadle_handover *h);

#endif

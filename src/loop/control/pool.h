/* A resource pool as its two files share it: pool.c makes one by placing, pool_parts.c one of others. It keeps all that it says of its slots, so
 * that it needs neither the table of slots nor the pool that it was part of. */
#ifndef TREADLE_CONTROL_POOL_H
#define TREADLE_CONTROL_POOL_H

#include "control/slots.h"

#include <stdbool.h>

struct treadle_resource_pool {
  const char *name;
  int32_t count, entries, nodes, max_colocate_count;
  treadle_slot slots[]; /* [count] entry after entry */
};

/* A pool whose slots are to be filled in; then its entries and nodes are counted. */
treadle_status treadle_pool_begin(const char *name, int32_t count, int32_t max_colocate_count,
                                  treadle_resource_pool **pool_p);
treadle_status treadle_pool_settle(treadle_resource_pool *pool);
/* Numbers of `count` slots, or of their nodes, ascending. */
void treadle_pool_sort(int32_t *to, const treadle_slot *slots, int32_t count, bool of_nodes);

#endif

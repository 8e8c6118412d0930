/* treadle for those who say which processes do what: pools of slots, and the roles that work in them.
 *
 *   treadle_resource_pool_*   slots that work together, each a place for one process, on one node or on several
 *
 * The conventions are those of treadle.h. */
#ifndef TREADLE_CONTROL_H
#define TREADLE_CONTROL_H

#include "treadle_loop.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Resource pools ---------------------------------------------------------------------------------------
 *
 * A slot is a place for one process. A pool has one slot for each of its bundles. An entry of a pool is a number of
 * bundles that must all be on one node (STRICT_PACK, in Ray's words). Pools that are made together share no slot.
 *
 * Nothing is started: all of it is arithmetic, and gives the same result on every rank. */
typedef struct treadle_resource_pool treadle_resource_pool;

/* Frozen. */
typedef struct treadle_resource_pool_spec {
  const char *name;
  const int32_t *counts; /* [entries] bundles of each entry, at least 1 */
  size_t entries;
  int32_t max_colocate_count; /* the most worker groups on a slot; 0: 3 */
  /* Worker groups on each slot that have processes of their own. Roles that share a process count once. 0: 1 */
  int32_t groups;
} treadle_resource_pool_spec;

typedef struct treadle_resource_pool_info {
  size_t struct_size;
  const char *name; /* belongs to the pool */
  int32_t slots, entries;
  int32_t nodes; /* on which its slots are */
  int32_t max_colocate_count;
} treadle_resource_pool_info;

/* Frozen. */
typedef struct treadle_slot {
  int32_t number; /* of the slot, among all of them */
  int32_t node;
  int32_t local_rank, local_world; /* its number among the slots of its node, and how many these are */
  int32_t entry, bundle;           /* of its pool */
} treadle_slot;

/* Places `count` pools, in their order: entry after entry, each on the first node that has room for it, on the free
 * slots of that node with the lowest numbers. Nodes are in the order of their first slots. node_of [slots]: the node of
 * each slot, a number from 0. pools [count].
 *
 * Refused, with names and numbers: fewer slots than all pools ask for (the message names the first pool that does not
 * fit); enough slots, but no node with room for an entry; a count below 1; a pool without entries or without a name of
 * its own; more worker groups on a slot than max_colocate_count. On failure all pools are NULL. Local. */
treadle_status treadle_resource_pool_create(const treadle_resource_pool_spec *specs, size_t count,
                                            const int32_t *node_of, size_t slots, treadle_resource_pool **pools);
void treadle_resource_pool_destroy(treadle_resource_pool *pool);
void treadle_resource_pool_get_info(const treadle_resource_pool *pool, treadle_resource_pool_info *info_p);
/* Gives the slot of the pool's `rank`, from 0: entry after entry, bundle after bundle. */
treadle_status treadle_resource_pool_get_slot(const treadle_resource_pool *pool, int32_t rank, treadle_slot *slot_p);

/* Splits a pool into pools on the same slots: part i has the next counts[i] of them. A part may have slots of several
 * nodes, and may be split again. Its name is that of the pool with [i] behind it. The pool itself stays as it is. parts
 * [count]. Refused: a count below 1; counts that do not sum up to the pool's slots. On failure all parts are NULL.
 * Local. */
treadle_status treadle_resource_pool_split(const treadle_resource_pool *pool, const int32_t *counts, size_t count,
                                           treadle_resource_pool **parts);
/* The same with parts of split_size slots each: parts [the pool's slots / split_size]. Refused: a split_size that is
 * not a divisor of the pool's slots. */
treadle_status treadle_resource_pool_split_evenly(const treadle_resource_pool *pool, int32_t split_size,
                                                  treadle_resource_pool **parts);
/* Gives a pool with the entries of both, first those of `a`. Its name is that of both with _ between them. Both stay as
 * they are. Refused: pools with another max_colocate_count, or entries of other sizes; a slot that is in both. On
 * failure *merged_p is NULL. Local. */
treadle_status treadle_resource_pool_merge(const treadle_resource_pool *a, const treadle_resource_pool *b,
                                           treadle_resource_pool **merged_p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

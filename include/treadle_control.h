/* treadle for those who say which processes do what: pools of slots, and the roles that work in them.
 *
 *   treadle_resource_pool_*   slots that work together, each a place for one process, on one node or on several
 *   treadle_role              what processes do
 *   treadle_rl_pools_*        the pools that a configuration gives its roles
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

/* ---- Roles -------------------------------------------------------------------------------------------------- */

/* What processes of a run do, in verl's words. */
typedef enum treadle_role {
  TREADLE_ROLE_ACTOR_ROLLOUT, /* trains the policy and generates with it */
  TREADLE_ROLE_ACTOR,         /* trains it */
  TREADLE_ROLE_ROLLOUT,       /* generates with it */
  TREADLE_ROLE_CRITIC,
  TREADLE_ROLE_REF_POLICY,
  TREADLE_ROLE_REWARD_MODEL,
  TREADLE_ROLES
} treadle_role;

/* "ActorRollout", "Actor", "Rollout", "Critic", "RefPolicy", "RewardModel", as a mapping names it; "(none)" for what
 * is none of them. */
const char *treadle_role_name(treadle_role role);

/* ---- Pools of a run ------------------------------------------------------------------------------------------- */

/* The pools that a configuration of reinforcement learning gives its roles (docs/pools.md), placed on nodes. */
typedef struct treadle_rl_pools treadle_rl_pools;

typedef struct treadle_rl_pools_info {
  size_t struct_size;
  const char *place; /* what says which pools there are: "resource_pools (line 3)"; NULL: nothing, and there is one */
  int32_t count;
  int32_t slots, nodes; /* of all pools together */
  int32_t idle;         /* slots that no pool takes */
  /* The rank of the controller, and that of slot 0. With one pool the controller also works: both are 0. With several
   * it is a process of its own, and slot s is rank s + 1. */
  int32_t controller, first_rank;
} treadle_rl_pools_info;

typedef struct treadle_rl_pool_info {
  size_t struct_size;
  const treadle_resource_pool *pool; /* belongs to the treadle_rl_pools */
  const treadle_role *roles;         /* [role_count] in the order of the configuration */
  int32_t role_count;
} treadle_rl_pool_info;

/* Reads a configuration as treadle_rl_config_read does, for its pools: if it has no model, nothing has to be in it but
 * what says which pools there are. */
treadle_status treadle_rl_pools_config_read(const char *path, const char *const *overrides, size_t count,
                                            treadle_train_config **config_p);

/* Places them on nodes with slots_by_node [nodes] slots; NULL and 0: on one node with as many as they ask for. Slots
 * that no pool takes are left out, and the others numbered node after node, as a run has them that is started with one
 * process for each. Refused: what treadle_resource_pool_create refuses; a slot that is named and not there. On failure
 * *pools_p is NULL. Local. */
treadle_status treadle_rl_pools_create(const treadle_train_config *config, const int32_t *slots_by_node, size_t nodes,
                                       treadle_rl_pools **pools_p);
void treadle_rl_pools_destroy(treadle_rl_pools *pools);
void treadle_rl_pools_get_info(const treadle_rl_pools *pools, treadle_rl_pools_info *info_p);
/* In the order of the configuration, from 0. */
treadle_status treadle_rl_pools_get_pool(const treadle_rl_pools *pools, int32_t number, treadle_rl_pool_info *info_p);
/* Computes the peak of bytes of the fullest rank of a pool, as treadle_rl_foresee does. `config` is the one of which
 * the pools were made. *known_p is false, and *bytes_p 0, if the configuration has no model, or if a role of the pool
 * cannot be foreseen yet: all but ActorRollout, Actor and Rollout together, and RefPolicy beside them. Local. */
treadle_status treadle_rl_pools_foresee(const treadle_rl_pools *pools, const treadle_train_config *config,
                                        const treadle_rl_options *options, int32_t number, size_t *bytes_p,
                                        bool *known_p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

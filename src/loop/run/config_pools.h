/* What a configuration says of pools: which there are, and which role works in which. One of four forms says it: resource_pools and mapping, or the
 * keys of MindSpeed-RL, verl or RLinf. Where slots are is not known yet: a pool is placed when nodes are (rl/pools.c). */
#ifndef TREADLE_RUN_CONFIG_POOLS_H
#define TREADLE_RUN_CONFIG_POOLS_H

#include "run/config.h"
#include "treadle_control.h"

typedef enum treadle_config_pool_type {
  TREADLE_POOL_ENTRIES, /* each of its counts is on one node */
  TREADLE_POOL_NEXT,    /* counts[0] slots, the next ones that are free, on any nodes */
  TREADLE_POOL_CHOSEN,  /* slots that are named, of which each count says how many are neighbours */
  TREADLE_POOL_ALL      /* all slots */
} treadle_config_pool_type;

typedef struct treadle_config_pool {
  const char *name;
  treadle_config_pool_type type;
  int32_t *counts; /* [entries] */
  size_t entries;
  const int32_t *firsts; /* [entries] of CHOSEN: the first slot of each count; they ascend */
} treadle_config_pool;

/* Of all slots 0. */
static inline int64_t treadle_config_pool_slots(const treadle_config_pool *pool) {
  int64_t sum = 0;
  for (size_t i = 0; i < pool->entries; i++) sum += pool->counts[i];
  return sum;
}

typedef struct treadle_config_role {
  treadle_pool_role role;
  size_t pool;
} treadle_config_role;

typedef struct treadle_config_pools {
  const char *place; /* what says so: "resource_pools (line 3)" */
  bool is_own;       /* treadle's own form: a run has as many ranks, no more and no fewer */
  treadle_config_pool *all;
  size_t count;
  treadle_config_role roles[TREADLE_POOL_ROLES]; /* in the order in which they are given */
  size_t role_count;
} treadle_config_pools;

/* Where there are several pools: that of a role; of Actor that of ActorRollout, if this is in the mapping; of a role that it does not name that of the
 * policy. NULL: there is one pool at most. */
const treadle_config_pool *treadle_config_pools_of(const treadle_config_pools *pools,
                                                   treadle_pool_role role);

/* ---- For the files that read a form ---- */

/* `most` pools at most, none of them there yet; NULL: memory was out. */
treadle_config_pools *treadle_config_pools_begin(treadle_train_config *config, const char *place,
                                                 size_t most);
/* One more, with room for `entries` counts. NULL: memory was out. */
treadle_config_pool *treadle_config_pools_add(treadle_train_config *config, treadle_config_pools *pools,
                                              const char *name, treadle_config_pool_type type,
                                              size_t entries);
void treadle_config_pools_give(treadle_config_pools *pools, treadle_pool_role role, size_t pool);
/* Does the run need a reference? */
bool treadle_config_pools_need_reference(const treadle_train_config *config);
/* config_pools_others.c: the forms of others. */
treadle_status treadle_config_pools_mindspeed(treadle_train_config *config, treadle_config_pools **pools_p);
treadle_status treadle_config_pools_verl(treadle_train_config *config, treadle_config_pools **pools_p);
/* config_pools_rlinf.c */
treadle_status treadle_config_pools_rlinf(treadle_train_config *config, treadle_config_pools **pools_p);

#endif

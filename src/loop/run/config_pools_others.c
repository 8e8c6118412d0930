/* Pools in the keys of MindSpeed-RL and of verl. MindSpeed-RL gives roles numbers of accelerators, on nodes that it fills one after the other
 * (mindspeed_rl/workers/scheduler/launcher.py). verl has one pool for all roles, with as many on each node (verl/trainer/main_ppo.py). */
#include "run/config_pools.h"

#include "base/argument.h"
#include "base/limits.h"

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

static treadle_status no_memory(const treadle_train_config *config) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its pools", config->file);
}

treadle_status treadle_config_pools_mindspeed(treadle_train_config *config,
                                              treadle_config_pools **pools_p) {
  const treadle_config_resources *resources = &config->settings.resources;
  const struct {
    const char *name;
    treadle_pool_role role;
    int key;
    int64_t slots;
    bool shares; /* the actor's slots, with use_integrated_worker */
  } rows[] = {
      {"actor", TREADLE_POOL_ROLE_ACTOR_ROLLOUT, KEY(resources.actor_npus), resources->actor_npus, false},
      {"reference", TREADLE_POOL_ROLE_REF_POLICY, KEY(resources.reference_npus), resources->reference_npus,
       true},
      {"reward", TREADLE_POOL_ROLE_REWARD_MODEL, KEY(resources.reward_npus), resources->reward_npus, true},
      {"critic", TREADLE_POOL_ROLE_CRITIC, KEY(resources.critic_npus), resources->critic_npus, false}};
  enum { ROWS = sizeof rows / sizeof *rows };
  const bool is_integrated = resources->use_integrated_worker;
  treadle_config_pools *pools = NULL;
  for (int i = 0; i < ROWS; i++) {
    if (!rows[i].slots) continue;
    const char *place = treadle_train_config_place(config, rows[i].key);
    if (rows[i].shares && is_integrated)
      REFUSE("%s: %s must not be given, as %s is true: its role is in the actor's pool, or not there; with "
             "rl_config.use_integrated_worker=false it has this one",
             config->file, place, PLACE(resources.use_integrated_worker));
    if (i && !resources->actor_npus)
      REFUSE("%s: %s is given, and rl_config.actor_resource.num_npus is not", config->file, place);
    if (!pools && !(pools = treadle_config_pools_begin(config, place, ROWS))) return no_memory(config);
    treadle_config_pool *pool = treadle_config_pools_add(config, pools, rows[i].name, TREADLE_POOL_NEXT, 1);
    if (!pool) return no_memory(config);
    pool->counts[0] = (int32_t)rows[i].slots;
    treadle_config_pools_give(pools, rows[i].role, pools->count - 1);
    if (!i && is_integrated && treadle_config_pools_need_reference(config))
      treadle_config_pools_give(pools, TREADLE_POOL_ROLE_REF_POLICY, 0);
  }
  *pools_p = pools;
  return TREADLE_OK;
}

treadle_status treadle_config_pools_verl(treadle_train_config *config, treadle_config_pools **pools_p) {
  const treadle_config_resources *resources = &config->settings.resources;
  const int64_t nodes = resources->nnodes ? resources->nnodes : 1,
                each = resources->n_gpus_per_node ? resources->n_gpus_per_node : 8;
  const char *place = GIVEN(resources.nnodes) ? PLACE(resources.nnodes) : PLACE(resources.n_gpus_per_node);
  if (nodes > TREADLE_MAX_TABLE_RANKS / each)
    REFUSE("%s: %s: %lld nodes of %lld slots are more than %d, which is the most", config->file, place,
           (long long)nodes, (long long)each, TREADLE_MAX_TABLE_RANKS);
  treadle_config_pools *pools = treadle_config_pools_begin(config, place, 1);
  if (!pools) return no_memory(config);
  treadle_config_pool *pool =
      treadle_config_pools_add(config, pools, "global_pool", TREADLE_POOL_ENTRIES, (size_t)nodes);
  if (!pool) return no_memory(config);
  for (int64_t i = 0; i < nodes; i++) pool->counts[i] = (int32_t)each;
  treadle_config_pools_give(pools, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, 0);
  if (treadle_config_pools_need_reference(config))
    treadle_config_pools_give(pools, TREADLE_POOL_ROLE_REF_POLICY, 0);
  *pools_p = pools;
  return TREADLE_OK;
}

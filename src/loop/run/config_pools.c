/* Which pools there are, and which role works in which: treadle's own form, resource_pools and mapping; and what holds for all forms. All roles of
 * a pool share its processes. */
#include "run/config_pools.h"

#include "base/argument.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "io/json.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

static const char *const role_names[TREADLE_POOL_ROLES + 1] = {
    [TREADLE_POOL_ROLE_ACTOR_ROLLOUT] = "ActorRollout",
    [TREADLE_POOL_ROLE_ACTOR] = "Actor",
    [TREADLE_POOL_ROLE_ROLLOUT] = "Rollout",
    [TREADLE_POOL_ROLE_CRITIC] = "Critic",
    [TREADLE_POOL_ROLE_REF_POLICY] = "RefPolicy",
    [TREADLE_POOL_ROLE_REWARD_MODEL] = "RewardModel"};

const char *treadle_pool_role_name(treadle_pool_role role) {
  const int number = (int)role;
  return number >= 0 && number < TREADLE_POOL_ROLES ? role_names[number] : "(none)";
}

/* ---- What forms fill in ------------------------------------------------------------------------------------ */

treadle_config_pools *treadle_config_pools_begin(treadle_train_config *config, const char *place,
                                                 size_t most) {
  treadle_config_pools *pools = treadle_arena_alloc(&config->arena, sizeof *pools);
  if (!pools) return NULL;
  pools->place = treadle_arena_copy_text(&config->arena, place);
  pools->all = treadle_arena_alloc_array(&config->arena, most + 1, sizeof *pools->all);
  return pools->place && pools->all ? pools : NULL;
}

treadle_config_pool *treadle_config_pools_add(treadle_train_config *config, treadle_config_pools *pools,
                                              const char *name, treadle_config_pool_type type,
                                              size_t entries) {
  treadle_config_pool *pool = &pools->all[pools->count];
  *pool = (treadle_config_pool){
      .name = treadle_arena_copy_text(&config->arena, name),
      .type = type,
      .counts = treadle_arena_alloc_array(&config->arena, entries + 1, sizeof *pool->counts),
      .entries = entries};
  if (!pool->name || !pool->counts) return NULL;
  pools->count++;
  return pool;
}

void treadle_config_pools_give(treadle_config_pools *pools, treadle_pool_role role, size_t pool) {
  pools->roles[pools->role_count++] = (treadle_config_role){role, pool};
}

bool treadle_config_pools_need_reference(const treadle_train_config *config) {
  return config->settings.rl.kl.in_loss || config->settings.rl.kl.in_reward;
}

static treadle_status no_memory(const treadle_train_config *config) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its pools", config->file);
}

/* ---- resource_pools ---------------------------------------------------------------------------------------- */

static treadle_status read_counts(treadle_train_config *config, treadle_config_pools *pools,
                                  const char *name, const json_t *list) {
  const char *place = pools->place, *shown = treadle_text_shown(name);
  const size_t entries = json_array_size(list);
  int64_t sum = 0;
  if (!json_is_array(list))
    REFUSE("%s: %s: pool '%s' must be a list of counts, one for each of its nodes, such as [8, 8]",
           config->file, place, shown);
  if (!entries)
    REFUSE("%s: %s: pool '%s' is empty: it needs a count of slots for each of its nodes", config->file,
           place, shown);
  treadle_config_pool *pool = treadle_config_pools_add(config, pools, name, TREADLE_POOL_ENTRIES, entries);
  if (!pool) return no_memory(config);
  for (size_t i = 0; i < entries; i++) {
    const json_t *item = json_array_get(list, i);
    const int64_t count = json_integer_value(item);
    if (!json_is_integer(item))
      REFUSE("%s: %s: pool '%s': entry %zu must be a whole number of slots", config->file, place, shown, i);
    if (count < 1)
      REFUSE("%s: %s: pool '%s': entry %zu is of size %lld, and must be at least 1", config->file, place,
             shown, i, (long long)count);
    if (count > TREADLE_MAX_TABLE_RANKS - sum)
      REFUSE("%s: %s: pool '%s' has more than %d slots, which is the most", config->file, place, shown,
             TREADLE_MAX_TABLE_RANKS);
    sum += count;
    pool->counts[i] = (int32_t)count;
  }
  return TREADLE_OK;
}

static treadle_status read_pools(treadle_train_config *config, json_t *map,
                                 treadle_config_pools **pools_p) {
  const char *name;
  json_t *list;
  treadle_config_pools *pools = *pools_p =
      treadle_config_pools_begin(config, PLACE(resources.resource_pools), json_object_size(map));
  treadle_status status = TREADLE_OK;
  if (!pools) return no_memory(config);
  pools->is_own = true;
  json_object_foreach(map, name, list) {
    if (!*name) REFUSE("%s: %s: a pool has no name", config->file, pools->place);
    if (!json_is_null(list)) TRY(read_counts(config, pools, name, list)); /* null: it is not given */
  }
  if (!pools->count) REFUSE("%s: %s has no pools", config->file, pools->place);
out:
  return status;
}

/* ---- mapping ----------------------------------------------------------------------------------------------- */

/* "'actor', 'critic'" */
static void write_names(char *to, size_t room, const treadle_config_pools *pools) {
  *to = 0;
  for (size_t i = 0; i < pools->count; i++)
    snprintf(to + strlen(to), room - strlen(to), "%s'%.40s'", i ? ", " : "",
             treadle_text_shown(pools->all[i].name));
}

static treadle_status give_role(const treadle_train_config *config, treadle_config_pools *pools,
                                const char *name, const json_t *value) {
  const char *pool = json_string_value(value), *nearest;
  char names[512];
  int role = 0;
  while (role < TREADLE_POOL_ROLES && strcmp(role_names[role], name) != 0) role++;
  if (role == TREADLE_POOL_ROLES) {
    nearest = treadle_nearest_name(name, role_names);
    REFUSE("%s: %s: there is no role '%s'; %s%s%s", config->file, PLACE(resources.mapping),
           treadle_text_shown(name),
           nearest ? "did you mean '"
                   : "there are ActorRollout, Actor, Rollout, "
                     "Critic, RefPolicy and RewardModel",
           nearest ? nearest : "", nearest ? "'?" : "");
  }
  if (!pool)
    REFUSE("%s: %s: role %s must have the name of a pool", config->file, PLACE(resources.mapping), name);
  for (size_t i = 0; i < pools->count; i++)
    if (strcmp(pools->all[i].name, pool) == 0) {
      treadle_config_pools_give(pools, (treadle_pool_role)role, i);
      return TREADLE_OK;
    }
  write_names(names, sizeof names, pools);
  REFUSE("%s: %s: role %s has pool '%s', which is not among those of %s: %s", config->file,
         PLACE(resources.mapping), name, treadle_text_shown(pool), pools->place, names);
}

static treadle_status read_own(treadle_train_config *config, treadle_config_pools **pools_p) {
  const treadle_config_resources *resources = &config->settings.resources;
  json_t *all = NULL, *mapping = NULL, *value;
  const char *name;
  treadle_status status;
  if (!GIVEN(resources.resource_pools))
    REFUSE("%s: %s says which role works in which pool, and no resource_pools says which pools there are",
           config->file, PLACE(resources.mapping));
  if (!GIVEN(resources.mapping))
    REFUSE("%s: %s says which pools there are, and no mapping which role works in which, such as "
           "{ActorRollout: actor}",
           config->file, PLACE(resources.resource_pools));
  TRY(treadle_json_parse(PLACE(resources.resource_pools), resources->resource_pools,
                         strlen(resources->resource_pools), &all));
  TRY(treadle_json_parse(PLACE(resources.mapping), resources->mapping, strlen(resources->mapping),
                         &mapping));
  TRY(read_pools(config, all, pools_p));
  json_object_foreach(mapping, name, value) if (!json_is_null(value))
      TRY(give_role(config, *pools_p, name, value));
out:
  json_decref(all);
  json_decref(mapping);
  return status;
}

/* ---- Roles ------------------------------------------------------------------------------------------------- */

/* The pool of a role; NULL: it has none. */
static const treadle_config_pool *pool_of(const treadle_config_pools *pools, treadle_pool_role role) {
  for (size_t i = 0; i < pools->role_count; i++)
    if (pools->roles[i].role == role) return &pools->all[pools->roles[i].pool];
  return NULL;
}

/* One role trains the policy, and one generates with it. */
static treadle_status check_policy(const treadle_train_config *config, const treadle_config_pools *pools) {
  static const struct {
    treadle_pool_role role;
    const char *does, *other;
  } halves[] = {{TREADLE_POOL_ROLE_ACTOR, "train the policy", "Rollout"},
                {TREADLE_POOL_ROLE_ROLLOUT, "generate with the policy", "Actor"}};
  const treadle_config_pool *both = pool_of(pools, TREADLE_POOL_ROLE_ACTOR_ROLLOUT), *half[2];
  for (int i = 0; i < 2; i++) {
    half[i] = pool_of(pools, halves[i].role);
    if (both && half[i])
      REFUSE("%s: %s: roles ActorRollout in pool '%s' and %s in pool '%s' would both %s: give one of them",
             config->file, pools->place, treadle_text_shown(both->name),
             treadle_pool_role_name(halves[i].role), treadle_text_shown(half[i]->name), halves[i].does);
  }
  if (!both && !half[0] && !half[1])
    REFUSE("%s: %s: role ActorRollout has no pool, and neither have Actor and Rollout", config->file,
           pools->place);
  for (int i = 0; i < 2 && !both; i++)
    if (!half[i])
      REFUSE("%s: %s: role %s has no pool, and role %s is in pool '%s': a run needs both, or ActorRollout",
             config->file, pools->place, treadle_pool_role_name(halves[i].role), halves[i].other,
             treadle_text_shown(half[1 - i]->name));
  return TREADLE_OK;
}

const treadle_config_pool *treadle_config_pools_of(const treadle_config_pools *pools,
                                                   treadle_pool_role role) {
  const treadle_pool_role roles[] = {role, TREADLE_POOL_ROLE_ACTOR, TREADLE_POOL_ROLE_ACTOR_ROLLOUT};
  const treadle_config_pool *pool = NULL;
  for (size_t i = 0; pools && pools->count > 1 && !pool && i < sizeof roles / sizeof *roles; i++)
    pool = pool_of(pools, roles[i]);
  return pool;
}

/* It lies beside what is trained, if this generates, too; else it has an engine of its own. */
static bool is_reference_apart(const treadle_config_pools *pools) {
  const treadle_config_pool *both = pool_of(pools, TREADLE_POOL_ROLE_ACTOR_ROLLOUT),
                            *actor = pool_of(pools, TREADLE_POOL_ROLE_ACTOR);
  if (!both && actor == pool_of(pools, TREADLE_POOL_ROLE_ROLLOUT)) both = actor;
  return !both || pool_of(pools, TREADLE_POOL_ROLE_REF_POLICY) != both;
}

static treadle_status check_roles(const treadle_train_config *config, const treadle_config_pools *pools) {
  treadle_status status;
  TRY(check_policy(config, pools));
  if (treadle_config_pools_need_reference(config) && !pool_of(pools, TREADLE_POOL_ROLE_REF_POLICY))
    REFUSE("%s: %s: role RefPolicy has no pool, and %s needs a reference", config->file, pools->place,
           config->settings.rl.kl.in_loss ? PLACE(rl.kl.in_loss) : PLACE(rl.kl.in_reward));
  for (size_t i = 0; i < pools->count; i++) {
    bool has = false;
    for (size_t j = 0; j < pools->role_count; j++) has = has || pools->roles[j].pool == i;
    if (!has)
      REFUSE("%s: %s: pool '%s' has no role", config->file, pools->place,
             treadle_text_shown(pools->all[i].name));
  }
out:
  return status;
}

/* ---- Which form -------------------------------------------------------------------------------------------- */

typedef treadle_status (*reader)(treadle_train_config *config, treadle_config_pools **pools_p);

treadle_status treadle_train_config_settle_pools(treadle_train_config *config) {
  static const struct {
    size_t at;
    reader read;
  } keys[] = {
      {offsetof(treadle_train_settings, resources.resource_pools), read_own},
      {offsetof(treadle_train_settings, resources.mapping), read_own},
      {offsetof(treadle_train_settings, resources.actor_npus), treadle_config_pools_mindspeed},
      {offsetof(treadle_train_settings, resources.reference_npus), treadle_config_pools_mindspeed},
      {offsetof(treadle_train_settings, resources.reward_npus), treadle_config_pools_mindspeed},
      {offsetof(treadle_train_settings, resources.critic_npus), treadle_config_pools_mindspeed},
      {offsetof(treadle_train_settings, resources.nnodes), treadle_config_pools_verl},
      {offsetof(treadle_train_settings, resources.n_gpus_per_node), treadle_config_pools_verl},
      {offsetof(treadle_train_settings, resources.component_placement), treadle_config_pools_rlinf}};
  treadle_config_pools *pools = NULL;
  reader read = NULL;
  const char *place = NULL;
  treadle_status status;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const int key = treadle_train_key_at(keys[i].at);
    if (!treadle_train_config_is_given(config, key)) continue;
    if (read && keys[i].read != read)
      REFUSE("%s: %s and %s both say which pools there are: give one of them", config->file, place,
             treadle_train_config_place(config, key));
    if (!read) place = treadle_train_config_place(config, key);
    read = keys[i].read;
  }
  if (!read) return TREADLE_OK;
  TRY(read(config, &pools));
  TRY(check_roles(config, pools));
  config->pools = pools;
  config->has_reference_apart = treadle_config_pools_need_reference(config) && is_reference_apart(pools);
out:
  return status;
}

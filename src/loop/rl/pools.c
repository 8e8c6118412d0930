/* Pools of a configuration on nodes. First each pool chooses slots among those of all nodes; then the slots that none has chosen are left out, and
 * pools are made on what is left: a run with one process for each slot of a pool places them in the same way, since entries that did not fit on a
 * node before do not fit on less of it. */
#include "rl/pools.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/argument.h"
#include "base/larger.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/utf8.h"
#include "control/slots.h"
#include "rl/memory.h"
#include "run/config_pools.h"

#include <string.h>

typedef struct one_pool {
  treadle_resource_pool_spec
      spec;        /* its counts follow from the slots that it has chosen, but for entries that are given */
  int32_t *chosen; /* [slots of the pool] */
  int32_t count;
  treadle_pool_role roles[TREADLE_POOL_ROLES];
  int32_t role_count;
  treadle_resource_pool *made;
} one_pool;

struct treadle_rl_pools {
  treadle_arena arena;
  const treadle_config_pools *asked;
  treadle_config_pools nothing; /* where nothing is asked for: one pool of all slots */
  treadle_config_pool whole;
  one_pool *all; /* [count] */
  size_t count;
  int32_t *node_of; /* [slots] */
  int32_t slots, used, nodes;
  bool has_guessed; /* that there is one slot, since nobody says how many */
};

static treadle_status no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for the pools of a run");
}

/* ---- Nodes ------------------------------------------------------------------------------------------------- */

/* As many as the pools ask for: of slots that are named, up to the last of them. */
static int64_t count_asked(const treadle_config_pools *asked) {
  int64_t sum = 0, last = 0;
  for (size_t i = 0; i < asked->count; i++) {
    const treadle_config_pool *pool = &asked->all[i];
    const size_t end = pool->entries - 1;
    sum += treadle_config_pool_slots(pool);
    if (pool->type == TREADLE_POOL_CHOSEN && pool->firsts[end] + pool->counts[end] > last)
      last = pool->firsts[end] + pool->counts[end];
  }
  return last ? last : sum ? sum : 1;
}

static treadle_status make_nodes(treadle_rl_pools *pools, const int32_t *slots_by_node, size_t nodes) {
  const int64_t asked = count_asked(pools->asked);
  int64_t sum = nodes ? 0 : asked;
  for (size_t i = 0; i < nodes; i++) {
    if (slots_by_node[i] < 0)
      REFUSE("node %zu has %d slots, and must have at least 0", i, (int)slots_by_node[i]);
    sum += slots_by_node[i];
    if (sum > TREADLE_MAX_TABLE_RANKS) break;
  }
  if (sum > TREADLE_MAX_TABLE_RANKS)
    REFUSE("more than %d slots, which is the most", TREADLE_MAX_TABLE_RANKS);
  pools->slots = (int32_t)sum;
  pools->node_of = treadle_arena_alloc_array(&pools->arena, (size_t)sum, sizeof *pools->node_of);
  if (!pools->node_of) return no_memory();
  for (size_t i = 0, at = 0; i < nodes; i++)
    for (int32_t j = 0; j < slots_by_node[i]; j++) pools->node_of[at++] = (int32_t)i;
  return TREADLE_OK;
}

/* ---- Choosing slots ---------------------------------------------------------------------------------------- */

static treadle_status choose_entries(treadle_rl_pools *pools) {
  treadle_resource_pool_spec *specs = treadle_arena_alloc_array(&pools->arena, pools->count, sizeof *specs);
  int32_t *taken = NULL;
  treadle_slots slots = {0};
  treadle_status status = TREADLE_OK;
  if (!specs) return no_memory();
  for (size_t i = 0; i < pools->count; i++) specs[i] = pools->all[i].spec;
  TRY(treadle_slots_check(specs, pools->count));
  taken = treadle_arena_alloc_array(&pools->arena, (size_t)pools->slots, sizeof *taken);
  if (!taken) TRY(no_memory());
  TRY(treadle_slots_make(pools->node_of, (size_t)pools->slots, &slots));
  TRY(treadle_slots_place(&slots, specs, pools->count, taken));
  for (size_t i = 0; i < pools->count; i++) {
    memcpy(pools->all[i].chosen, taken, (size_t)pools->all[i].count * sizeof *taken);
    taken += pools->all[i].count;
  }
out:
  treadle_slots_release(&slots);
  return status;
}

/* Slots of one count, from `first`: neighbours. */
static treadle_status choose_run(const treadle_rl_pools *pools, one_pool *pool, int32_t first,
                                 int32_t count, int32_t *at) {
  if (first > pools->slots - count)
    REFUSE("pool '%s': slot %d is out of range: there are %d, 0 to %d", treadle_text_shown(pool->spec.name),
           (int)(first + count - 1), (int)pools->slots, (int)pools->slots - 1);
  for (int32_t i = 0; i < count; i++) pool->chosen[(*at)++] = first + i;
  return TREADLE_OK;
}

static treadle_status choose_others(treadle_rl_pools *pools) {
  int32_t next = 0;
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < pools->count; i++) {
    const treadle_config_pool *asked = &pools->asked->all[i];
    one_pool *pool = &pools->all[i];
    int32_t at = 0;
    if (asked->type == TREADLE_POOL_NEXT && pool->count > pools->slots - next)
      REFUSE("pool '%s': Total available slots %d is less than total desired slots %lld",
             treadle_text_shown(asked->name), (int)pools->slots, (long long)count_asked(pools->asked));
    if (asked->type == TREADLE_POOL_CHOSEN)
      for (size_t j = 0; j < asked->entries; j++)
        TRY(choose_run(pools, pool, asked->firsts[j], asked->counts[j], &at));
    else
      TRY(choose_run(pools, pool, next, pool->count, &at));
    next += asked->type == TREADLE_POOL_NEXT ? pool->count : 0;
  }
out:
  return status;
}

/* Neighbours on one node are an entry. */
static treadle_status count_entries(treadle_rl_pools *pools, one_pool *pool) {
  int32_t *counts = treadle_arena_alloc_array(&pools->arena, (size_t)pool->count, sizeof *counts);
  if (!counts) return no_memory();
  pool->spec.counts = counts;
  pool->spec.entries = 0;
  for (int32_t i = 0; i < pool->count; i++) {
    const bool is_new = !i || pool->chosen[i] != pool->chosen[i - 1] + 1 ||
                        pools->node_of[pool->chosen[i]] != pools->node_of[pool->chosen[i - 1]];
    pool->spec.entries += is_new;
    counts[pool->spec.entries - 1]++;
  }
  return TREADLE_OK;
}

/* ---- Pools ------------------------------------------------------------------------------------------------- */

/* Without the slots that no pool has. */
static treadle_status make_pools(treadle_rl_pools *pools) {
  int32_t *renamed = treadle_arena_alloc_array(&pools->arena, (size_t)pools->slots, sizeof *renamed);
  treadle_slots slots = {0};
  treadle_status status = TREADLE_OK;
  if (!renamed) return no_memory();
  for (size_t i = 0; i < pools->count; i++)
    for (int32_t j = 0; j < pools->all[i].count; j++) renamed[pools->all[i].chosen[j]] = 1;
  for (int32_t s = 0; s < pools->slots; s++) {
    const bool is_used = renamed[s];
    renamed[s] = pools->used;
    pools->node_of[pools->used] = pools->node_of[s];
    pools->used += is_used;
  }
  TRY(treadle_slots_make(pools->node_of, (size_t)pools->used, &slots));
  pools->nodes = slots.node_count;
  for (size_t i = 0; i < pools->count; i++) {
    one_pool *pool = &pools->all[i];
    for (int32_t j = 0; j < pool->count; j++) pool->chosen[j] = renamed[pool->chosen[j]];
    TRY(treadle_slots_pool(&slots, &pool->spec, pool->chosen, &pool->made));
  }
out:
  treadle_slots_release(&slots);
  return status;
}

static treadle_status take_asked(treadle_rl_pools *pools, const treadle_train_config *config) {
  const int32_t most = (int32_t)treadle_train_config_settings(config)->resources.max_colocate_count;
  const treadle_config_pools *asked = pools->asked;
  pools->count = asked->count;
  pools->all = treadle_arena_alloc_array(&pools->arena, asked->count, sizeof *pools->all);
  if (!pools->all) return no_memory();
  for (size_t i = 0; i < asked->count; i++) {
    one_pool *pool = &pools->all[i];
    const treadle_config_pool *of = &asked->all[i];
    const int64_t count = of->type == TREADLE_POOL_ALL ? pools->slots : treadle_config_pool_slots(of);
    if (count > TREADLE_MAX_TABLE_RANKS)
      REFUSE("pool '%s' has more than %d slots, which is the most", treadle_text_shown(of->name),
             TREADLE_MAX_TABLE_RANKS);
    pool->spec = (treadle_resource_pool_spec){
        .name = of->name, .counts = of->counts, .entries = of->entries, .max_colocate_count = most};
    pool->count = (int32_t)count;
    pool->chosen = treadle_arena_alloc_array(&pools->arena, (size_t)count, sizeof *pool->chosen);
    if (!pool->chosen) return no_memory();
  }
  for (size_t i = 0; i < asked->role_count; i++) {
    one_pool *pool = &pools->all[asked->roles[i].pool];
    pool->roles[pool->role_count++] = asked->roles[i].role;
  }
  return TREADLE_OK;
}

/* Nothing says which pools there are: one has all slots and all roles of the run. */
static const treadle_config_pools *ask_for_all(treadle_rl_pools *pools,
                                               const treadle_train_config *config) {
  pools->whole = (treadle_config_pool){.name = "all", .type = TREADLE_POOL_ALL};
  pools->nothing = (treadle_config_pools){.all = &pools->whole, .count = 1};
  treadle_config_pools_give(&pools->nothing, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, 0);
  if (treadle_config_pools_need_reference(config))
    treadle_config_pools_give(&pools->nothing, TREADLE_POOL_ROLE_REF_POLICY, 0);
  if (treadle_train_has_critic(&config->settings))
    treadle_config_pools_give(&pools->nothing, TREADLE_POOL_ROLE_CRITIC, 0);
  if (treadle_train_has_reward_model(&config->settings))
    treadle_config_pools_give(&pools->nothing, TREADLE_POOL_ROLE_REWARD_MODEL, 0);
  return &pools->nothing;
}

treadle_status treadle_rl_pools_create(const treadle_train_config *config, const int32_t *slots_by_node,
                                       size_t nodes, treadle_rl_pools **pools_p) {
  treadle_rl_pools *pools;
  treadle_status status;
  TREADLE_NEED(pools_p);
  *pools_p = NULL;
  TREADLE_NEED(config);
  if (nodes) TREADLE_NEED(slots_by_node);
  pools = treadle_alloc(sizeof *pools);
  if (!pools) return no_memory();
  pools->asked = config->pools ? config->pools : ask_for_all(pools, config);
  pools->has_guessed = !config->pools && !nodes;
  TRY(make_nodes(pools, slots_by_node, nodes));
  TRY(take_asked(pools, config));
  if (pools->asked->all[0].type == TREADLE_POOL_ENTRIES)
    TRY(choose_entries(pools));
  else
    TRY(choose_others(pools));
  for (size_t i = 0; i < pools->count; i++)
    if (pools->asked->all[i].type != TREADLE_POOL_ENTRIES) TRY(count_entries(pools, &pools->all[i]));
  TRY(make_pools(pools));
  *pools_p = pools;
out:
  if (status) treadle_rl_pools_destroy(pools);
  return status;
}

void treadle_rl_pools_destroy(treadle_rl_pools *pools) {
  if (!pools) return;
  for (size_t i = 0; i < pools->count && pools->all; i++) treadle_resource_pool_destroy(pools->all[i].made);
  treadle_arena_release(&pools->arena);
  treadle_free(pools);
}

void treadle_rl_pools_get_info(const treadle_rl_pools *pools, treadle_rl_pools_info *info_p) {
  static const treadle_rl_pools_info nothing = {0};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(pools);
  const treadle_rl_pools_info info = {.place = pools->asked->place,
                                      .count = (int32_t)pools->count,
                                      .slots = pools->used,
                                      .nodes = pools->nodes,
                                      .idle = pools->slots - pools->used,
                                      .first_rank = pools->count > 1};
  TREADLE_GIVE(info_p, &info);
}

static treadle_status find(const treadle_rl_pools *pools, int32_t number, const one_pool **pool_p) {
  if (number < 0 || (size_t)number >= pools->count)
    REFUSE("there is no pool %d: there are %zu", (int)number, pools->count);
  *pool_p = &pools->all[number];
  return TREADLE_OK;
}

treadle_status treadle_rl_pools_get_pool(const treadle_rl_pools *pools, int32_t number,
                                         treadle_rl_pool_info *info_p) {
  const one_pool *pool = NULL;
  treadle_status status;
  TREADLE_NEED_SIZED(info_p);
  TREADLE_NEED(pools);
  TRY(find(pools, number, &pool));
  const treadle_rl_pool_info info = {
      .pool = pool->made, .roles = pool->roles, .role_count = pool->role_count};
  TREADLE_GIVE(info_p, &info);
out:
  return status;
}

/* ---- Bytes ------------------------------------------------------------------------------------------------- */

/* A pool in a run that is only planned: which team its ranks are of, and the place of its rank 0 there, since Rollout's stand behind those of Actor. */
typedef struct planned {
  const treadle_rl_forecast *forecast;
  int team, first;
  int32_t ranks;
} planned;

static planned find_planned(const treadle_rl_forecast *f, const one_pool *pool) {
  planned p = {.forecast = f, .ranks = pool->count};
  for (int team = 0; team < f->teams->count; team++)
    for (int32_t i = 0; i < f->teams->team[team].count; i++) {
      treadle_slot slot = {.number = -1};
      (void)treadle_resource_pool_get_slot(pool->made, 0, &slot);
      if (treadle_rl_teams_rank(f->teams, team, i) == slot.number) p.team = team, p.first = i;
    }
  return p;
}

static size_t peak_of(const planned *p, const treadle_actor_memory *by_rank) {
  size_t most = 0;
  for (int32_t i = 0; i < p->ranks; i++) most = treadle_larger_size(most, by_rank[p->first + i].peak_bytes);
  return most;
}

/* In the policy's team the policy's worker has the reference. */
static size_t shown_of(const planned *p, const treadle_actor_memory *by_rank) {
  size_t most = 0;
  for (int32_t i = 0; i < p->ranks; i++)
    most = treadle_larger_size(most, by_rank[p->first + i].with_reference[TREADLE_REFERENCE]);
  return most;
}

/* Of one role, as if it were alone: by_rank [ranks of the team] is for that. */
static treadle_status foresee_role(const planned *p, treadle_pool_role role, treadle_actor_memory *by_rank,
                                   size_t *bytes_p) {
  const treadle_rl_forecast *f = p->forecast;
  const size_t ranks = (size_t)treadle_rl_teams_ranks(f->teams, p->team, f->crew);
  const bool trains = role == TREADLE_POOL_ROLE_ACTOR || role == TREADLE_POOL_ROLE_ROLLOUT;
  const bool shown = role == TREADLE_POOL_ROLE_REF_POLICY && f->models->reference;
  treadle_status status;
  memset(by_rank, 0, ranks * sizeof *by_rank);
  TRY(treadle_rl_foresee_role(f, trains || shown ? TREADLE_POOL_ROLE_ACTOR_ROLLOUT : role, by_rank));
  *bytes_p = shown ? shown_of(p, by_rank) : peak_of(p, by_rank);
out:
  return status;
}

static void take_all(const planned *p, const treadle_actor_memory *by_rank, treadle_rl_pool_memory *m) {
  m->bytes = peak_of(p, by_rank);
  m->room = treadle_rl_room(p->forecast->task.settings);
  m->fits = true;
  m->kv_blocks = -1;
  for (int rank = p->first; rank < p->first + p->ranks; rank++) {
    m->fits = m->fits && treadle_rl_fits(p->forecast, p->team, rank, &by_rank[rank]);
    if (!treadle_rl_has_cache(p->forecast, p->team, rank)) continue;
    if (m->kv_blocks < 0 || by_rank[rank].kv_blocks < m->kv_blocks) m->kv_blocks = by_rank[rank].kv_blocks;
  }
  if (m->kv_blocks < 0) m->kv_blocks = 0;
}

/* A run without a KL needs no reference, which has a model nevertheless: the policy's. */
static treadle_status foresee(const treadle_rl_forecast *f, const one_pool *pool,
                              treadle_rl_pool_memory *m) {
  const planned p = find_planned(f, pool);
  const int ranks = treadle_rl_teams_ranks(f->teams, p.team, f->crew);
  treadle_actor_memory *by_rank = treadle_alloc_array((size_t)ranks, sizeof *by_rank);
  treadle_status status;
  if (!by_rank) return no_memory();
  TRY(treadle_rl_foresee_team(f, p.team, by_rank));
  take_all(&p, by_rank, m);
  m->is_known = m->bytes > 0;
  for (int32_t i = 0; i < pool->role_count; i++) {
    const treadle_pool_role role = pool->roles[i];
    if (treadle_rl_uses_role(f->task.settings, role))
      TRY(foresee_role(&p, role, by_rank, &m->role_bytes[role]));
    m->is_known = m->is_known && (m->role_bytes[role] > 0 || role == TREADLE_POOL_ROLE_REF_POLICY);
  }
out:
  treadle_free(by_rank);
  return status;
}

/* Roles in pools where they are not run yet: their bytes are not known. */
static treadle_status check_roles(const treadle_rl_pools *pools, const treadle_train_config *config,
                                  bool *are_run_p) {
  const treadle_rl_task task = {.config = config, .settings = treadle_train_config_settings(config)};
  treadle_rl_teams teams;
  treadle_rl_crew crew = {.ranks = pools->used};
  const treadle_status status = treadle_rl_teams_plan(&teams, &task, pools, 0, &crew);
  treadle_rl_teams_close(&teams);
  *are_run_p = status == TREADLE_OK;
  return status == TREADLE_REFUSED ? TREADLE_OK : status;
}

treadle_status treadle_rl_pools_foresee_roles(const treadle_rl_pools *pools,
                                              const treadle_train_config *config,
                                              const treadle_rl_options *options, int32_t number,
                                              treadle_rl_pool_memory *memory_p) {
  treadle_rl_pool_memory memory = TREADLE_INIT(treadle_rl_pool_memory);
  const treadle_rl_plan plan = {.pools = pools};
  treadle_rl_options o;
  treadle_rl *rl = NULL;
  const one_pool *pool = NULL;
  bool are_run = false;
  treadle_status status;
  TREADLE_NEED_SIZED(memory_p);
  TREADLE_GIVE(memory_p, &memory);
  TREADLE_NEED(pools);
  TREADLE_NEED(config);
  TRY(TREADLE_TAKE(options, &o));
  TRY(find(pools, number, &pool));
  if (!treadle_train_config_settings(config)->actor.model) goto out;
  TRY(check_roles(pools, config, &are_run));
  if (!are_run) goto out;
  status = treadle_rl_plan_open(config, &plan, &o, &rl);
  if (status == TREADLE_REFUSED && pools->has_guessed) {
    status = TREADLE_OK;
    goto out;
  }
  if (status) goto out;
  const treadle_rl_forecast forecast = treadle_rl_forecast_of(rl);
  TRY(foresee(&forecast, pool, &memory));
  TREADLE_GIVE(memory_p, &memory);
out:
  treadle_rl_plan_close(rl);
  return status;
}

treadle_status treadle_rl_pools_foresee(const treadle_rl_pools *pools, const treadle_train_config *config,
                                        const treadle_rl_options *options, int32_t number, size_t *bytes_p,
                                        bool *known_p) {
  treadle_rl_pool_memory memory = TREADLE_INIT(treadle_rl_pool_memory);
  treadle_status status;
  TREADLE_NEED(bytes_p);
  TREADLE_NEED(known_p);
  *bytes_p = 0;
  *known_p = false;
  TRY(treadle_rl_pools_foresee_roles(pools, config, options, number, &memory));
  *known_p = memory.is_known;
  *bytes_p = memory.is_known ? memory.bytes : 0;
out:
  return status;
}

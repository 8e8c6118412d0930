#include "rl/teams.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/utf8.h"
#include "control/crew.h"
#include "group/group.h"
#include "rl/pools.h"
#include "rl/stages.h"
#include "run/config_pools.h"

#include <stdio.h>
#include <string.h>

/* ---- Which roles are in which pool ---- */

/* Rollout without Actor: no other role is there. */
static treadle_status check_alone(const treadle_rl_task *task, const char *place,
                                  const treadle_rl_pool_info *pool) {
  treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
  treadle_pool_role other = pool->roles[0];
  if (pool->role_count == 1) return TREADLE_OK;
  if (other == TREADLE_POOL_ROLE_ROLLOUT) other = pool->roles[1];
  treadle_resource_pool_get_info(pool->pool, &info);
  REFUSE("%s: %s: Rollout is in pool '%s' with %s: where Actor and Rollout have two pools, other roles may "
         "be with Actor, not with Rollout",
         task->config->file, place, treadle_text_shown(info.name), treadle_pool_role_name(other));
}

/* A role that no pool names is with the policy. */
static treadle_status find_roles(treadle_rl_teams *t, const treadle_rl_task *task,
                                 const treadle_rl_pools *pools, const treadle_rl_pools_info *info) {
  treadle_rl_pool_info pool = TREADLE_INIT(treadle_rl_pool_info);
  treadle_status status = TREADLE_OK;
  if (info->count > TREADLE_RL_TEAMS_MOST)
    REFUSE("%s: %s says %d pools: this version runs %d at most, one of each role", task->config->file,
           info->place, info->count, TREADLE_RL_TEAMS_MOST);
  t->count = info->count;
  for (int32_t p = 0; p < info->count; p++) {
    TRY(treadle_rl_pools_get_pool(pools, p, &pool));
    bool *has = t->team[p].has;
    for (int32_t i = 0; i < pool.role_count; i++) has[pool.roles[i]] = true;
    if (has[TREADLE_POOL_ROLE_ACTOR]) has[TREADLE_POOL_ROLE_ACTOR_ROLLOUT] = true;
    if (has[TREADLE_POOL_ROLE_ROLLOUT] && !has[TREADLE_POOL_ROLE_ACTOR])
      TRY(check_alone(task, info->place, &pool));
  }
out:
  return status;
}

/* ---- Which ranks they have ---- */

/* Slots are numbered node after node, and those of a node as its ranks: rank_of [slots], by_node [nodes]. Rank 0 has none. */
static void number_slots(const treadle_rl_crew *whole, int nodes, int32_t *rank_of, int32_t *by_node) {
  int slot = 0;
  for (int node = 0; node < nodes; node++)
    for (int rank = 1; rank < whole->ranks; rank++) {
      if (treadle_group_node(whole->group, rank) != node) continue;
      rank_of[slot++] = rank;
      by_node[node]++;
    }
}

/* Are the ranks of each entry on one node, where rank s + 1 has slot s? */
static treadle_status are_in_order(const treadle_rl_pools *pools, const treadle_rl_crew *whole,
                                   bool *are_p) {
  treadle_rl_pools_info all = TREADLE_INIT(treadle_rl_pools_info);
  treadle_status status = TREADLE_OK;
  treadle_rl_pools_get_info(pools, &all);
  *are_p = true;
  for (int32_t p = 0; p < all.count; p++) {
    treadle_rl_pool_info pool = TREADLE_INIT(treadle_rl_pool_info);
    treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
    treadle_slot slot, first = {.entry = -1};
    TRY(treadle_rl_pools_get_pool(pools, p, &pool));
    treadle_resource_pool_get_info(pool.pool, &info);
    for (int32_t i = 0; i < info.slots; i++) {
      TRY(treadle_resource_pool_get_slot(pool.pool, i, &slot));
      if (slot.entry != first.entry) first = slot;
      *are_p = *are_p && treadle_group_node(whole->group, slot.number + 1) ==
                             treadle_group_node(whole->group, first.number + 1);
    }
  }
out:
  return status;
}

/* Ranks that follow pools, entries and slots keep their places: Ray has placed them so. Other ranks are placed node after node. */
static treadle_status place_pools(const treadle_rl_task *task, const treadle_rl_crew *whole, int nodes,
                                  int32_t *rank_of, int32_t *by_node, treadle_rl_pools **pools_p) {
  bool in_order;
  treadle_status status;
  TRY(treadle_rl_pools_create(task->config, NULL, 0, pools_p));
  TRY(are_in_order(*pools_p, whole, &in_order));
  for (int32_t slot = 0; slot < whole->ranks - 1; slot++) rank_of[slot] = slot + 1;
  if (in_order) goto out;
  treadle_rl_pools_destroy(*pools_p);
  number_slots(whole, nodes, rank_of, by_node);
  TRY(treadle_rl_pools_create(task->config, by_node, (size_t)nodes, pools_p));
out:
  return status;
}

static void name_roles(const treadle_rl_pool_info *pool, const char *name, char *text, size_t room) {
  size_t length = 0;
  for (int32_t i = 0; i < pool->role_count && length < room; i++)
    length += (size_t)snprintf(text + length, room - length, "%s%s", i ? ", " : "",
                               treadle_pool_role_name(pool->roles[i]));
  if (length < room) snprintf(text + length, room - length, " (pool '%.40s')", treadle_text_shown(name));
}

/* Those of one pool: key_p is this rank's place in it; -1: it is none of them. */
static treadle_status find_ranks(treadle_rl_teams *t, int p, const treadle_rl_pools *pools,
                                 const int32_t *rank_of, int rank, int *key_p) {
  treadle_rl_pool_info pool = TREADLE_INIT(treadle_rl_pool_info);
  treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
  treadle_slot slot;
  treadle_status status;
  *key_p = -1;
  TRY(treadle_rl_pools_get_pool(pools, p, &pool));
  treadle_resource_pool_get_info(pool.pool, &info);
  name_roles(&pool, info.name, t->team[p].roles, sizeof t->team[p].roles);
  t->team[p].count = info.slots;
  t->team[p].ranks = treadle_alloc_array((size_t)info.slots, sizeof *t->team[p].ranks);
  if (!t->team[p].ranks) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the ranks of a pool"));
  for (int32_t i = 0; i < info.slots; i++) {
    TRY(treadle_resource_pool_get_slot(pool.pool, i, &slot));
    t->team[p].ranks[i] = rank_of[slot.number];
    if (rank_of[slot.number] == rank) *key_p = i;
  }
out:
  return status;
}

static int64_t slots_of(const treadle_config_pools *asked) {
  int64_t slots = 0;
  for (size_t p = 0; p < asked->count; p++) slots += treadle_config_pool_slots(&asked->all[p]);
  return slots;
}

static treadle_status check_count(const treadle_rl_task *task, const treadle_rl_crew *whole) {
  const treadle_config_pools *asked = task->config->pools;
  const int64_t slots = slots_of(asked);
  const int nodes = whole->group ? treadle_group_node_count(whole->group) : 1;
  char sizes[200];
  if (slots == whole->ranks - 1) return TREADLE_OK;
  const bool names = treadle_rl_name_nodes(asked, nodes, sizes, sizeof sizes);
  REFUSE("%s: %s asks for %s, and the run has %s beside the controller: start %lld processes%s%s",
         task->config->file, asked->place, treadle_text_of_count(slots, "slot"),
         treadle_text_of_count(whole->ranks - 1, "rank"), (long long)slots + 1,
         names ? ", with --nodes " : "", names ? sizes : "");
}

/* Pools that are refused on the nodes of this run may fit on as many others. */
static treadle_status say_nodes(const treadle_rl_task *task, const treadle_rl_crew *whole,
                                treadle_status status) {
  const treadle_config_pools *asked = task->config->pools;
  char sizes[200];
  if (status != TREADLE_REFUSED || slots_of(asked) != whole->ranks - 1 ||
      !treadle_rl_name_nodes(asked, treadle_group_node_count(whole->group), sizes, sizeof sizes))
    return status;
  return treadle_fail(status, "%s; they fit with --nodes %s, where the controller is on the first node",
                      treadle_error_message(), sizes);
}

/* Slot s is rank_of[s] of the run. key_p: this rank's place in its pool. */
static treadle_status take_pools(treadle_rl_teams *t, const treadle_rl_task *task,
                                 const treadle_rl_pools *pools, const int32_t *rank_of, int rank,
                                 int *key_p) {
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  treadle_status status;
  treadle_rl_pools_get_info(pools, &info);
  TRY(find_roles(t, task, pools, &info));
  for (int p = 0, key; p < t->count; p++) {
    TRY(find_ranks(t, p, pools, rank_of, rank, &key));
    if (key < 0) continue;
    t->mine = p;
    *key_p = key;
  }
out:
  return status;
}

static treadle_status place_teams(treadle_rl_teams *t, const treadle_rl_task *task,
                                  const treadle_rl_crew *whole, int *key_p) {
  const int nodes = treadle_group_node_count(whole->group);
  int32_t *rank_of = treadle_alloc_array((size_t)whole->ranks, sizeof *rank_of),
          *by_node = treadle_alloc_array((size_t)nodes, sizeof *by_node);
  treadle_rl_pools *pools = NULL;
  treadle_status status = TREADLE_OK;
  if (!rank_of || !by_node)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the pools of %d ranks", whole->ranks));
  TRY(check_count(task, whole));
  TRY(place_pools(task, whole, nodes, rank_of, by_node, &pools));
  TRY(take_pools(t, task, pools, rank_of, whole->rank, key_p));
out:
  treadle_rl_pools_destroy(pools);
  treadle_free(rank_of);
  treadle_free(by_node);
  return status;
}

/* ---- Actor and Rollout ---- */

/* Rollout's ranks go behind those of Actor, and its team is gone. */
static treadle_status add_rollout(treadle_rl_teams *t, int actor, int rollout, int *key_p) {
  char sides[2][96];
  const int32_t trainers = t->team[actor].count, count = trainers + t->team[rollout].count;
  int32_t *ranks = treadle_alloc_array((size_t)count, sizeof *ranks);
  if (!ranks) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the ranks of two pools");
  memcpy(ranks, t->team[actor].ranks, (size_t)trainers * sizeof *ranks);
  memcpy(ranks + trainers, t->team[rollout].ranks, (size_t)(count - trainers) * sizeof *ranks);
  treadle_free(t->team[actor].ranks);
  treadle_free(t->team[rollout].ranks);
  t->team[actor].ranks = ranks;
  t->team[actor].count = count;
  t->team[actor].rollout = count - trainers;
  snprintf(sides[0], sizeof sides[0], "%.95s", t->team[actor].roles);
  snprintf(sides[1], sizeof sides[1], "%.95s", t->team[rollout].roles);
  memcpy(t->team[actor].sides, sides, sizeof sides);
  snprintf(t->team[actor].roles, sizeof t->team[actor].roles, "%s, %s", sides[0], sides[1]);
  if (t->mine == rollout) {
    t->mine = actor;
    *key_p += trainers;
  }
  for (int p = rollout; p + 1 < t->count; p++) t->team[p] = t->team[p + 1];
  t->mine -= t->mine > rollout;
  t->team[--t->count].ranks = NULL;
  return TREADLE_OK;
}

static treadle_status unite_policy(treadle_rl_teams *t, int *key_p) {
  int actor = -1, rollout = -1;
  for (int p = 0; p < t->count; p++) {
    if (t->team[p].has[TREADLE_POOL_ROLE_ACTOR]) actor = p;
    if (t->team[p].has[TREADLE_POOL_ROLE_ROLLOUT]) rollout = p;
  }
  if (actor < 0 || rollout < 0 || actor == rollout) return TREADLE_OK;
  return add_rollout(t, actor, rollout, key_p);
}

/* ---- All of it ---- */

bool treadle_rl_uses_role(const treadle_train_settings *s, treadle_pool_role role) {
  switch (role) {
  case TREADLE_POOL_ROLE_CRITIC: return treadle_train_has_critic(s);
  case TREADLE_POOL_ROLE_REWARD_MODEL: return treadle_train_has_reward_model(s);
  case TREADLE_POOL_ROLE_REF_POLICY: return treadle_rl_uses_kl(s);
  default: return true;
  }
}

int treadle_rl_teams_of(const treadle_rl_teams *t, treadle_pool_role role) {
  for (int p = 0; p < t->count; p++)
    if (t->team[p].has[role]) return p;
  return role == TREADLE_POOL_ROLE_ACTOR_ROLLOUT ? 0
                                                 : treadle_rl_teams_of(t, TREADLE_POOL_ROLE_ACTOR_ROLLOUT);
}

bool treadle_rl_teams_share(const treadle_rl_teams *t, treadle_pool_role role) {
  return treadle_rl_teams_of(t, role) == treadle_rl_teams_of(t, TREADLE_POOL_ROLE_ACTOR_ROLLOUT);
}

/* More processes than slots by one: the controller is apart. One pool of as many slots as there are ranks, or of all: together. */
static bool is_apart(const treadle_config_pools *asked, const treadle_rl_crew *whole) {
  if (!asked) return false;
  for (size_t p = 0; p < asked->count; p++)
    if (asked->all[p].type == TREADLE_POOL_ALL) return false;
  return asked->count > 1 || slots_of(asked) + 1 == whole->ranks;
}

/* What an engine's ranks share is memory of one node. */
static treadle_status check_nodes(const treadle_rl_teams *t, const treadle_rl_crew *whole) {
  for (int p = 0; p < t->count; p++)
    for (int32_t i = 1; i < t->team[p].count; i++) {
      const int first = treadle_group_node(whole->group, t->team[p].ranks[0]),
                other = treadle_group_node(whole->group, t->team[p].ranks[i]);
      if (first != other)
        REFUSE(
            "%s has ranks on nodes %d and %d: the engines of a role are on one node in this version; pools "
            "may be on several",
            t->team[p].roles, first, other);
    }
  return TREADLE_OK;
}

static treadle_status check_run(const treadle_rl_teams *t, const treadle_rl_task *task) {
  if (task->settings->rl.filter_groups.enable && treadle_train_has_reward_model(task->settings) &&
      !treadle_rl_teams_share(t, TREADLE_POOL_ROLE_REWARD_MODEL))
    REFUSE(
        "%s: groups are filtered by their scores while prompts are drawn, and a reward model in a pool of "
        "its own scores samples behind that: map RewardModel to the policy's pool",
        TREADLE_RL_PLACE(task, rl.filter_groups.enable));
  return TREADLE_OK;
}

static void warn_of_idle(const treadle_rl_teams *t, const treadle_rl_task *task,
                         const treadle_rl_crew *whole) {
  char line[400];
  for (int p = 0; p < t->count; p++) {
    bool works = false;
    for (int role = 0; role < TREADLE_POOL_ROLES; role++)
      works =
          works || (t->team[p].has[role] && treadle_rl_uses_role(task->settings, (treadle_pool_role)role));
    snprintf(line, sizeof line, "%s has nothing to do in this run: %s", t->team[p].roles,
             t->team[p].count == 1 ? "its rank is idle" : "its ranks are idle");
    if (!works) treadle_rl_warn(whole, line);
  }
}

/* How many ranks a role works on. With Actor and Rollout on two pools, others that share them have those of Actor. */
static int ranks_of(const treadle_rl_teams *t, treadle_pool_role role) {
  const int team = treadle_rl_teams_of(t, role);
  return t->team[team].count - t->team[team].rollout;
}

/* Does the rank with that place in its team work in a role? */
static bool works_in(const treadle_rl_teams *t, treadle_pool_role role, int key) {
  const bool trains = key < ranks_of(t, role);
  if (t->mine != treadle_rl_teams_of(t, role)) return false;
  if (role == TREADLE_POOL_ROLE_ACTOR_ROLLOUT) return true;
  return role == TREADLE_POOL_ROLE_ROLLOUT ? !t->team[t->mine].rollout || !trains : trains;
}

/* What this rank is, but for its group; key: its place in its team. */
static void find_crew(treadle_rl_teams *t, const treadle_rl_crew *whole, int key, treadle_rl_crew *crew) {
  const int policy = treadle_rl_teams_of(t, TREADLE_POOL_ROLE_ACTOR_ROLLOUT);
  *crew = (treadle_rl_crew){.ranks = 1,
                            .leads = whole->rank == 0,
                            .has_samples = whole->rank == t->team[policy].ranks[0],
                            .policy_ranks = t->team[policy].count,
                            .rollout_ranks = t->team[policy].rollout,
                            .critic_ranks = ranks_of(t, TREADLE_POOL_ROLE_CRITIC),
                            .reward_ranks = ranks_of(t, TREADLE_POOL_ROLE_REWARD_MODEL),
                            .reference_ranks = ranks_of(t, TREADLE_POOL_ROLE_REF_POLICY),
                            .observer = whole->observer};
  for (int role = 0; role < TREADLE_POOL_ROLES; role++)
    t->works[role] = works_in(t, (treadle_pool_role)role, key);
}

static void enter_group(treadle_rl_crew *crew, treadle_group *group) {
  if (!group) return;
  crew->rank = treadle_group_rank(group);
  crew->ranks = treadle_group_size(group);
  crew->group = crew->ranks > 1 ? group : NULL;
}

/* Each team of ranks gets a group; and so does each side of one that has two. */
static treadle_status split(treadle_rl_teams *t, const treadle_rl_crew *whole, int key,
                            treadle_rl_crew *crew, treadle_rl_crew *beside) {
  treadle_status status;
  TRY(treadle_group_split(whole->group, t->mine, key, &t->group));
  enter_group(crew, t->group);
  *beside = *crew;
  if (!t->group) goto out;
  TRY(treadle_group_call_ranks(t->group, t->team[t->mine].ranks));
  if (!t->team[t->mine].rollout) goto out;
  const bool generates = key >= t->team[t->mine].count - t->team[t->mine].rollout;
  TRY(treadle_group_split(t->group, generates, key, &t->side));
  beside->group = NULL;
  enter_group(beside, t->side);
out:
  return status;
}

treadle_status treadle_rl_teams_find(treadle_rl_teams *t, const treadle_rl_task *task,
                                     const treadle_rl_crew *whole, treadle_rl_crew *crew_p,
                                     treadle_rl_crew *beside_p) {
  int key = 0;
  treadle_status status;
  t->mine = -1;
  for (int role = 0; role < TREADLE_POOL_ROLES; role++) t->works[role] = true;
  *crew_p = *beside_p = *whole;
  t->apart = is_apart(task->config->pools, whole);
  if (t->apart && !whole->group) return check_count(task, whole); /* one process is too few */
  if (!t->apart) {
    status = treadle_rl_check_pools(task->config, whole);
    if (!status && whole->group && treadle_group_node_count(whole->group) > 1)
      status =
          treadle_fail(TREADLE_REFUSED,
                       "the %d ranks are on %d nodes, and work together: on several nodes roles have pools "
                       "(resource_pools), each on one of them, and the controller is a process of its own",
                       whole->ranks, treadle_group_node_count(whole->group));
    return treadle_rl_agree(whole, status);
  }
  status = place_teams(t, task, whole, &key);
  if (!status) status = check_nodes(t, whole);
  if (status) status = say_nodes(task, whole, status);
  if (!status) status = unite_policy(t, &key);
  if (!status) status = check_run(t, task);
  TRY(treadle_rl_agree(whole, status));
  warn_of_idle(t, task, whole);
  find_crew(t, whole, key, crew_p);
  TRY(split(t, whole, key, crew_p, beside_p));
out:
  return status;
}

bool treadle_rl_is_apart(const treadle_train_config *config, int64_t ranks) {
  const treadle_rl_crew whole = {.ranks = (int)ranks};
  return is_apart(config->pools, &whole);
}

treadle_status treadle_rl_teams_plan(treadle_rl_teams *t, const treadle_rl_task *task,
                                     const treadle_rl_pools *pools, int first_rank, treadle_rl_crew *crew) {
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pools_get_info(pools, &info);
  const treadle_rl_crew whole = {.ranks = info.slots + first_rank, .observer = crew->observer};
  int32_t *rank_of = treadle_alloc_array((size_t)info.slots, sizeof *rank_of);
  int key = 0;
  treadle_status status = TREADLE_OK;
  *t = (treadle_rl_teams){.mine = -1};
  if (!rank_of) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the pools of %d ranks", whole.ranks));
  for (int32_t slot = 0; slot < info.slots; slot++) rank_of[slot] = first_rank + slot;
  TRY(take_pools(t, task, pools, rank_of, 0, &key));
  TRY(unite_policy(t, &key));
  if (first_rank) TRY(check_run(t, task));
  find_crew(t, &whole, -1, crew);
out:
  treadle_free(rank_of);
  return status;
}

void treadle_rl_teams_open(treadle_rl_teams *t, const treadle_rl_crew *whole, treadle_rl_workers *workers,
                           struct treadle_rl_stages *stages) {
  const bool first = t->mine >= 0 && t->team[t->mine].ranks[0] == whole->rank;
  t->first = (treadle_worker_team){.group = &workers->group, .work = stages, .out = &workers->out};
  if (t->apart && first) t->classes[0] = treadle_rl_team_class(TREADLE_RL_TEAM_CLASS, &t->first);
}

treadle_status treadle_rl_teams_reach(treadle_rl_teams *t, treadle_rl_workers *workers) {
  treadle_status status = TREADLE_OK;
  if (!t->apart) return TREADLE_OK;
  for (int p = 0; p < t->count; p++) {
    t->relays[p] = (treadle_worker_relay){.ranks = t->team[p].count,
                                          .rank_of = t->team[p].ranks,
                                          .explain = treadle_rl_teams_explain_call,
                                          .context = t};
    TRY(treadle_worker_relay_open(t->crew, TREADLE_RL_TEAM_CLASS, &t->relays[p]));
  }
  workers->group.relay = &t->relays[treadle_rl_teams_of(t, TREADLE_POOL_ROLE_ACTOR_ROLLOUT)];
  workers->critics.relay = &t->relays[treadle_rl_teams_of(t, TREADLE_POOL_ROLE_CRITIC)];
  workers->relays = t->relays;
  workers->relay_count = t->count;
out:
  return status;
}

static treadle_status serve(treadle_rl_teams *t, treadle_rl_workers *workers) {
  if (workers->group.group && treadle_group_rank(workers->group.group) > 0)
    return treadle_worker_group_serve(&workers->group);
  return treadle_worker_group_end(&workers->group, treadle_crew_serve(t->crew));
}

treadle_status treadle_rl_teams_serve(treadle_rl_teams *t, const treadle_rl_crew *whole,
                                      treadle_rl_workers *workers) {
  return treadle_rl_teams_fail(t, whole,
                               t->apart ? serve(t, workers) : treadle_worker_group_serve(&workers->group));
}

/* After a failure all are told first: who waits for a rank that is stopped waits no longer. */
treadle_status treadle_rl_teams_end(treadle_rl_teams *t, const treadle_rl_crew *whole,
                                    treadle_rl_workers *workers, treadle_status status) {
  char message[TREADLE_GROUP_MESSAGE];
  status = treadle_rl_teams_fail(t, whole, status);
  if (!t->apart) return treadle_worker_group_end(&workers->group, status);
  snprintf(message, sizeof message, "%s", treadle_error_message());
  for (int p = 0; p < t->count; p++) treadle_worker_relay_close(&t->relays[p]);
  if (!status) treadle_crew_end(t->crew, status);
  if (status) (void)treadle_fail(status, "%s", message);
  return status;
}

/* A failure that stands stays. */
void treadle_rl_teams_close(treadle_rl_teams *t) {
  char before[TREADLE_GROUP_MESSAGE];
  snprintf(before, sizeof before, "%s", treadle_error_message());
  for (int p = 0; p < t->count; p++) treadle_worker_relay_close(&t->relays[p]);
  treadle_crew_close(t->crew);
  treadle_group_close(t->side);
  treadle_group_close(t->group);
  for (int p = 0; p < t->count; p++) treadle_free(t->team[p].ranks);
  if (t->crew && before[0]) (void)treadle_fail(TREADLE_STATE, "%s", before);
}

void treadle_rl_teams_traffic(const treadle_rl_teams *t, treadle_rl_traffic *traffic_p) {
  treadle_crew_books books = {0};
  treadle_crew_get_books(t->crew, &books);
  *traffic_p = (treadle_rl_traffic){
      .calls = books.calls, .message_bytes = books.message_bytes, .by_controller = books.row_bytes};
  for (int p = 0; p < t->count; p++) {
    traffic_p->by_controller -= t->relays[p].carried;
    traffic_p->by_workers += t->team[p].row_bytes;
  }
}

/* Pools in RLinf's cluster.component_placement (rlinf/utils/placement.py): components have accelerators, by their numbers in the whole cluster. Those
 * that have the same ones share a pool; those that have others have pools of their own. */
#include "run/config_pools.h"

#include "base/argument.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "io/json.h"
#include "run/placement_text.h"

#include <stdio.h>
#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))

typedef enum component { ACTOR, ROLLOUT, REWARD, CRITIC, COMPONENTS } component;

typedef struct placed {
  treadle_train_config *config;
  treadle_config_pools *pools;
  int of[COMPONENTS]; /* pools; -1: none */
} placed;

static const char *const names[COMPONENTS + 1] = {"actor", "rollout", "reward", "critic", NULL};

static treadle_status no_memory(const treadle_train_config *config) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its pools", config->file);
}

/* ---- Pools ------------------------------------------------------------------------------------------------- */

/* The pool that a placement asks for, not added yet: neighbours are one count. */
static treadle_status make_pool(const placed *p, const char *head, const treadle_placement_text *text,
                                treadle_config_pool *pool) {
  int32_t *firsts = treadle_arena_alloc_array(&p->config->arena, TREADLE_PLACEMENT_PARTS, sizeof *firsts);
  int32_t *counts = treadle_arena_alloc_array(&p->config->arena, TREADLE_PLACEMENT_PARTS, sizeof *counts);
  size_t entries = 0;
  if (!firsts || !counts) return no_memory(p->config);
  for (size_t i = 0; i < text->count; i++) {
    const treadle_placement_part *part = &text->parts[i];
    const int64_t count = part->last - part->first + 1;
    if (i && part->first < text->parts[i - 1].first)
      REFUSE("%s: accelerators must ascend, and %lld stands after %lld", head, (long long)part->first,
             (long long)text->parts[i - 1].last);
    if (part->processes != count)
      REFUSE("%s: there is a process on each accelerator here, and it has %lld on %lld", head,
             (long long)part->processes, (long long)count);
    if (part->last >= TREADLE_MAX_TABLE_RANKS)
      REFUSE("%s: accelerator %lld is more than %d, which is the most", head, (long long)part->last,
             TREADLE_MAX_TABLE_RANKS - 1);
    if (entries && firsts[entries - 1] + counts[entries - 1] == part->first) {
      counts[entries - 1] += (int32_t)count;
    } else {
      firsts[entries] = (int32_t)part->first;
      counts[entries++] = (int32_t)count;
    }
  }
  *pool = (treadle_config_pool){.type = text->is_all ? TREADLE_POOL_ALL : TREADLE_POOL_CHOSEN,
                                .counts = counts,
                                .entries = entries,
                                .firsts = firsts};
  return TREADLE_OK;
}

static bool is_same(const treadle_config_pool *a, const treadle_config_pool *b) {
  bool is = a->type == b->type && a->entries == b->entries;
  for (size_t i = 0; i < a->entries && is; i++)
    is = a->firsts[i] == b->firsts[i] && a->counts[i] == b->counts[i];
  return is;
}

static bool overlaps(const treadle_config_pool *a, const treadle_config_pool *b) {
  bool is = false;
  for (size_t i = 0; i < a->entries; i++)
    for (size_t j = 0; j < b->entries; j++)
      is = is || (a->firsts[i] < b->firsts[j] + b->counts[j] && b->firsts[j] < a->firsts[i] + a->counts[i]);
  return is;
}

/* Adds the pool, or finds the one with its accelerators: *number_p. */
static treadle_status place_pool(placed *p, const char *head, const char *key,
                                 const treadle_config_pool *pool, int *number_p) {
  treadle_config_pools *pools = p->pools;
  for (size_t i = 0; i < pools->count; i++) {
    treadle_config_pool *other = &pools->all[i];
    *number_p = (int)i;
    if (is_same(other, pool)) {
      other->name = treadle_arena_format(&p->config->arena, "%s,%s", other->name, key);
      return other->name ? TREADLE_OK : no_memory(p->config);
    }
    if (other->type != pool->type)
      REFUSE("%s: one of '%s' and '%s' has all accelerators; number those of both", head,
             treadle_text_shown(other->name), treadle_text_shown(key));
    if (overlaps(other, pool))
      REFUSE("%s: '%s' and '%s' have some accelerators in common, and others that one of them has alone: "
             "they share all of them or none",
             head, treadle_text_shown(other->name), treadle_text_shown(key));
  }
  *number_p = (int)pools->count;
  treadle_config_pool *added = treadle_config_pools_add(p->config, pools, key, pool->type, pool->entries);
  if (!added) return no_memory(p->config);
  added->counts = pool->counts;
  added->firsts = pool->firsts;
  return TREADLE_OK;
}

/* ---- Components -------------------------------------------------------------------------------------------- */

static treadle_status find(const placed *p, const char *head, const char *name, size_t length,
                           component *component_p) {
  char one[48];
  const char *nearest;
  snprintf(one, sizeof one, "%.*s", (int)length, name);
  if (strcmp(one, "inference") == 0 || strcmp(one, "actor_inference") == 0)
    REFUSE(
        "%s: component '%s' has no place here: the actor computes log-probabilities itself; leave it out",
        head, one);
  for (int i = 0; i < COMPONENTS; i++) {
    if (strcmp(names[i], one) != 0) continue;
    if (p->of[i] >= 0) REFUSE("%s: component '%s' has a place already", head, one);
    *component_p = (component)i;
    return TREADLE_OK;
  }
  nearest = treadle_nearest_name(one, names);
  REFUSE("%s: there is no component '%s' here; %s%s%s", head, treadle_text_shown(one),
         nearest ? "did you mean '" : "there are actor, rollout, reward and critic", nearest ? nearest : "",
         nearest ? "'?" : "");
}

/* "0-3" of its own, or of {node_group, placement}; a single number may be one of YAML. */
static treadle_status text_of(const char *head, const json_t *value, char number[24], const char **text_p) {
  const json_t *group = json_object_get(value, "node_group");
  if (group && (!json_is_string(group) || strcmp(json_string_value(group), "cluster") != 0))
    REFUSE("%s: ranks of a group of nodes are not known here; number the accelerators of the whole cluster",
           head);
  if (json_is_object(value)) value = json_object_get(value, "placement");
  snprintf(number, 24, "%lld", (long long)json_integer_value(value));
  *text_p = json_is_integer(value) ? number : json_string_value(value);
  if (!*text_p) REFUSE("%s must be accelerators, as 0-3, 0-2,5,7 or all", head);
  return TREADLE_OK;
}

/* "actor,rollout: 0-3" */
static treadle_status take(placed *p, const char *key, const json_t *value) {
  char head[512], number[24];
  const char *text;
  treadle_placement_text placement;
  treadle_config_pool pool = {0};
  component own[COMPONENTS];
  int count = 0, chosen;
  treadle_status status;
  snprintf(head, sizeof head, "%.200s: cluster.component_placement.%.100s", p->config->file,
           treadle_text_shown(key));
  for (const char *at = key; *at && count < COMPONENTS; at += strcspn(at, ","), at += *at == ',') {
    const char *name = at;
    const size_t length = treadle_placement_trim(&name, strcspn(at, ","));
    TRY(find(p, head, name, length, &own[count]));
    for (int i = 0; i < count; i++)
      if (own[i] == own[count]) REFUSE("%s names component '%s' twice", head, names[own[i]]);
    count++;
  }
  TRY(text_of(head, value, number, &text));
  TRY(treadle_placement_parse(head, text, &placement));
  TRY(make_pool(p, head, &placement, &pool));
  TRY(place_pool(p, head, key, &pool, &chosen));
  for (int i = 0; i < count; i++) p->of[own[i]] = chosen;
out:
  return status;
}

static treadle_status give_roles(const placed *p) {
  const treadle_train_config *config = p->config;
  treadle_config_pools *pools = p->pools;
  if (p->of[ACTOR] < 0)
    REFUSE("%s: %s: Actor GPUs are not given: it has no component 'actor'", config->file, pools->place);
  if (p->of[ROLLOUT] < 0)
    REFUSE("%s: %s: Rollout GPUs are not given: it has no component 'rollout'", config->file, pools->place);
  if (p->of[ACTOR] == p->of[ROLLOUT]) {
    treadle_config_pools_give(pools, TREADLE_POOL_ROLE_ACTOR_ROLLOUT, (size_t)p->of[ACTOR]);
  } else {
    treadle_config_pools_give(pools, TREADLE_POOL_ROLE_ACTOR, (size_t)p->of[ACTOR]);
    treadle_config_pools_give(pools, TREADLE_POOL_ROLE_ROLLOUT, (size_t)p->of[ROLLOUT]);
  }
  if (p->of[CRITIC] >= 0) treadle_config_pools_give(pools, TREADLE_POOL_ROLE_CRITIC, (size_t)p->of[CRITIC]);
  if (treadle_config_pools_need_reference(config))
    treadle_config_pools_give(pools, TREADLE_POOL_ROLE_REF_POLICY, (size_t)p->of[ACTOR]);
  if (p->of[REWARD] >= 0)
    treadle_config_pools_give(pools, TREADLE_POOL_ROLE_REWARD_MODEL, (size_t)p->of[REWARD]);
  return TREADLE_OK;
}

treadle_status treadle_config_pools_rlinf(treadle_train_config *config, treadle_config_pools **pools_p) {
  const char *text = config->settings.resources.component_placement, *key;
  placed p = {.config = config, .of = {-1, -1, -1, -1}};
  json_t *map = NULL, *value;
  treadle_status status;
  TRY(treadle_json_parse(PLACE(resources.component_placement), text, strlen(text), &map));
  p.pools = treadle_config_pools_begin(config, PLACE(resources.component_placement), json_object_size(map));
  if (!p.pools) TRY(no_memory(config));
  json_object_foreach(map, key, value) if (!json_is_null(value)) TRY(take(&p, key, value));
  TRY(give_roles(&p));
  *pools_p = p.pools;
out:
  json_decref(map);
  return status;
}

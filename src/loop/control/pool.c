/* Resource pools: slots that work together, made by placing (placement.c). */
#include "control/pool.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- One pool --------------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return x < y ? -1 : x > y;
}

void treadle_pool_sort(int32_t *to, const treadle_slot *slots, int32_t count, bool of_nodes) {
  for (int32_t i = 0; i < count; i++) to[i] = of_nodes ? slots[i].node : slots[i].number;
  qsort(to, (size_t)count, sizeof *to, by_number);
}

treadle_status treadle_pool_begin(const char *name, int32_t count, int32_t max_colocate_count,
                                  treadle_resource_pool **pool_p) {
  const size_t slots = (size_t)count * sizeof(treadle_slot), length = strlen(name) + 1;
  treadle_resource_pool *pool = *pool_p = treadle_alloc(sizeof *pool + slots + length);
  if (!pool) return treadle_fail(TREADLE_NO_MEMORY, "no memory for pool '%s'", treadle_text_shown(name));
  pool->name = memcpy((char *)pool->slots + slots, name, length);
  pool->count = count;
  pool->max_colocate_count = max_colocate_count;
  return TREADLE_OK;
}

treadle_status treadle_pool_settle(treadle_resource_pool *pool) {
  int32_t *nodes = treadle_alloc_array((size_t)pool->count, sizeof *nodes);
  if (!nodes)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for pool '%s'", treadle_text_shown(pool->name));
  pool->entries = pool->slots[pool->count - 1].entry + 1;
  treadle_pool_sort(nodes, pool->slots, pool->count, true);
  for (int32_t i = 0; i < pool->count; i++) pool->nodes += !i || nodes[i] != nodes[i - 1];
  treadle_free(nodes);
  return TREADLE_OK;
}

treadle_status treadle_slots_pool(const treadle_slots *slots, const treadle_resource_pool_spec *spec,
                                  const int32_t *taken, treadle_resource_pool **pool_p) {
  treadle_resource_pool *pool;
  treadle_status status;
  *pool_p = NULL;
  TRY(treadle_pool_begin(spec->name, (int32_t)treadle_slots_asked(spec, 1), treadle_slots_most_groups(spec),
                         &pool));
  treadle_slot *slot = pool->slots;
  for (int32_t entry = 0; entry < (int32_t)spec->entries; entry++)
    for (int32_t bundle = 0; bundle < spec->counts[entry]; bundle++, slot++) {
      *slot = slots->all[*taken++];
      slot->entry = entry;
      slot->bundle = bundle;
    }
  TRY(treadle_pool_settle(pool));
  *pool_p = pool;
out:
  if (status) treadle_resource_pool_destroy(pool);
  return status;
}

treadle_status treadle_resource_pool_create(const treadle_resource_pool_spec *specs, size_t count,
                                            const int32_t *node_of, size_t slots,
                                            treadle_resource_pool **pools) {
  treadle_slots all = {0};
  int32_t *taken = NULL;
  treadle_status status;
  TREADLE_NEED(pools);
  TREADLE_NEED(specs);
  TREADLE_NEED(node_of);
  if (count < 1 || count > TREADLE_MAX_TABLE_RANKS)
    REFUSE("%zu pools: 1 to %d", count, TREADLE_MAX_TABLE_RANKS);
  memset(pools, 0, count * sizeof(treadle_resource_pool *));
  TRY(treadle_slots_check(specs, count));
  TRY(treadle_slots_make(node_of, slots, &all));
  taken = treadle_alloc_array(slots, sizeof *taken);
  if (!taken) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for pools on %zu slots", slots));
  TRY(treadle_slots_place(&all, specs, count, taken));
  for (size_t i = 0, at = 0; i < count; i++) {
    TRY(treadle_slots_pool(&all, &specs[i], taken + at, &pools[i]));
    at += (size_t)pools[i]->count;
  }
out:
  for (size_t i = 0; status && i < count; i++) {
    treadle_resource_pool_destroy(pools[i]);
    pools[i] = NULL;
  }
  treadle_slots_release(&all);
  treadle_free(taken);
  return status;
}

void treadle_resource_pool_destroy(treadle_resource_pool *pool) {
  treadle_free(pool); /* its name stands behind its slots */
}

void treadle_resource_pool_get_info(const treadle_resource_pool *pool, treadle_resource_pool_info *info_p) {
  static const treadle_resource_pool_info nothing = {0};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(pool);
  const treadle_resource_pool_info info = {.name = pool->name,
                                           .slots = pool->count,
                                           .entries = pool->entries,
                                           .nodes = pool->nodes,
                                           .max_colocate_count = pool->max_colocate_count};
  TREADLE_GIVE(info_p, &info);
}

treadle_status treadle_resource_pool_get_slot(const treadle_resource_pool *pool, int32_t rank,
                                              treadle_slot *slot_p) {
  TREADLE_NEED(slot_p);
  TREADLE_NEED(pool);
  if (rank < 0 || rank >= pool->count)
    REFUSE("pool '%s' has no rank %d: it has %s", treadle_text_shown(pool->name), (int)rank,
           treadle_text_of_count(pool->count, "slot"));
  *slot_p = pool->slots[rank];
  return TREADLE_OK;
}

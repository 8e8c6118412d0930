/* Parts of pools, and pools of two. All are on slots that have a pool already. */
#include "control/pool.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"

#include <string.h>

/* ---- Parts ------------------------------------------------------------------------------------------------ */

/* Slots of one entry stay one; entries and bundles are counted from 0. */
static treadle_status make_part(const treadle_resource_pool *pool, size_t number, int32_t first,
                                int32_t count, treadle_resource_pool **part_p) {
  treadle_builder name = {0};
  treadle_resource_pool *part = NULL;
  treadle_status status;
  *part_p = NULL;
  treadle_builder_add(&name, "%s[%zu]", pool->name, number);
  if (name.failed)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a part of '%s'", treadle_text_shown(pool->name)));
  TRY(treadle_pool_begin(name.text, count, pool->max_colocate_count, &part));
  for (int32_t i = 0, entry = 0, bundle = 0; i < count; i++, bundle++) {
    if (i && pool->slots[first + i].entry != pool->slots[first + i - 1].entry) {
      entry++;
      bundle = 0;
    }
    part->slots[i] = pool->slots[first + i];
    part->slots[i].entry = entry;
    part->slots[i].bundle = bundle;
  }
  TRY(treadle_pool_settle(part));
  *part_p = part;
out:
  if (status) treadle_resource_pool_destroy(part);
  treadle_builder_release(&name);
  return status;
}

/* counts [count]; NULL: each is `each`. */
static treadle_status split(const treadle_resource_pool *pool, const int32_t *counts, int32_t each,
                            size_t count, treadle_resource_pool **parts) {
  int32_t first = 0;
  treadle_status status = TREADLE_OK;
  memset(parts, 0, count * sizeof(treadle_resource_pool *));
  for (size_t i = 0; i < count; i++) {
    const int32_t own = counts ? counts[i] : each;
    TRY(make_part(pool, i, first, own, &parts[i]));
    first += own;
  }
out:
  for (size_t i = 0; status && i < count; i++) {
    treadle_resource_pool_destroy(parts[i]);
    parts[i] = NULL;
  }
  return status;
}

treadle_status treadle_resource_pool_split(const treadle_resource_pool *pool, const int32_t *counts,
                                           size_t count, treadle_resource_pool **parts) {
  int64_t sum = 0;
  TREADLE_NEED(parts);
  TREADLE_NEED(pool);
  TREADLE_NEED(counts);
  const char *name = treadle_text_shown(pool->name);
  if (count < 1 || count > TREADLE_MAX_TABLE_RANKS)
    REFUSE("pool '%s': %zu parts: 1 to %d", name, count, TREADLE_MAX_TABLE_RANKS);
  memset(parts, 0, count * sizeof(treadle_resource_pool *));
  for (size_t i = 0; i < count; i++) {
    if (counts[i] < 1)
      REFUSE("pool '%s': part %zu is of size %d, and must be at least 1", name, i, (int)counts[i]);
    sum += counts[i];
  }
  if (sum != pool->count)
    REFUSE("pool '%s': split_size must sum up to world_size: %lld and %d", name, (long long)sum,
           (int)pool->count);
  return split(pool, counts, 0, count, parts);
}

treadle_status treadle_resource_pool_split_evenly(const treadle_resource_pool *pool, int32_t split_size,
                                                  treadle_resource_pool **parts) {
  TREADLE_NEED(parts);
  TREADLE_NEED(pool);
  if (split_size < 1 || pool->count % split_size != 0)
    REFUSE("pool '%s': split_size must be a divisor of world_size: %d and %d",
           treadle_text_shown(pool->name), (int)split_size, (int)pool->count);
  return split(pool, NULL, split_size, (size_t)(pool->count / split_size), parts);
}

/* ---- Unions ----------------------------------------------------------------------------------------------- */

/* Bundles of the entry in which a rank begins. */
static int32_t bundles_at(const treadle_resource_pool *pool, int32_t rank) {
  int32_t end = rank;
  while (end < pool->count && pool->slots[end].entry == pool->slots[rank].entry) end++;
  return end - rank;
}

static treadle_status check_entries(const treadle_resource_pool *a, const treadle_resource_pool *b) {
  const int32_t each = bundles_at(a, 0);
  const treadle_resource_pool *const both[] = {a, b};
  for (int i = 0; i < 2; i++)
    for (int32_t rank = 0; rank < both[i]->count; rank += bundles_at(both[i], rank))
      if (bundles_at(both[i], rank) != each)
        REFUSE("pools to merge need as many slots on each node: entry 0 of '%s' has %d, and entry %d of "
               "'%s' %d",
               treadle_text_shown(a->name), (int)each, (int)both[i]->slots[rank].entry,
               treadle_text_shown(both[i]->name), (int)bundles_at(both[i], rank));
  return TREADLE_OK;
}

static treadle_status check_apart(const treadle_resource_pool *a, const treadle_resource_pool *b) {
  const int32_t count = a->count + b->count;
  int32_t *numbers = treadle_alloc_array((size_t)count, sizeof *numbers);
  treadle_status status = TREADLE_OK;
  if (!numbers)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory to merge pool '%s'", treadle_text_shown(a->name));
  treadle_pool_sort(numbers, a->slots, a->count, false);
  treadle_pool_sort(numbers + a->count, b->slots, b->count, false);
  for (int32_t i = 0, j = a->count; i < a->count && j < count && !status;) {
    if (numbers[i] == numbers[j])
      status = treadle_fail(TREADLE_REFUSED, "pools to merge share no slot: slot %d is in '%s' and '%s'",
                            (int)numbers[i], treadle_text_shown(a->name), treadle_text_shown(b->name));
    else if (numbers[i] < numbers[j])
      i++;
    else
      j++;
  }
  treadle_free(numbers);
  return status;
}

treadle_status treadle_resource_pool_merge(const treadle_resource_pool *a, const treadle_resource_pool *b,
                                           treadle_resource_pool **merged_p) {
  treadle_builder name = {0};
  treadle_resource_pool *merged = NULL;
  treadle_status status;
  TREADLE_NEED(merged_p);
  *merged_p = NULL;
  TREADLE_NEED(a);
  TREADLE_NEED(b);
  if (a->max_colocate_count != b->max_colocate_count)
    REFUSE("pools to merge need one max_colocate_count: that of '%s' is %d, and that of '%s' %d",
           treadle_text_shown(a->name), (int)a->max_colocate_count, treadle_text_shown(b->name),
           (int)b->max_colocate_count);
  TRY(check_entries(a, b));
  TRY(check_apart(a, b));
  treadle_builder_add(&name, "%s_%s", a->name, b->name);
  if (name.failed)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory to merge pool '%s'", treadle_text_shown(a->name)));
  TRY(treadle_pool_begin(name.text, a->count + b->count, a->max_colocate_count, &merged));
  memcpy(merged->slots, a->slots, (size_t)a->count * sizeof *a->slots);
  memcpy(merged->slots + a->count, b->slots, (size_t)b->count * sizeof *b->slots);
  for (int32_t i = a->count; i < merged->count; i++) merged->slots[i].entry += a->entries;
  TRY(treadle_pool_settle(merged));
  *merged_p = merged;
out:
  if (status) treadle_resource_pool_destroy(merged);
  treadle_builder_release(&name);
  return status;
}

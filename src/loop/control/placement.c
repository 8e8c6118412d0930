/* Which slots pools get. Nodes stand in the order of their first slots, pools and entries in the order in which they are given; an entry goes to
 * the first node that has room for all of its bundles, on the lowest numbers that are free there. Slots of a node are taken from its first to its
 * last, so that what is free needs one number a node. */
#include "control/slots.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Slots by node ---------------------------------------------------------------------------------------- */

typedef struct place {
  int32_t node, number;
} place;

static int by_node(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->node != y->node) return x->node < y->node ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

static int by_first_slot(const void *a, const void *b) {
  const treadle_slots_node *x = a, *y = b;
  return x->numbers[0] < y->numbers[0] ? -1 : 1;
}

static void fill(treadle_slots *slots, const place *places) {
  for (int32_t i = 0; i < slots->count; i++) {
    if (!i || places[i].node != places[i - 1].node)
      slots->nodes[slots->node_count++] =
          (treadle_slots_node){.node = places[i].node, .numbers = &slots->numbers[i]};
    slots->numbers[i] = places[i].number;
    slots->nodes[slots->node_count - 1].count++;
  }
  for (int32_t n = 0; n < slots->node_count; n++) {
    const treadle_slots_node *node = &slots->nodes[n];
    for (int32_t i = 0; i < node->count; i++)
      slots->all[node->numbers[i]] = (treadle_slot){
          .number = node->numbers[i], .node = node->node, .local_rank = i, .local_world = node->count};
  }
  qsort(slots->nodes, (size_t)slots->node_count, sizeof *slots->nodes, by_first_slot);
}

treadle_status treadle_slots_make(const int32_t *node_of, size_t count, treadle_slots *slots) {
  place *places = NULL;
  treadle_status status = TREADLE_OK;
  *slots = (treadle_slots){0};
  if (count < 1 || count > TREADLE_MAX_TABLE_RANKS)
    REFUSE("%zu slots: 1 to %d", count, TREADLE_MAX_TABLE_RANKS);
  for (size_t i = 0; i < count; i++)
    if (node_of[i] < 0) REFUSE("slot %zu is on node %d: nodes are numbers from 0", i, (int)node_of[i]);
  slots->count = (int32_t)count;
  slots->all = treadle_alloc_array(count, sizeof *slots->all);
  slots->numbers = treadle_alloc_array(count, sizeof *slots->numbers);
  slots->nodes = treadle_alloc_array(count, sizeof *slots->nodes);
  places = treadle_alloc_array(count, sizeof *places);
  if (!slots->all || !slots->numbers || !slots->nodes || !places)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a table of %zu slots", count));
  for (size_t i = 0; i < count; i++) places[i] = (place){node_of[i], (int32_t)i};
  qsort(places, count, sizeof *places, by_node);
  fill(slots, places);
out:
  treadle_free(places);
  return status;
}

void treadle_slots_release(treadle_slots *slots) {
  treadle_free(slots->all);
  treadle_free(slots->numbers);
  treadle_free(slots->nodes);
  *slots = (treadle_slots){0};
}

/* ---- What pools may be ------------------------------------------------------------------------------------ */

static treadle_status check_spec(const treadle_resource_pool_spec *specs, size_t number) {
  const treadle_resource_pool_spec *spec = &specs[number];
  const int most = treadle_slots_most_groups(spec);
  if (!spec->name || !*spec->name) REFUSE("pool %zu has no name", number);
  const char *name = treadle_text_shown(spec->name);
  for (size_t i = 0; i < number; i++)
    if (strcmp(specs[i].name, spec->name) == 0)
      REFUSE("pool '%s': pools %zu and %zu have this name", name, i, number);
  if (!spec->entries || !spec->counts)
    REFUSE("pool '%s' is empty: it needs a count of slots for each of its nodes", name);
  for (size_t i = 0; i < spec->entries; i++)
    if (spec->counts[i] < 1)
      REFUSE("pool '%s': entry %zu is of size %d, and must be at least 1", name, i, (int)spec->counts[i]);
  if (most < 1) REFUSE("pool '%s': max_colocate_count is %d, and must be at least 1", name, most);
  if (spec->groups < 0 || spec->groups > most)
    REFUSE("pool '%s': %d worker groups with processes of their own on each slot, and max_colocate_count "
           "is %d",
           name, (int)spec->groups, most);
  return TREADLE_OK;
}

treadle_status treadle_slots_check(const treadle_resource_pool_spec *specs, size_t count) {
  int64_t sum = 0;
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < count; i++) {
    TRY(check_spec(specs, i));
    sum = 0;
    for (size_t j = 0; j < specs[i].entries && sum <= TREADLE_MAX_TABLE_RANKS; j++)
      sum += specs[i].counts[j];
    if (sum > TREADLE_MAX_TABLE_RANKS)
      REFUSE("pool '%s' has more than %d slots, which is the most", treadle_text_shown(specs[i].name),
             TREADLE_MAX_TABLE_RANKS);
  }
out:
  return status;
}

int64_t treadle_slots_asked(const treadle_resource_pool_spec *specs, size_t count) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < specs[i].entries; j++) sum += specs[i].counts[j];
  return sum;
}

/* ---- Placing ---------------------------------------------------------------------------------------------- */

/* "4 on node 0, 4 on node 1": what is free, of a few nodes. */
static void write_free(char *to, size_t room, const treadle_slots *slots) {
  enum { SHOWN = 8 };
  int32_t shown = 0, more = 0;
  snprintf(to, room, "none");
  for (int32_t n = 0; n < slots->node_count; n++) {
    const treadle_slots_node *node = &slots->nodes[n];
    const int32_t left = node->count - node->taken;
    const size_t length = shown ? strlen(to) : 0;
    if (!left) continue;
    if (shown == SHOWN) {
      more++;
      continue;
    }
    snprintf(to + length, room - length, "%s%d on node %d", shown ? ", " : "", (int)left, (int)node->node);
    shown++;
  }
  if (more)
    snprintf(to + strlen(to), room - strlen(to), " and some on %s",
             treadle_text_of_count(more, "more node"));
}

static treadle_status refuse(const treadle_slots *slots, const treadle_resource_pool_spec *specs,
                             size_t count, size_t pool, size_t entry) {
  const char *name = treadle_text_shown(specs[pool].name);
  const int64_t desired = treadle_slots_asked(specs, count);
  char left[512];
  if (slots->count < desired)
    REFUSE("pool '%s': Total available slots %d is less than total desired slots %lld", name,
           (int)slots->count, (long long)desired);
  write_free(left, sizeof left, slots);
  REFUSE("pool '%s': no node has room for entry %zu, %s that must all be on one node (STRICT_PACK); free "
         "are: %s",
         name, entry, treadle_text_of_count(specs[pool].counts[entry], "slot"), left);
}

treadle_status treadle_slots_place(treadle_slots *slots, const treadle_resource_pool_spec *specs,
                                   size_t count, int32_t *taken) {
  int32_t first = 0; /* nodes before it are full */
  for (size_t pool = 0; pool < count; pool++)
    for (size_t entry = 0; entry < specs[pool].entries; entry++) {
      const int32_t bundles = specs[pool].counts[entry];
      while (first < slots->node_count && slots->nodes[first].taken == slots->nodes[first].count) first++;
      int32_t n = first;
      while (n < slots->node_count && slots->nodes[n].count - slots->nodes[n].taken < bundles) n++;
      if (n == slots->node_count) return refuse(slots, specs, count, pool, entry);
      treadle_slots_node *node = &slots->nodes[n];
      memcpy(taken, &node->numbers[node->taken], (size_t)bundles * sizeof *taken);
      node->taken += bundles;
      taken += bundles;
    }
  return TREADLE_OK;
}

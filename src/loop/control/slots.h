/* Slots of a machine by node, and pools that are placed on them (placement.c). Pure: no clock, no group, the same on every rank. */
#ifndef TREADLE_CONTROL_SLOTS_H
#define TREADLE_CONTROL_SLOTS_H

#include "base/status.h"
#include "treadle_control.h"

typedef struct treadle_slots_node {
  int32_t node;           /* its number, as it was given */
  const int32_t *numbers; /* [count] its slots, ascending */
  int32_t count, taken;   /* taken: the first ones of them */
} treadle_slots_node;

typedef struct treadle_slots {
  int32_t count, node_count;
  treadle_slot *all;         /* [count] without entry and bundle */
  int32_t *numbers;          /* [count] node after node */
  treadle_slots_node *nodes; /* [node_count] in the order of their first slots */
} treadle_slots;

/* node_of [count]: numbers from 0. What was made is released by the caller, also after a failure. */
treadle_status treadle_slots_make(const int32_t *node_of, size_t count, treadle_slots *slots);
void treadle_slots_release(treadle_slots *slots);

/* max_colocate_count, or what it is without. */
static inline int32_t treadle_slots_most_groups(const treadle_resource_pool_spec *spec) {
  return spec->max_colocate_count ? spec->max_colocate_count : 3;
}

/* Refused: what no pool can be, whatever the slots are. */
treadle_status treadle_slots_check(const treadle_resource_pool_spec *specs, size_t count);
/* Bundles of all entries of pools that are checked. */
int64_t treadle_slots_asked(const treadle_resource_pool_spec *specs, size_t count);
/* Takes a slot for each bundle of pools that are checked, one pool after the other: taken [treadle_slots_asked()]. */
treadle_status treadle_slots_place(treadle_slots *slots, const treadle_resource_pool_spec *specs,
                                   size_t count, int32_t *taken);
/* pool.c: a pool on slots that are chosen, taken [bundles of the spec]. */
treadle_status treadle_slots_pool(const treadle_slots *slots, const treadle_resource_pool_spec *spec,
                                  const int32_t *taken, treadle_resource_pool **pool_p);

#endif

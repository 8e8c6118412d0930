/* Is there enough memory for what the ranks are about to make? They ask together, before the first page is touched: several ranks
 * share the machine and its control groups, so what they take there is added up. */
#ifndef TREADLE_SWITCH_ROOM_H
#define TREADLE_SWITCH_ROOM_H

#include "group/group.h"
#include "memory/limits.h"
#include "treadle_device.h"

/* What a rank will take, and what limits it. */
typedef struct treadle_demand {
  uint64_t pool, host, tables,
      others;                 /* bytes: pages, twins, page tables that others read, what the caller takes */
  uint64_t shared;            /* bytes that each process of another rank maps: pool and tables */
  uint64_t mapped, addresses; /* bytes of its pool that it maps; of all that it maps, `mapped` too */
  uint64_t huge;              /* pool pages are mapped by pages of 2 MiB */
  treadle_limits limits;
  treadle_limit
      device; /* memory of a device, in which the pool lies, and nothing else; id 0: the pool lies in the host's */
} treadle_demand;

/* TREADLE_NO_MEMORY, on all ranks with the same message, where the ranks under a limit take more than it leaves: with what
 * they take, which limit it is, and what it leaves. Collective. */
treadle_status treadle_room_ask(treadle_group *group, const treadle_demand *mine);

/* A demand of nothing, with the limits of this process. Collective: it fails where the device of a rank does not say what it has. */
treadle_status treadle_room_limits(treadle_group *group, const treadle_device *device,
                                   const treadle_switch_options *options, treadle_demand *demand_p);
/* The least that a switch takes by the sizes of its windows, before it has a plan; and what it takes by its plan and page
 * tables. Both of a demand of nothing. A rank that rejoins has all but its peers' memory. */
treadle_demand treadle_room_least(const treadle_switch *sw, treadle_demand limits);
treadle_demand treadle_room_exact(const treadle_switch *sw, treadle_demand limits);

#endif

/* Groups of ranks on several nodes.
 *
 * The ranks of one node have a near group, of processes (group_shm.c) or threads: by it they read each other's memory, and see
 * whether the others live. The group of all ranks has a control block of its own on each node, which the node's leader makes and the others
 * map; couriers keep the lines of other nodes in it up to date (courier.h). */
#ifndef TREADLE_GROUP_GROUP_NODES_H
#define TREADLE_GROUP_GROUP_NODES_H

#include "group/courier.h"

/* Makes the group of all ranks out of a node's near group, which is the new group's from now on, whatever the outcome. The leader of each node
 * meets the others as `meeting` says (its `nodes`, `node` and `key` count for all ranks). Collective, with one deadline for all.
 * control: the node's control block, zeroed, of treadle_control_bytes(ranks), if its ranks are threads, which see it as it is; it stays the
 * caller's. NULL: it is made. */
treadle_status treadle_group_over_nodes(treadle_group *near, const treadle_courier_meeting *meeting,
                                        int rank, double timeout_seconds, void *control,
                                        treadle_group **group_p);

#endif

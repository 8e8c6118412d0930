/* Groups of ranks on several nodes.
 *
 * The ranks of one node have a near group, of processes (group_shm.c) or threads: by it they read each other's memory, and see
 * whether the others live. The group of all ranks has a control block of its own on each node, which the node's leader makes and the others
 * map; couriers keep the lines of other nodes in it up to date (courier.h). */
#ifndef TREADLE_TRANSPORT_GROUP_NODES_H
#define TREADLE_TRANSPORT_GROUP_NODES_H

#include "transport/courier.h"

/* Makes the group of all ranks out of a node's near group, which is the new group's from now on, whatever the outcome. The leader of each node
 * meets the others as `meeting` says (its `nodes`, `node` and `key` count for all ranks). Collective, with one deadline for all. */
treadle_status treadle_group_over_nodes(treadle_group *near, const treadle_courier_meeting *meeting,
                                        int rank, double timeout_seconds, treadle_group **group_p);

/* For tests: `size` ranks as threads of this process, on the nodes that `of` says ([size]), which meet over loopback. Each
 * thread opens the group of its rank by treadle_group_threads_open, since that is collective. */
typedef struct treadle_thread_nodes treadle_thread_nodes;
treadle_status treadle_thread_nodes_make(const int32_t *of, int size, double timeout_seconds,
                                         treadle_thread_nodes **all_p);
treadle_status treadle_thread_nodes_open(treadle_thread_nodes *all, int rank, treadle_group **group_p);
void treadle_thread_nodes_destroy(treadle_thread_nodes *all);

#endif

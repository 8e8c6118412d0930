/* Several nodes in one process: ranks are threads, on nodes that a test chooses, which meet over loopback. */
#ifndef TESTS_THREAD_NODES_H
#define TESTS_THREAD_NODES_H

#include "group/group_nodes.h"

/* `size` ranks, on the nodes that `of` says ([size]). Each
 * thread opens the group of its rank by treadle_group_threads_open, since that is collective. */
typedef struct treadle_thread_nodes treadle_thread_nodes;
treadle_status treadle_thread_nodes_make(const int32_t *of, int size, double timeout_seconds,
                                         treadle_thread_nodes **all_p);
treadle_status treadle_thread_nodes_open(treadle_thread_nodes *all, int rank, treadle_group **group_p);
void treadle_thread_nodes_destroy(treadle_thread_nodes *all);

#endif

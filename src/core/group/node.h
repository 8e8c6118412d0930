/* Which node (machine) a process is on.
 *
 * Ranks of one node meet by a local socket, see whether each other's processes live and map each other's memory. For that they need one
 * kernel, and in it one network namespace (local sockets without a file are found in one alone) and one process namespace. */
#ifndef TREADLE_GROUP_NODE_H
#define TREADLE_GROUP_NODE_H

#include "base/status.h"

typedef struct treadle_node {
  uint8_t boot[16]; /* random, of each start of the machine; host names may be the same on several */
  uint64_t network, processes; /* the namespaces */
} treadle_node;

/* TREADLE_SYSTEM: /proc does not say it. */
treadle_status treadle_node_here(treadle_node *node_p);
bool treadle_node_is_same(const treadle_node *a, const treadle_node *b);

#endif

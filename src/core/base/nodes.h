/* Which rank is on which node (machine). Nodes are numbered by their first ranks; ranks of a node need not be neighbours. */
#ifndef TREADLE_BASE_NODES_H
#define TREADLE_BASE_NODES_H

#include "base/status.h"

#include <stdint.h>

typedef struct treadle_nodes {
  int64_t ranks;
  int32_t count;  /* nodes */
  int32_t *of;    /* [ranks] the node of each rank */
  int32_t *index; /* [ranks] which of its node's ranks it is */
  int32_t *first; /* [count + 1] where those of a node begin in */
  int32_t *list;  /* [ranks] ranks by node, in a node ascending */
} treadle_nodes;

/* of: [ranks] any numbers, equal for ranks of one node; NULL: all ranks are on one. Refused: no ranks, or more than a table has. */
treadle_status treadle_nodes_make(const int32_t *of, int64_t ranks, treadle_nodes *nodes);
/* `count` nodes of equally many neighbours; refused where ranks cannot be divided so. */
treadle_status treadle_nodes_split(int64_t ranks, int64_t count, treadle_nodes *nodes);
void treadle_nodes_release(treadle_nodes *nodes);

/* Ranks of a node, and the first of them, which speaks for it. */
static inline int32_t treadle_nodes_size(const treadle_nodes *nodes, int32_t node) {
  return nodes->first[node + 1] - nodes->first[node];
}
static inline int32_t treadle_nodes_leader(const treadle_nodes *nodes, int32_t node) {
  return nodes->list[nodes->first[node]];
}

#endif

/* The lower bound of the bytes that enter a node. */
#ifndef TREADLE_LAYOUT_INBOUND_NODES_H
#define TREADLE_LAYOUT_INBOUND_NODES_H

#include "base/nodes.h"
#include "layout/layout.h"

/* Elements that any rank of a node has in `to`, and none of them in `from`: each canonical element once, times the narrower type of both
 * sides. What plans of all its ranks together may not go below. Scales that are made of values, and how blocks of these are brought
 * together, are left out. */
treadle_status treadle_layout_inbound_node(const treadle_layout *from, const treadle_layout *to,
                                           const treadle_nodes *nodes, int32_t node, int64_t *bytes_p);

/* A number that is equal for nodes whose ranks have the same pieces in both layouts, whichever rank has which: so their bounds
 * are equal, too. */
treadle_status treadle_node_place(const treadle_layout *from, const treadle_layout *to,
                                  const treadle_nodes *nodes, int32_t node, uint64_t *place_p);

#endif

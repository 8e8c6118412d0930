/* The sizes of nodes on which `treadle train` can run the pools of a configuration, with the controller on the first: each pool on one node. */
#include "rl/teams.h"

#include "run/config_pools.h"

#include <stdio.h>
#include <string.h>

/* Pools of the next node, from `first` on: about as many slots on each of the nodes that are left, and at least one pool for each. */
static size_t end_of_node(const treadle_config_pools *asked, size_t first, int nodes_left) {
  int64_t slots = 0, all = 0;
  size_t end = first;
  if (nodes_left == 1) return asked->count;
  for (size_t p = first; p < asked->count; p++) all += treadle_config_pool_slots(&asked->all[p]);
  do slots += treadle_config_pool_slots(&asked->all[end++]);
  while (end + (size_t)nodes_left <= asked->count &&
         2 * (slots * nodes_left - all) + treadle_config_pool_slots(&asked->all[end]) * nodes_left <= 0);
  return end;
}

bool treadle_rl_name_nodes(const treadle_config_pools *asked, int nodes, char *text, size_t room) {
  const bool alone = (size_t)nodes == asked->count + 1; /* the controller has a node of its own */
  size_t first = 0, length = 0;
  if (nodes < 2 || (size_t)nodes > asked->count + 1) return false;
  for (size_t p = 0; p < asked->count; p++)
    if (asked->all[p].type == TREADLE_POOL_CHOSEN || asked->all[p].type == TREADLE_POOL_ALL) return false;
  if (alone) length = (size_t)snprintf(text, room, "1");
  for (int node = alone; node < nodes && length < room; node++) {
    const size_t end = end_of_node(asked, first, nodes - node);
    int64_t processes = node == 0;
    for (; first < end; first++) processes += treadle_config_pool_slots(&asked->all[first]);
    length +=
        (size_t)snprintf(text + length, room - length, "%s%lld", node ? "," : "", (long long)processes);
  }
  return length < room;
}

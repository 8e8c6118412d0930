/* Nodes are numbered in the order in which their first ranks come, so that the lowest node is that of rank 0. */
#include "base/nodes.h"

#include "base/alloc.h"
#include "base/hash_index.h"
#include "base/limits.h"
#include "base/text.h"

#include <inttypes.h>

static treadle_status make_room(int64_t ranks, treadle_nodes *nodes) {
  *nodes = (treadle_nodes){.ranks = ranks};
  if (ranks < 1 || ranks > TREADLE_MAX_TABLE_RANKS)
    return treadle_fail(TREADLE_REFUSED, "nodes: %" PRId64 " ranks; a table of nodes has 1 to %d", ranks,
                        (int)TREADLE_MAX_TABLE_RANKS);
  nodes->of = treadle_alloc_array((size_t)ranks, sizeof *nodes->of);
  nodes->index = treadle_alloc_array((size_t)ranks, sizeof *nodes->index);
  nodes->first = treadle_alloc_array((size_t)ranks + 1, sizeof *nodes->first);
  nodes->list = treadle_alloc_array((size_t)ranks, sizeof *nodes->list);
  if (nodes->of && nodes->index && nodes->first && nodes->list) return TREADLE_OK;
  treadle_nodes_release(nodes);
  return treadle_fail(TREADLE_NO_MEMORY, "nodes: memory is out");
}

/* From `of` and `count` to all the rest. */
static void list_ranks(treadle_nodes *nodes) {
  for (int64_t rank = 0; rank < nodes->ranks; rank++)
    nodes->index[rank] = nodes->first[nodes->of[rank] + 1]++;
  for (int32_t node = 0; node < nodes->count; node++) nodes->first[node + 1] += nodes->first[node];
  for (int64_t rank = 0; rank < nodes->ranks; rank++)
    nodes->list[nodes->first[nodes->of[rank]] + nodes->index[rank]] = (int32_t)rank;
}

treadle_status treadle_nodes_make(const int32_t *of, int64_t ranks, treadle_nodes *nodes) {
  treadle_status status = TREADLE_OK;
  treadle_hash_index numbers = {0};
  TRY(make_room(ranks, nodes));
  nodes->count = of ? 0 : 1;
  for (int64_t rank = 0; of && rank < ranks; rank++) {
    TRY(treadle_hash_index_put(&numbers, (uint64_t)(uint32_t)of[rank], nodes->count, &nodes->of[rank]));
    if (nodes->of[rank] == nodes->count) nodes->count++;
  }
  list_ranks(nodes);
out:
  treadle_hash_index_release(&numbers);
  if (status != TREADLE_OK) treadle_nodes_release(nodes);
  return status;
}

treadle_status treadle_nodes_split(int64_t ranks, int64_t count, treadle_nodes *nodes) {
  treadle_status status = TREADLE_OK;
  TRY(make_room(ranks, nodes));
  if (count < 1 || count > ranks || ranks % count != 0)
    TRY(treadle_fail(TREADLE_REFUSED, "nodes: %s cannot be divided evenly among %s",
                     treadle_text_of_count(ranks, "rank"), treadle_text_of_count(count, "node")));
  nodes->count = (int32_t)count;
  for (int64_t rank = 0; rank < ranks; rank++) nodes->of[rank] = (int32_t)(rank / (ranks / count));
  list_ranks(nodes);
out:
  if (status != TREADLE_OK) treadle_nodes_release(nodes);
  return status;
}

void treadle_nodes_release(treadle_nodes *nodes) {
  treadle_free(nodes->of);
  treadle_free(nodes->index);
  treadle_free(nodes->first);
  treadle_free(nodes->list);
  *nodes = (treadle_nodes){0};
}

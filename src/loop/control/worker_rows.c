/* Behind what all ranks get, a message has three things: the rows of each rank, the number of the first row that it has, and the rows. On one
 * node these are all, and of several nodes each has a message with those of its ranks. */
#include "control/worker_rows.h"

#include "base/alloc.h"
#include "base/larger.h"
#include "group/group.h"

#include <string.h>

static int rank_of(const treadle_worker_group *g) { return g->group ? treadle_group_rank(g->group) : 0; }

/* ---- Rank 0 ------------------------------------------------------------------------------------------------ */

static void put(treadle_message *m, const treadle_worker_rows *r, int ranks, treadle_row_range range) {
  treadle_message_rows rows = r->rows;
  rows.rows += range.first;
  rows.row_count = (size_t)(range.end - range.first);
  treadle_message_put_bytes(m, r->by_rank, (size_t)ranks * sizeof *r->by_rank);
  treadle_message_put_int(m, range.first);
  treadle_message_put_rows(m, &rows);
}

/* From the first row that a rank of the node takes to the last. */
static treadle_row_range range_of(const treadle_worker_group *g, const treadle_worker_rows *r, int node) {
  treadle_row_range all = {INT64_MAX, 0};
  for (int rank = 0; rank < treadle_worker_group_ranks(g); rank++) {
    const treadle_row_range *one = &r->by_rank[rank];
    if (treadle_group_node(g->group, rank) != node || one->first == one->end) continue;
    all.first = treadle_smaller(all.first, one->first);
    all.end = treadle_larger(all.end, one->end);
  }
  return all.first < all.end ? all : (treadle_row_range){0};
}

/* The message of each other node, which begins with what `in` has so far; then the first one's. */
static treadle_status put_each(const treadle_worker_group *g, treadle_message *in,
                               const treadle_worker_rows *r, treadle_message *messages,
                               const treadle_message **by_node) {
  const int nodes = treadle_group_node_count(g->group);
  const size_t length = in->length;
  for (int node = nodes - 1; node >= 0; node--) {
    treadle_message *m = node ? &messages[node] : in;
    char *to = node ? treadle_message_grow(m, length) : NULL;
    if (to && length) memcpy(to, in->bytes, length);
    put(m, r, treadle_worker_group_ranks(g), range_of(g, r, node));
    if (m->failed) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of node %d", node);
    by_node[node] = m;
  }
  return TREADLE_OK;
}

static treadle_status call_far(treadle_worker_group *g, const char *name, treadle_message *in,
                               const treadle_worker_rows *rows, treadle_message *out) {
  const size_t nodes = (size_t)treadle_group_node_count(g->group);
  treadle_message *messages = treadle_alloc_array(nodes, sizeof *messages);
  const treadle_message **by_node = treadle_alloc_array(nodes, sizeof(*by_node));
  treadle_status status = TREADLE_OK;
  if (!messages || !by_node)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for messages to %zu nodes", nodes));
  TRY(put_each(g, in, rows, messages, by_node));
  TRY(treadle_worker_group_call_nodes(g, name, in, by_node, out));
out:
  for (size_t i = 0; messages && i < nodes; i++) treadle_message_release(&messages[i]);
  treadle_free(messages);
  treadle_free(by_node);
  return status;
}

treadle_status treadle_worker_group_call_rows(treadle_worker_group *group, const char *name,
                                              treadle_message *in, const treadle_worker_rows *rows,
                                              treadle_message *out) {
  if (group->group && treadle_group_node_count(group->group) > 1)
    return call_far(group, name, in, rows, out);
  put(in, rows, treadle_worker_group_ranks(group), (treadle_row_range){0, (int64_t)rows->rows.row_count});
  return treadle_worker_group_call(group, name, in, out);
}

/* ---- All ranks --------------------------------------------------------------------------------------------- */

treadle_status treadle_worker_take_rows(const treadle_worker_group *group, treadle_message *in,
                                        treadle_worker_share *share_p) {
  const int ranks = treadle_worker_group_ranks(group), rank = rank_of(group);
  treadle_row_range *range = &share_p->range;
  treadle_batch *rows = NULL;
  const void *ranges;
  int64_t first;
  treadle_status status;
  *share_p = (treadle_worker_share){0};
  TRY(treadle_message_array(in, "rows of each rank", sizeof *range, (size_t)ranks, &ranges));
  *range = ((const treadle_row_range *)ranges)[rank];
  TRY(treadle_message_int(in, "first row", &first));
  TRY(treadle_message_batch(in, &rows));
  const int64_t end = first + treadle_batch_rows(rows);
  const bool none = range->first == range->end;
  if (!none && (range->first < first || range->end < range->first || range->end > end))
    TRY(treadle_fail(TREADLE_PEER, "a call has rows %lld to %lld, and rank %d is to take rows %lld to %lld",
                     (long long)first, (long long)end, rank, (long long)range->first,
                     (long long)range->end));
  TRY(treadle_batch_slice(rows, none ? 0 : range->first - first, none ? 0 : range->end - first,
                          &share_p->mine));
out:
  treadle_batch_destroy(rows);
  return status;
}

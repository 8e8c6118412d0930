/* Behind what all ranks get, a message has three things: the rows of each rank, the number of the first row that it has, and the rows. On one
 * node these are all, and between nodes those of the rank that it is sent to. */
#include "control/worker_rows.h"

#include "base/alloc.h"
#include "group/group.h"

#include <string.h>

static int ranks_of(const treadle_worker_group *g) { return g->group ? treadle_group_size(g->group) : 1; }

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

static bool is_same(treadle_row_range a, treadle_row_range b) {
  return a.first == b.first && a.end == b.end;
}

/* The message of each other rank, which begins with what `in` has so far. Ranks with the same rows share one: that of the first of
 * them. */
static treadle_status put_each(const treadle_worker_group *g, treadle_message *in,
                               const treadle_worker_rows *r, treadle_message *messages,
                               const treadle_message **by_rank) {
  const int ranks = ranks_of(g);
  const size_t length = in->length;
  for (int rank = 1; rank < ranks; rank++) {
    int first = 0;
    while (!is_same(r->by_rank[first], r->by_rank[rank])) first++;
    by_rank[rank] = first ? &messages[first] : in;
    if (first < rank) continue;
    char *to = treadle_message_grow(&messages[rank], length);
    if (to && length) memcpy(to, in->bytes, length);
    put(&messages[rank], r, ranks, r->by_rank[rank]);
    if (messages[rank].failed)
      return treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of rank %d", rank);
  }
  put(in, r, ranks, r->by_rank[0]);
  return in->failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of rank 0") : TREADLE_OK;
}

static treadle_status call_far(treadle_worker_group *g, const char *name, treadle_message *in,
                               const treadle_worker_rows *rows, treadle_message *out) {
  const size_t ranks = (size_t)ranks_of(g);
  treadle_message *messages = treadle_alloc_array(ranks, sizeof *messages);
  const treadle_message **by_rank = treadle_alloc_array(ranks, sizeof(*by_rank));
  treadle_status status = TREADLE_OK;
  if (!messages || !by_rank)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for messages to %zu ranks", ranks));
  TRY(put_each(g, in, rows, messages, by_rank));
  TRY(treadle_worker_group_call_each(g, name, in, by_rank, out));
out:
  for (size_t i = 0; messages && i < ranks; i++) treadle_message_release(&messages[i]);
  treadle_free(messages);
  treadle_free(by_rank);
  return status;
}

treadle_status treadle_worker_group_call_rows(treadle_worker_group *group, const char *name,
                                              treadle_message *in, const treadle_worker_rows *rows,
                                              treadle_message *out) {
  if (group->group && treadle_group_node_count(group->group) > 1)
    return call_far(group, name, in, rows, out);
  put(in, rows, ranks_of(group), (treadle_row_range){0, (int64_t)rows->rows.row_count});
  return treadle_worker_group_call(group, name, in, out);
}

/* ---- All ranks --------------------------------------------------------------------------------------------- */

treadle_status treadle_worker_take_rows(const treadle_worker_group *group, treadle_message *in,
                                        treadle_worker_share *share_p) {
  const int ranks = ranks_of(group), rank = rank_of(group);
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
  if (range->first < first || range->end < range->first || range->end > end)
    TRY(treadle_fail(TREADLE_PEER, "a call has rows %lld to %lld, and rank %d is to take rows %lld to %lld",
                     (long long)first, (long long)end, rank, (long long)range->first,
                     (long long)range->end));
  TRY(treadle_batch_slice(rows, range->first - first, range->end - first, &share_p->mine));
out:
  treadle_batch_destroy(rows);
  return status;
}

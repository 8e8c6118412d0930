/* Ranks whose memory cannot be read in place (transport/link.h).
 *
 * Their page tables are fetched once. What an op reads of their windows is fetched to staging, densely and in the order
 * in which it lies there, right before the op; the op then reads staging. Pages are reused as without fetches: a wave is done
 * when its ops are done, so no fetch is running then. Staging has room for the largest op, and is made with the switch. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/dtype.h"

#include <stdlib.h>

enum { PARTS = 256 }; /* of one fetch */

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"); }

bool treadle_far_is(const treadle_switch *sw, int32_t rank) {
  return rank >= 0 && treadle_peer_memory_is_far(&sw->space.shared_pools[rank]);
}

/* ---- Page tables ---- */

static treadle_status fetch_tables(treadle_switch *sw, int rank) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  const treadle_peer_memory *shared = &sw->space.shared_tables[rank];
  const treadle_part part = {0, (int64_t)shared->bytes};
  void *copy = treadle_alloc(shared->bytes);
  if (!copy) return no_memory();
  sw->far.copies[rank] = copy;
  treadle_fetch fetch = {.rank = rank, .from = *shared, .parts = &part, .count = 1, .to = copy};
  TRY(treadle_link_fetch(group, &fetch, NULL, treadle_group_deadline(group), "page tables"));
  sw->far.tables[rank] = copy;
out:
  return status;
}

treadle_status treadle_far_tables(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  size_t ranks = (size_t)sw->group->size;
  treadle_far *far = &sw->far;
  far->tables = treadle_alloc_array(ranks, sizeof *far->tables);
  far->copies = treadle_alloc_array(ranks, sizeof *far->copies);
  if (!far->tables || !far->copies) return no_memory();
  for (int rank = 0; rank < sw->group->size; rank++) {
    far->tables[rank] = sw->space.shared_tables[rank].base;
    if (treadle_peer_memory_is_far(&sw->space.shared_tables[rank])) TRY(fetch_tables(sw, rank));
  }
out:
  return status;
}

void treadle_far_release(treadle_switch *sw) {
  treadle_far *far = &sw->far;
  for (int rank = 0; far->copies && rank < sw->group->size; rank++) treadle_free(far->copies[rank]);
  treadle_free(far->copies);
  treadle_free(far->tables);
  treadle_free(far->staging);
  treadle_free(far->parts);
  *far = (treadle_far){0};
}

/* ---- Staging ---- */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t bytes_of(const treadle_op *op) {
  return op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->from_dtype);
}

/* The most that an op of a direction reads of a far rank. */
static int64_t most_bytes(const treadle_switch *sw, const treadle_direction *direction) {
  int64_t most = 0;
  for (size_t i = 0; i < direction->ops.count; i++)
    if (treadle_far_is(sw, direction->ops.items[i].source))
      most = larger(most, bytes_of(&direction->ops.items[i]));
  for (size_t i = 0; i < direction->block_rows.count; i++) {
    const treadle_block_row *block_row = &direction->block_rows.items[i];
    for (int64_t k = 0; k < block_row->parts; k++) {
      const treadle_op *op = &direction->block_row_parts.items[block_row->part_first + k].op;
      if (!treadle_far_is(sw, op->source)) continue;
      most = larger(most, block_row->quantises
                              ? bytes_of(op)
                              : larger((int64_t)block_row->code_rows * block_row->code_columns,
                                       treadle_block_row_blocks(block_row) * (int64_t)sizeof(float)));
    }
  }
  return most;
}

treadle_status treadle_far_staging(treadle_switch *sw) {
  treadle_far *far = &sw->far;
  int64_t bytes = larger(most_bytes(sw, &sw->plan->forward), most_bytes(sw, &sw->plan->back));
  if (bytes == 0) return TREADLE_OK;
  far->staging = treadle_alloc((size_t)bytes);
  far->parts = treadle_alloc_array(PARTS, sizeof *far->parts);
  if (!far->staging || !far->parts) return no_memory();
  memset(far->staging, 0, (size_t)bytes); /* touched */
  return TREADLE_OK;
}

/* ---- Fetching ---- */

/* The parts of an op's source, gathered until a fetch has as many as it may. */
typedef struct gathering {
  treadle_switch *sw;
  const treadle_paged *paged;
  int rank;
  int32_t count;
  int64_t bytes; /* in staging, of fetches that have ended, and of the parts at hand */
  int64_t begun;
} gathering;

static treadle_status flush(gathering *g) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = g->sw;
  if (g->count == 0) return TREADLE_OK;
  treadle_fetch fetch = {.rank = g->rank,
                         .from = sw->space.shared_pools[g->rank],
                         .parts = sw->far.parts,
                         .count = g->count,
                         .to = sw->far.staging + g->begun};
  TRY(treadle_epoch_fetch(sw, &fetch, treadle_epoch_now(sw->group), "a fetch"));
  g->begun = g->bytes;
  g->count = 0;
out:
  return status;
}

/* A run of bytes of the window. */
static treadle_status gather_run(gathering *g, int64_t at, int64_t bytes) {
  treadle_status status = TREADLE_OK;
  while (bytes > 0) {
    int64_t part = treadle_paged_extent(g->paged, at, bytes), where = treadle_paged_place(g->paged, at);
    treadle_part *last = g->count > 0 ? &g->sw->far.parts[g->count - 1] : NULL;
    if (last && last->at + last->bytes == where) {
      last->bytes += part;
    } else {
      if (g->count == PARTS) TRY(flush(g));
      g->sw->far.parts[g->count++] = (treadle_part){where, part};
    }
    g->bytes += part;
    at += part;
    bytes -= part;
  }
out:
  return status;
}

static treadle_status gather(gathering *g, const treadle_op *op, const int *dims, int count, int64_t each,
                             int64_t at) {
  treadle_status status = TREADLE_OK;
  if (count == 0) return gather_run(g, at, each);
  if (count == 1 && op->from_stride[dims[0]] == each) return gather_run(g, at, op->size[dims[0]] * each);
  for (int64_t i = 0; i < op->size[dims[0]]; i++)
    TRY(gather(g, op, dims + 1, count - 1, each, at + i * op->from_stride[dims[0]]));
out:
  return status;
}

treadle_status treadle_far_take(treadle_switch *sw, treadle_mode old, treadle_op *op,
                                treadle_paged *view_p) {
  treadle_status status = TREADLE_OK;
  gathering g = {.sw = sw, .paged = &sw->space.paged[old][op->source], .rank = op->source};
  int dims[TREADLE_MAX_AXES], count = 0;
  int64_t each = (int64_t)treadle_dtype_bytes((treadle_dtype)op->from_dtype), stride = each;
  if (op->elems == 0) return TREADLE_OK;
  for (int d = 0; d < op->ndim; d++) { /* slow to fast, by the source */
    if (op->size[d] == 1) continue;
    int at = count++;
    for (; at > 0 && llabs(op->from_stride[dims[at - 1]]) < llabs(op->from_stride[d]); at--)
      dims[at] = dims[at - 1];
    dims[at] = d;
  }
  TRY(gather(&g, op, dims, count, each, op->from));
  TRY(flush(&g));
  op->from = 0;
  for (int i = count - 1; i >= 0; i--) {
    op->from_stride[dims[i]] = stride;
    stride *= op->size[dims[i]];
  }
  *view_p = (treadle_paged){.base = sw->far.staging};
out:
  return status;
}

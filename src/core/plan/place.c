/* Windows after arrangement: the place of each byte, ops cut at aliased pages, reads of other ranks' windows, and the coverage
 * of aliased bytes.
 *
 * No op of either direction writes an aliased page. So the way back may read a part of another rank's to-window that is
 * aliased there. That page is also a page of the other rank's from-window, and holds the same bytes all the time. */
#include "plan/alias.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/search.h"
#include "base/sized.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* Where storages that are moved by `shift` have the byte at `offset`: storages at 0, 1,024 and 4,096 that are moved by 0, 64 and 512
 * have byte 1,030 at 1,094. */
static int64_t place_in(const treadle_storage *storages, int32_t count, const int64_t *shift,
                        int64_t offset) {
  if (!shift || count == 0) return offset;
  /* those of a run move as one */
  return offset + shift[treadle_last_at_most(&storages->offset, sizeof *storages, count, offset)];
}

int64_t treadle_plan_place(const treadle_arrangement *arrangement, int64_t offset) {
  return place_in(arrangement->storages, arrangement->storage_count, arrangement->shift, offset);
}

treadle_status treadle_plan_storage(const treadle_plan *plan, int32_t storage,
                                    treadle_storage_info *info_p) {
  TREADLE_NEED(plan);
  TREADLE_NEED_SIZED(info_p);
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_status status = treadle_layout_storage(plan->to, plan->rank, storage, &info);
  if (status) return status;
  info.offset_bytes = (size_t)treadle_plan_place(&plan->arrangement, (int64_t)info.offset_bytes);
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}

int32_t treadle_plan_find(const treadle_plan *plan, const char *name) {
  TREADLE_NEED_OR(plan, -1);
  return treadle_layout_find(plan->to, plan->rank, name);
}

bool treadle_plan_shares(const treadle_plan *plan, int64_t page) {
  TREADLE_NEED_OR(plan, false);
  if (page < 0 || page >= plan->to_pages)
    return treadle_fail(TREADLE_REFUSED, "page %lld is none of the window's %lld", (long long)page,
                        (long long)plan->to_pages),
           false;
  return plan->arrangement.from_of && plan->arrangement.from_of[page] >= 0;
}

/* ---- Cutting ops ---- */

typedef enum part { KEPT, DROPPED, MIXED } part;

typedef struct clipper {
  const int32_t *aliased;
  int64_t page_bytes;
  treadle_alias_keep keep;
  void *context;
  int64_t dropped;
} clipper;

/* Bytes from the first to behind the last byte of dimensions d.. of an op's destination. */
static int64_t span_of(const treadle_op *op, int d) {
  int64_t span = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  for (; d < op->ndim; d++) span += (op->size[d] - 1) * op->to_stride[d];
  return span;
}

static part part_of(const clipper *c, int64_t begin, int64_t bytes) {
  bool some = false, all = true;
  for (int64_t page = begin / c->page_bytes; page <= (begin + bytes - 1) / c->page_bytes; page++) {
    if (c->aliased[page] >= 0)
      some = true;
    else
      all = false;
    if (some && !all) return MIXED;
  }
  return some ? DROPPED : KEPT;
}

/* Indices [first, end) of the slowest dimension of an op. */
static treadle_op rows_of(const treadle_op *op, int64_t first, int64_t end) {
  treadle_op rows = *op;
  rows.from += first * op->from_stride[0];
  rows.to += first * op->to_stride[0];
  rows.elems = op->elems / op->size[0] * (end - first);
  rows.size[0] = end - first;
  if (end - first > 1 || op->ndim == 1) return rows;
  rows.ndim--;
  for (int d = 0; d < rows.ndim; d++) {
    rows.size[d] = op->size[d + 1];
    rows.from_stride[d] = op->from_stride[d + 1];
    rows.to_stride[d] = op->to_stride[d + 1];
  }
  return rows;
}

static treadle_status clip_as(clipper *c, const treadle_op *op, part like);

/* Indices of the slowest dimension that fare alike go together; one that does not lie on pages of one set is cut
 * further. 12 rows of 1,024 bytes from 0 on, and page 1 of 4,096 bytes aliased: rows 0-3 and 8-11 are kept, as two ops, and rows
 * 4-7 dropped. */
static treadle_status clip_rows(clipper *c, const treadle_op *op) {
  treadle_status status = TREADLE_OK;
  int64_t inner = span_of(op, 1), stride = op->to_stride[0];
  for (int64_t i = 0, end; i < op->size[0]; i = end) {
    part like = part_of(c, op->to + i * stride, inner);
    for (end = i + 1; like != MIXED && end < op->size[0]; end++) {
      int64_t at = op->to + end * stride, page_end = (at / c->page_bytes + 1) * c->page_bytes;
      if (part_of(c, at, inner) != like) break;
      if (at + inner < page_end) end += (page_end - at - inner) / stride; /* all in this page */
    }
    if (end > op->size[0]) end = op->size[0];
    const treadle_op rows = rows_of(op, i, end);
    TRY(clip_as(c, &rows, like));
  }
out:
  return status;
}

static treadle_status clip_as(clipper *c, const treadle_op *op, part like) {
  if (like == KEPT) return c->keep(c->context, op);
  if (like == MIXED) return clip_rows(c, op);
  assert(op->source >= 0 && !op->twin); /* relays bring what this rank lacks */
  c->dropped += op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  return TREADLE_OK;
}

treadle_status treadle_alias_clip(const treadle_op *op, const int32_t *aliased, int64_t page_bytes,
                                  treadle_alias_keep keep, void *context, int64_t *dropped_p) {
  if (!aliased || op->elems == 0) return keep(context, op);
  clipper c = {.aliased = aliased, .page_bytes = page_bytes, .keep = keep, .context = context};
  treadle_status status = clip_as(&c, op, part_of(&c, op->to, span_of(op, 0)));
  *dropped_p += c.dropped;
  return status;
}

/* ---- Other ranks' windows ---- */

typedef struct stretch {
  int64_t begin, end;
} stretch;

static int by_begin(const void *a, const void *b) {
  const stretch *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static treadle_status check_shifts(const treadle_plan *plan, int64_t peer, const treadle_storage *storages,
                                   const int64_t *shift, int32_t count, int64_t to_pages) {
  treadle_status status = TREADLE_OK;
  int64_t window = (int64_t)treadle_layout_window_bytes(plan->to, peer), room = to_pages * plan->page_bytes;
  stretch *places = treadle_alloc_array((size_t)count + 1, sizeof *places);
  if (!places) TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"));
  int32_t places_count = 0;
  for (int32_t i = 0; i < count; i += storages[i].run) {
    int32_t next = i + storages[i].run;
    int64_t begin = storages[i].offset + shift[i], end = next < count ? storages[next].offset : window;
    for (int32_t k = i + 1; k < next; k++)
      if (shift[k] != shift[i])
        TRY(treadle_fail(TREADLE_REFUSED,
                         "plan: rank %" PRId64 ": storage tensors %d and %d of rank %" PRId64
                         " lie expert by expert, and are moved by %" PRId64 " and %" PRId64 " bytes",
                         plan->rank, i, k, peer, shift[i], shift[k]));
    if (shift[i] % TREADLE_STORAGE_ALIGNMENT != 0)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "plan: rank %" PRId64 ": storage tensor %d of rank %" PRId64 " is moved by %" PRId64
                       " bytes, no multiple of %d",
                       plan->rank, i, peer, shift[i], TREADLE_STORAGE_ALIGNMENT));
    end += shift[i];
    if (begin < 0 || end > room)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "plan: rank %" PRId64 ": storage tensor %d of rank %" PRId64 " lies at %" PRId64
                       " to %" PRId64 " of a window of %" PRId64 " bytes",
                       plan->rank, i, peer, begin, end, room));
    if (begin < end) places[places_count++] = (stretch){begin, end};
  }
  if (places_count > 1) qsort(places, (size_t)places_count, sizeof *places, by_begin);
  for (int32_t i = 1; i < places_count; i++)
    if (places[i].begin < places[i - 1].end)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "plan: rank %" PRId64 ": two storage tensors of rank %" PRId64 " have byte %" PRId64
                       " of its window",
                       plan->rank, peer, places[i].begin));
out:
  treadle_free(places);
  return status;
}

/* Is what an op reads in a to-window? The way back reads these; forward, twins and relays do. */
static bool reads_arranged(const treadle_op *op, bool back) { return back != op->twin; }

treadle_status treadle_plan_place_peers(treadle_plan *plan, int64_t peer, const int64_t *shift,
                                        int32_t count, int64_t to_pages) {
  treadle_status status = TREADLE_OK;
  int32_t storage_count = 0;
  if (peer < 0 || peer >= plan->to->ranks || peer == plan->rank)
    TRY(treadle_fail(TREADLE_REFUSED, "plan: rank %" PRId64 " has no peer %" PRId64 " of %" PRId64,
                     plan->rank, peer, plan->to->ranks));
  if (plan->placed && plan->placed[peer])
    TRY(treadle_fail(TREADLE_REFUSED,
                     "plan: rank %" PRId64 ": the window of rank %" PRId64 " is placed already", plan->rank,
                     peer));
  const treadle_storage *storages = treadle_layout_storages(plan->to, peer, &storage_count);
  if (count != storage_count)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "plan: rank %" PRId64 ": rank %" PRId64
                     " says where %d storage tensors lie, and has %d",
                     plan->rank, peer, count, storage_count));
  if (shift) TRY(check_shifts(plan, peer, storages, shift, count, to_pages));
  if (!plan->placed) plan->placed = treadle_alloc((size_t)plan->to->ranks);
  if (!plan->placed) TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"));
  plan->placed[peer] = 1;
  for (int back = 0; back < 2; back++) {
    treadle_direction *direction = back ? &plan->back : &plan->forward;
    for (size_t i = 0; i < direction->ops.count; i++) {
      treadle_op *op = &direction->ops.items[i];
      if (reads_arranged(op, back) && op->source == peer)
        op->from = place_in(storages, count, shift, op->from);
    }
  }
  for (size_t i = 0; i < plan->back.block_rows.count; i++) {
    treadle_block_row *block_row = &plan->back.block_rows.items[i];
    treadle_block_row_part *parts = plan->back.block_row_parts.items + block_row->part_first;
    if (!block_row->quantises && block_row->parts > 0 && parts[0].op.source == peer) {
      block_row->codes = place_in(storages, count, shift, block_row->codes);
      block_row->scales = place_in(storages, count, shift, block_row->scales);
    }
    for (int64_t k = 0; block_row->quantises && block_row->begin == 0 && k < block_row->parts;
         k++) /* runs may share them */
      if (parts[k].op.source == peer) parts[k].op.from = place_in(storages, count, shift, parts[k].op.from);
  }
out:
  return status;
}

static bool is_placed(const treadle_plan *plan, int64_t source) {
  return source < 0 || source == plan->rank || (plan->placed && plan->placed[source]);
}

treadle_status treadle_plan_check_placed(const treadle_plan *plan) {
  int64_t missing = -1;
  for (int back = 0; back < 2 && plan->alias; back++) {
    const treadle_direction *direction = back ? &plan->back : &plan->forward;
    for (size_t i = 0; i < direction->ops.count; i++) {
      const treadle_op *op = &direction->ops.items[i];
      if (reads_arranged(op, back) && !is_placed(plan, op->source)) missing = op->source;
    }
  }
  for (size_t i = 0; plan->alias && i < plan->back.block_row_parts.count; i++)
    if (!is_placed(plan, plan->back.block_row_parts.items[i].op.source))
      missing = plan->back.block_row_parts.items[i].op.source;
  if (missing < 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "plan: rank %" PRId64 ": the way back, or a relay, reads rank %" PRId64
                      ", which has not said how its window is arranged",
                      plan->rank, missing);
}

/* ---- Coverage ---- */

static uint64_t mark_of(const treadle_alias_run *run, bool back) {
  return treadle_hash_more(treadle_mix64((uint64_t)(back ? run->from : run->to)), (uint64_t)run->bytes);
}

uint64_t treadle_alias_coverage(const treadle_arrangement *arrangement, bool back) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < arrangement->run_count; i++) sum += mark_of(&arrangement->runs[i], back);
  return sum;
}

treadle_status treadle_alias_mark(const treadle_plan *plan, bool back, const int32_t *from_page,
                                  const int32_t *to_page, uint64_t *coverage, int64_t *bytes) {
  const treadle_arrangement *a = &plan->arrangement;
  if (back && plan->keep_params) return TREADLE_OK; /* there is nothing to cover */
  for (int64_t i = 0; i < a->run_count; i++) {
    const treadle_alias_run *run = &a->runs[i];
    int64_t y = run->to / plan->page_bytes, z = run->from / plan->page_bytes;
    for (int64_t k = 0; k < run->bytes / plan->page_bytes; k++)
      if (to_page[y + k] != from_page[z + k])
        return treadle_fail(
            TREADLE_DIFFERENT,
            "alias: rank %" PRId64 ": page %" PRId64 " of the window of '%s' lies on page %d, "
            "and page %" PRId64 " of the window of '%s', which it is, on page %d",
            plan->rank, y + k, plan->to->text, to_page[y + k], z + k, plan->from->text, from_page[z + k]);
  }
  for (int64_t i = 0; i < a->run_count; i++) {
    *coverage += mark_of(&a->runs[i], back);
    *bytes += a->runs[i].bytes;
  }
  return TREADLE_OK;
}

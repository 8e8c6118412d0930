#include "switch/undo.h"

#include "base/alloc.h"
#include "layout/layout.h"
#include "memory/books.h"
#include "memory/host.h"

/* ---- What is kept ---- */

static treadle_status list_parts(const treadle_layout *layout, const treadle_carry *c, treadle_undo *undo) {
  treadle_status status = TREADLE_OK;
  const int rank = c->group->rank;
  const int32_t storages = treadle_layout_storage_count(layout, rank);
  undo->parts = treadle_alloc_array((size_t)storages + 1, sizeof *undo->parts);
  if (!undo->parts) return treadle_memory_is_out();
  for (int32_t i = 0; i < storages; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_layout_storage(layout, rank, i, &info));
    const int64_t offset = (int64_t)info.offset_bytes;
    const bool own = treadle_own_find(&c->own.spans[TREADLE_SIDE_INFER], offset) != NULL;
    if (info.bytes == 0) continue;
    undo->parts[undo->count++] = (treadle_undo_part){offset, (int64_t)info.bytes, own};
    *(own ? &undo->own_bytes : &undo->other_bytes) += info.bytes;
  }
out:
  return status;
}

treadle_status treadle_undo_take(const treadle_terms *terms, const treadle_layout *infer,
                                 const treadle_carry *c, treadle_undo *undo) {
  treadle_status status = TREADLE_OK;
  const size_t given = terms->options.undo_bytes;
  const int rank = c->group->rank;
  if (given == 0 || undo->parts) return TREADLE_OK;
  if (terms->options.double_infer || terms->options.alias)
    return treadle_fail(TREADLE_REFUSED, "switch: rank %d: undo_bytes is %zu, and with %s: leave out one",
                        rank, given,
                        terms->options.double_infer ? "double_infer the old version stays as it is"
                                                    : "alias both windows share pages");
  TRY(list_parts(infer, c, undo));
  if (given < undo->own_bytes)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "switch: rank %d: undo_bytes is %zu, and its own infer tensors have %zu bytes: give as "
        "many, or 0",
        rank, given, undo->own_bytes));
  /* Where params leave there are no updates. */
  undo->whole = !terms->leaves[TREADLE_PARAMS] && given - undo->own_bytes >= undo->other_bytes;
  undo->bytes = undo->own_bytes + (undo->whole ? undo->other_bytes : 0);
  if (undo->bytes == 0 && undo->other_bytes > 0)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "switch: rank %d: undo_bytes is %zu, and would keep nothing: there are no own infer "
                     "tensors, and the %zu bytes of the infer window are kept whole, in updates alone, for "
                     "which params stay",
                     rank, given, undo->other_bytes));
out:
  return status;
}

treadle_status treadle_undo_create(const treadle_carry *c, treadle_undo *undo) {
  if (undo->bytes == 0) return TREADLE_OK;
  undo->kept = treadle_host_pinned(c->device, undo->bytes, "what an arrow overwrites");
  if (!undo->kept) return TREADLE_NO_MEMORY;
  c->figures->host_bytes += undo->bytes;
  return TREADLE_OK;
}

void treadle_undo_release(const treadle_carry *c, treadle_undo *undo) {
  if (undo->kept) treadle_host_unpinned(c->device, undo->kept, undo->bytes);
  treadle_free(undo->parts);
  *undo = (treadle_undo){0};
}

/* ---- There and back ---- */

enum { AT_ONCE = 64 << 20 }; /* bytes, until somebody looks whether the arrow is cancelled */

typedef struct mover {
  const treadle_carry *c;
  bool back;
  char *kept;
  int64_t left; /* bytes until the next look */
} mover;

static treadle_status look(mover *m) {
  treadle_status status = TREADLE_OK;
  m->left = AT_ONCE;
  if (!m->back) TRY(treadle_carry_look(m->c));
  TRY(m->c->device->ops->fence(m->c->device));
out:
  return status;
}

/* The bytes of a part, from its window or back to it. */
static treadle_status move(mover *m, const treadle_undo_part *part) {
  treadle_status status = TREADLE_OK;
  const treadle_device *device = m->c->device;
  const treadle_paged view = treadle_own_view(m->c, TREADLE_SIDE_INFER, part->offset);
  for (int64_t at = part->offset, end = at + part->bytes, bytes; at < end; at += bytes) {
    if (m->left == 0) TRY(look(m));
    bytes = treadle_paged_extent(&view, at, end - at < m->left ? end - at : m->left);
    char *there = treadle_paged_into(&view, at);
    device->ops->move(device, m->back ? there : m->kept, m->back ? m->kept : there, (size_t)bytes);
    m->kept += bytes;
    m->left -= bytes;
  }
out:
  return status;
}

static treadle_status move_all(const treadle_carry *c, bool back, const treadle_undo *undo) {
  treadle_status status = TREADLE_OK;
  mover m = {.c = c, .back = back, .kept = undo->kept, .left = AT_ONCE};
  for (size_t i = 0; i < undo->count; i++)
    if (undo->parts[i].own || undo->has_rest) TRY(move(&m, &undo->parts[i]));
  TRY(c->device->ops->fence(c->device));
out:
  return status;
}

treadle_status treadle_undo_keep(const treadle_carry *c, bool rest, treadle_undo *undo) {
  treadle_status status = TREADLE_OK;
  if (!undo->kept) return TREADLE_OK;
  undo->has_rest = rest && undo->whole;
  TRY(move_all(c, false, undo));
  undo->has = true;
out:
  return status;
}

treadle_status treadle_undo_give_back(const treadle_carry *c, treadle_undo *undo) {
  const bool has = undo->has;
  undo->has = false;
  return has ? move_all(c, true, undo) : TREADLE_OK;
}

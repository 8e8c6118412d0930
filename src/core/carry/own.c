/* Own tensors, as the waves read and write them: an op touches one storage tensor on each side (treadle_own_split), so it is given a view of
 * that one: flat memory, which begins as far before the tensor as the tensor lies after the start of its window. Where the other side is on
 * another node, an op is one half of it, and may touch several: it is carried out in parts. */
#include "carry/carry_parts.h"

/* The start of its window, if that were one piece of memory with the tensor; only what lies in the tensor may be touched. */
static char *base_of(const treadle_own_span *span) {
  uintptr_t begin = (uintptr_t)span->memory - (uintptr_t)span->offset;
  return (char *)begin;
}

treadle_paged treadle_own_view(const treadle_carry *c, treadle_side side, int64_t at) {
  const treadle_own_span *span = treadle_own_find(&c->own.spans[side], at);
  return span ? treadle_paged_of(base_of(span)) : c->views[side][c->group->rank];
}

typedef struct half { /* of an op: a window of this rank, and other memory */
  const treadle_carry *c;
  treadle_copies *copies;
  treadle_side side;
  const treadle_paged *other;
} half;

static void copy_from(void *context, const treadle_op *part) {
  const half *h = context;
  const treadle_paged from = treadle_own_view(h->c, h->side, part->from);
  treadle_copies_add(h->c, h->copies, part, &from, h->other);
}

static void copy_into(void *context, const treadle_op *part) {
  const half *h = context;
  const treadle_paged into = treadle_own_view(h->c, h->side, part->to);
  treadle_copies_add(h->c, h->copies, part, h->other, &into);
}

void treadle_own_copy_from(const treadle_carry *c, treadle_copies *copies, treadle_side side,
                           const treadle_op *op, const treadle_paged *into) {
  treadle_own_parts_read(op, &c->own.spans[side], copy_from, &(half){c, copies, side, into});
}

void treadle_own_copy_into(const treadle_carry *c, treadle_copies *copies, treadle_side side,
                           const treadle_op *op, const treadle_paged *from) {
  treadle_own_parts_written(op, &c->own.spans[side], copy_into, &(half){c, copies, side, from});
}

/* ---- Pinned ---- */

treadle_status treadle_own_pin(const treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  for (int side = 0; side < 2; side++)
    for (size_t i = 0; i < c->own.spans[side].count; i++) {
      const treadle_own_span *span = &c->own.spans[side].items[i];
      if (treadle_device_is_host(treadle_device_at(span->memory)))
        TRY(c->device->ops->pin(c->device, span->memory, (size_t)span->bytes));
    }
out:
  return status;
}

void treadle_own_unpin(const treadle_carry *c) {
  for (int side = 0; side < 2; side++)
    for (size_t i = 0; i < c->own.spans[side].count; i++)
      c->device->ops->unpin(c->device, c->own.spans[side].items[i].memory);
}

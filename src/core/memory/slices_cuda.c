#include "memory/slices_cuda.h"

#include "base/alloc.h"
#include "base/dtype.h"

#include <string.h>

/* Bytes of a view that an op reads or writes: from the first to behind the last. */
static void reach(const treadle_op *op, bool written, int64_t *first_p, int64_t *end_p) {
  const int64_t *stride = written ? op->to_stride : op->from_stride;
  *first_p = written ? op->to : op->from;
  *end_p =
      *first_p + (int64_t)treadle_dtype_bytes((treadle_dtype)(written ? op->to_dtype : op->from_dtype));
  for (int d = 0; d < op->ndim; d++) *(stride[d] < 0 ? first_p : end_p) += (op->size[d] - 1) * stride[d];
}

static treadle_cuda_slice *find_slice(const treadle_cuda_slices *s, const int32_t *table) {
  for (size_t i = s->count; i-- > 0;)
    if (s->items[i].table == table) return &s->items[i];
  return NULL;
}

static bool add_slice(treadle_cuda_slices *s, const int32_t *table, int64_t first, int64_t end) {
  treadle_cuda_slice *found = find_slice(s, table);
  if (found) {
    found->first = first < found->first ? first : found->first;
    found->end = end > found->end ? end : found->end;
    return true;
  }
  if (s->count == s->capacity) {
    const size_t capacity = 2 * s->capacity + 8;
    treadle_cuda_slice *grown = treadle_realloc(s->items, capacity * sizeof *grown);
    if (!grown) return false;
    s->items = grown;
    s->capacity = capacity;
  }
  s->items[s->count++] =
      (treadle_cuda_slice){table, first, end, sizeof(int32_t)}; /* cut as it will be: with a table */
  return true;
}

static bool add_view(treadle_cuda_slices *s, const treadle_op *op, const treadle_paged *view,
                     bool written) {
  int64_t first, end;
  if (!view->table || op->elems == 0) return true;
  reach(op, written, &first, &end);
  return add_slice(s, view->table, first >> view->page_shift, ((end - 1) >> view->page_shift) + 1);
}

bool treadle_cuda_slices_add(treadle_cuda_slices *s, const treadle_op *op, const treadle_paged *from,
                             const treadle_paged *to) {
  return add_view(s, op, to, true) && (op->source < 0 || add_view(s, op, from, false));
}

size_t treadle_cuda_slices_bytes(const treadle_cuda_slices *s) {
  size_t sum = 0;
  for (size_t i = 0; i < s->count; i++)
    sum += (size_t)(s->items[i].end - s->items[i].first) * sizeof(int32_t);
  return sum;
}

void treadle_cuda_slices_put(treadle_cuda_slices *s, char *to, uint64_t address) {
  for (size_t i = 0; i < s->count; i++) {
    treadle_cuda_slice *one = &s->items[i];
    const size_t bytes = (size_t)(one->end - one->first) * sizeof(int32_t);
    memcpy(to, one->table + one->first, bytes);
    one->at = address - (uint64_t)one->first * sizeof(int32_t);
    to += bytes;
    address += bytes;
  }
}

static treadle_cuda_view view_of(const treadle_cuda_slices *s, const treadle_paged *view) {
  return (treadle_cuda_view){.base = (uintptr_t)view->base,
                             .table = view->table ? find_slice(s, view->table)->at : 0,
                             .page_shift = view->page_shift};
}

static int cut_op(const treadle_cuda_slices *s, const treadle_op *op, const treadle_paged *from,
                  const treadle_paged *to, treadle_cuda_box *boxes) {
  const bool fills = op->source < 0;
  if (!to->base || (!fills && !from->base) || op->elems == 0) return 0;
  const treadle_cuda_view into = view_of(s, to), source = fills ? into : view_of(s, from);
  return treadle_cuda_cut(op, fills ? NULL : &source, &into, boxes);
}

void treadle_cuda_cut_ops(const treadle_cuda_slices *s, const treadle_op *ops, const treadle_paged *from,
                          const treadle_paged *to, size_t count, treadle_cuda_cuts *cuts) {
  treadle_cuda_box room[TREADLE_CUDA_BOXES];
  cuts->box_count = cuts->item_count = 0;
  for (size_t i = 0; i < count; i++) {
    const int made = cut_op(s, &ops[i], ops[i].source < 0 ? NULL : &from[i], &to[i], room);
    if (cuts->item_first) cuts->item_first[i] = cuts->item_count;
    for (int b = 0; b < made; b++) {
      const int64_t all = treadle_cuda_item_count(&room[b]);
      for (int64_t k = 0; cuts->items && k < all; k++)
        cuts->items[cuts->item_count + k] = treadle_cuda_item_of(&room[b], (uint32_t)cuts->box_count, k);
      if (cuts->boxes) cuts->boxes[cuts->box_count] = room[b];
      cuts->item_count += all;
      cuts->box_count++;
    }
  }
  if (cuts->item_first) cuts->item_first[count] = cuts->item_count;
}

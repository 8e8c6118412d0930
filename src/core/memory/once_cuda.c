/* Ops that a CUDA device is asked for once. Their boxes, items and page tables are put into the room, which the kernels read where it is. */
#include "memory/slices_cuda.h"
#include "memory/state_cuda.h"

#include "base/dtype.h"
#include "memory/copy.h"

enum { ITEMS_AT_ONCE = 64 << 10 };

/* A part of an op's items, with all of its boxes and tables, in the room. */
static void copy_some(treadle_cuda *cuda, treadle_cuda_slices *s, const treadle_op *op,
                      const treadle_paged *from, const treadle_paged *to, int64_t skip, int64_t count) {
  treadle_cuda_box *boxes;
  const size_t box_bytes = TREADLE_CUDA_BOXES * sizeof *boxes,
               item_bytes = (size_t)count * sizeof(treadle_cuda_item);
  char *room = treadle_cuda_room(cuda, box_bytes + item_bytes + treadle_cuda_slices_bytes(s));
  treadle_cuda_item *items = (treadle_cuda_item *)(void *)(room + box_bytes);
  boxes = (treadle_cuda_box *)(void *)room;
  treadle_cuda_slices_put(s, room + box_bytes + item_bytes, (uintptr_t)room + box_bytes + item_bytes);
  const int made = treadle_cuda_cut_op(s, op, from, to, boxes);
  int64_t at = 0, put = 0;
  for (int b = 0; b < made; b++)
    for (int64_t k = 0, all = treadle_cuda_item_count(&boxes[b]); k < all; k++, at++)
      if (at >= skip && put < count) items[put++] = treadle_cuda_item_of(&boxes[b], (uint32_t)b, k);
  treadle_cuda_copy_args args = {
      .boxes = (uintptr_t)boxes, .items = (uintptr_t)items, .count = (uint32_t)put};
  treadle_cuda_launch(cuda, cuda->copy, put < cuda->blocks_at_once ? (unsigned)put : cuda->blocks_at_once,
                      &args);
}

static int64_t items_of(const treadle_cuda_slices *s, const treadle_op *op, const treadle_paged *from,
                        const treadle_paged *to) {
  treadle_cuda_box boxes[TREADLE_CUDA_BOXES];
  int64_t sum = 0;
  const int made = treadle_cuda_cut_op(s, op, from, to, boxes);
  for (int b = 0; b < made; b++) sum += treadle_cuda_item_count(&boxes[b]);
  return sum;
}

/* All of what is read lies where the device reads. */
static void copy_here(treadle_cuda *cuda, const treadle_op *op, const treadle_paged *from,
                      const treadle_paged *to) {
  treadle_cuda_slice two[2];
  treadle_cuda_slices s = {.items = two, .capacity = 2};
  (void)treadle_cuda_slices_add(&s, op, to, true);
  if (from) (void)treadle_cuda_slices_add(&s, op, from, false);
  if (treadle_cuda_slices_bytes(&s) > TREADLE_CUDA_ROOM / 2) {
    treadle_cuda_keep_text(cuda, "a copy over %zu pages, which are too many at once",
                           treadle_cuda_slices_bytes(&s) / sizeof(int32_t));
    return;
  }
  const int64_t items = items_of(&s, op, from, to);
  for (int64_t skip = 0; skip < items; skip += ITEMS_AT_ONCE)
    copy_some(cuda, &s, op, from, to, skip, items - skip < ITEMS_AT_ONCE ? items - skip : ITEMS_AT_ONCE);
}

/* ---- Ops that read memory which is not pinned: by the processor, a part at a time ---- */

enum { PART_BYTES = 1 << 20 };

/* A part is dense in the room, in the destination's type. */
static void copy_part(treadle_cuda *cuda, const treadle_op *part, const treadle_paged *from,
                      const treadle_paged *to) {
  treadle_op in = *part, out = *part;
  int64_t bytes = (int64_t)treadle_dtype_bytes((treadle_dtype)part->to_dtype);
  for (int d = part->ndim - 1; d >= 0; d--) {
    in.to_stride[d] = out.from_stride[d] = bytes;
    bytes *= part->size[d];
  }
  in.to = out.from = 0;
  out.from_dtype = out.to_dtype;
  out.add = 0;
  treadle_cuda_make_room(cuda, TREADLE_CUDA_ROOM);
  const treadle_paged room = treadle_paged_of(treadle_cuda_room(cuda, (size_t)bytes));
  treadle_copy_op(&in, from, &room, treadle_copy_choose());
  treadle_copy_fence();
  copy_here(cuda, &out, &room, to);
}

/* Axes before `axis` are walked one by one, and that one by `step`. */
static void copy_parts(treadle_cuda *cuda, const treadle_op *op, int axis, int64_t step,
                       const treadle_paged *from, const treadle_paged *to) {
  int64_t at[TREADLE_MAX_AXES + 1] = {0};
  for (;;) {
    treadle_op part = *op;
    part.elems = 1;
    for (int d = 0; d < op->ndim; d++) {
      if (d <= axis) {
        const int64_t left = op->size[d] - at[d], most = d == axis ? step : 1;
        part.size[d] = left < most ? left : most;
        part.from += at[d] * op->from_stride[d];
        part.to += at[d] * op->to_stride[d];
      }
      part.elems *= part.size[d];
    }
    copy_part(cuda, &part, from, to);
    int d = axis;
    for (; d >= 0; d--) {
      at[d] += d == axis ? step : 1;
      if (at[d] < op->size[d]) break;
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

static void copy_from_host(treadle_cuda *cuda, const treadle_op *op, const treadle_paged *from,
                           const treadle_paged *to) {
  int64_t bytes = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  int axis = op->ndim - 1;
  for (; axis > 0 && bytes * op->size[axis] <= PART_BYTES; axis--) bytes *= op->size[axis];
  const int64_t step = bytes < PART_BYTES ? PART_BYTES / bytes : 1;
  copy_parts(cuda, op, axis, step, from, to);
}

static bool is_readable(treadle_cuda *cuda, const treadle_op *op, const treadle_paged *from) {
  int kind;
  return treadle_cuda_ask_pointer(cuda, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  treadle_paged_address(from, op->from), &kind);
}

void treadle_cuda_copy(const treadle_device *device, const treadle_op *op, const treadle_paged *from,
                       const treadle_paged *to) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  if (op->elems == 0) return;
  treadle_cuda_enter(cuda);
  if (!cuda->failed) {
    if (!from || is_readable(cuda, op, from))
      copy_here(cuda, op, from, to);
    else if (!cuda->failed)
      copy_from_host(cuda, op, from, to);
  }
  treadle_cuda_leave(cuda);
}

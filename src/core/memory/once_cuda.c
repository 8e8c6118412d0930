/* Ops that a CUDA device is asked for once. Their boxes, items and page tables are put into the room, which the kernels read where it is. */
#include "memory/slices_cuda.h"
#include "memory/state_cuda.h"

#include "base/dtype.h"
#include "memory/copy.h"

enum { ITEMS_AT_ONCE = 64 << 10, SLICES_AT_ONCE = 32 };

/* Ops of which all that is read lies where the device reads. */
typedef struct batch {
  const treadle_op *ops;
  const treadle_paged *from, *to;
  size_t count;
  treadle_cuda_slice room[SLICES_AT_ONCE];
  treadle_cuda_slices slices;
  treadle_cuda_cuts cuts;
} batch;

static bool fits(const batch *b) {
  const size_t bytes = (size_t)b->cuts.box_count * sizeof(treadle_cuda_box) +
                       (size_t)b->cuts.item_count * sizeof(treadle_cuda_item) +
                       treadle_cuda_slices_bytes(&b->slices);
  return b->cuts.item_count <= ITEMS_AT_ONCE && bytes <= TREADLE_CUDA_ROOM / 2;
}

/* Takes the next op, too. False: there is no room for it beside the others. */
static bool add(batch *b) {
  const batch before = *b;
  const size_t i = b->count;
  const treadle_paged *from = b->from ? &b->from[i] : NULL;
  if (b->slices.count + 2 > SLICES_AT_ONCE) return false;
  b->slices.items = b->room;
  b->slices.capacity = SLICES_AT_ONCE;
  (void)treadle_cuda_slices_add(&b->slices, &b->ops[i], from, &b->to[i]);
  treadle_cuda_cuts more = {0};
  treadle_cuda_cut_ops(&b->slices, &b->ops[i], from, &b->to[i], 1, &more);
  b->cuts.box_count += more.box_count;
  b->cuts.item_count += more.item_count;
  b->count++;
  if (b->count == 1 || fits(b)) return true;
  *b = before;
  return false;
}

/* Some of its items, with all of its boxes and tables, in the room. */
static void launch_some(treadle_cuda *cuda, batch *b, int64_t skip, int64_t count) {
  const size_t box_bytes = (size_t)b->cuts.box_count * sizeof(treadle_cuda_box),
               item_bytes = (size_t)count * sizeof(treadle_cuda_item);
  char *room = treadle_cuda_room(cuda, box_bytes + item_bytes + treadle_cuda_slices_bytes(&b->slices));
  char *tables = room + box_bytes + item_bytes;
  treadle_cuda_box *boxes = (treadle_cuda_box *)(void *)room;
  treadle_cuda_item *items = (treadle_cuda_item *)(void *)(room + box_bytes);
  treadle_cuda_slices_put(&b->slices, tables, (uintptr_t)tables);
  treadle_cuda_cut_ops(&b->slices, b->ops, b->from, b->to, b->count, &(treadle_cuda_cuts){.boxes = boxes});
  int64_t at = 0, put = 0;
  for (int64_t i = 0; i < b->cuts.box_count; i++)
    for (int64_t k = 0, all = treadle_cuda_item_count(&boxes[i]); k < all; k++, at++)
      if (at >= skip && put < count) items[put++] = treadle_cuda_item_of(&boxes[i], (uint32_t)i, k);
  treadle_cuda_copy_args args = {
      .boxes = (uintptr_t)boxes, .items = (uintptr_t)items, .count = (uint32_t)put};
  treadle_cuda_launch(cuda, cuda->copy, put, &args);
}

static void launch(treadle_cuda *cuda, batch *b) {
  const int64_t items = b->cuts.item_count;
  if (treadle_cuda_slices_bytes(&b->slices) > TREADLE_CUDA_ROOM / 2)
    treadle_cuda_keep_text(cuda, "a copy over %zu pages, which are too many at once",
                           treadle_cuda_slices_bytes(&b->slices) / sizeof(int32_t));
  for (int64_t skip = 0; skip < items && !cuda->failed; skip += ITEMS_AT_ONCE)
    launch_some(cuda, b, skip, items - skip < ITEMS_AT_ONCE ? items - skip : ITEMS_AT_ONCE);
}

static void copy_here(treadle_cuda *cuda, const treadle_op *ops, const treadle_paged *from,
                      const treadle_paged *to, size_t count) {
  for (size_t done = 0; done < count;) {
    batch b = {.ops = ops + done, .from = from ? from + done : NULL, .to = to + done};
    while (done + b.count < count && add(&b)) continue;
    launch(cuda, &b);
    done += b.count;
  }
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
  copy_here(cuda, &out, &room, to, 1);
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

/* Does the device read it where it lies? What the driver does not know is the host's, or it was freed. */
static bool is_readable(treadle_cuda *cuda, const treadle_op *op, const treadle_paged *from) {
  int kind;
  const treadle_device *host = treadle_device_host();
  const void *at = treadle_paged_address(from, op->from);
  if (treadle_cuda_ask_pointer(cuda, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at, &kind)) return true;
  const char *fault = cuda->failed ? NULL : host->ops->fault(host, at, 1, NULL);
  if (fault) treadle_cuda_keep_text(cuda, "a copy from memory that the driver does not know: %s", fault);
  return false;
}

void treadle_cuda_copy(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                       const treadle_paged *to, size_t count) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  size_t here = 0; /* ops before the one at hand that are still to be asked for */
  treadle_cuda_enter(cuda);
  for (size_t i = 0; i < count && !cuda->failed; i++) {
    here++;
    if (ops[i].source < 0 || ops[i].elems == 0 || is_readable(cuda, &ops[i], &from[i]) || cuda->failed)
      continue;
    copy_here(cuda, ops + i + 1 - here, from + i + 1 - here, to + i + 1 - here, here - 1);
    here = 0;
    copy_from_host(cuda, &ops[i], &from[i], &to[i]);
  }
  if (!cuda->failed && here > 0)
    copy_here(cuda, ops + count - here, from ? from + count - here : NULL, to + count - here, here);
  treadle_cuda_leave(cuda);
}

/* Work for the kernels of a CUDA device. Ops that run again and again have their boxes, items and page tables on the device, and their counts in
 * pinned memory. What is asked for once is put into the room, which the kernels read where it is. */
#include "memory/state_cuda.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "memory/copy.h"
#include "memory/cut_cuda.h"
#include "memory/host.h"

#include <assert.h>
#include <string.h>

/* ---- Page tables ---- */

/* A part of a page table of the host, and its copy that the device reads. */
typedef struct slice {
  const int32_t *table;
  int64_t first, end; /* entries */
  uint64_t at;        /* of what would be entry 0 of the copy */
} slice;

typedef struct slices {
  slice *items;
  size_t count, capacity;
} slices;

/* Bytes of a view that an op reads or writes: from the first to behind the last. */
static void reach(const treadle_op *op, bool written, int64_t *first_p, int64_t *end_p) {
  const int64_t *stride = written ? op->to_stride : op->from_stride;
  *first_p = written ? op->to : op->from;
  *end_p =
      *first_p + (int64_t)treadle_dtype_bytes((treadle_dtype)(written ? op->to_dtype : op->from_dtype));
  for (int d = 0; d < op->ndim; d++) *(stride[d] < 0 ? first_p : end_p) += (op->size[d] - 1) * stride[d];
}

static slice *find_slice(const slices *s, const int32_t *table) {
  for (size_t i = s->count; i-- > 0;)
    if (s->items[i].table == table) return &s->items[i];
  return NULL;
}

static bool add_slice(slices *s, const int32_t *table, int64_t first, int64_t end) {
  slice *found = find_slice(s, table);
  if (found) {
    found->first = first < found->first ? first : found->first;
    found->end = end > found->end ? end : found->end;
    return true;
  }
  if (s->count == s->capacity) {
    const size_t capacity = 2 * s->capacity + 8;
    slice *grown = treadle_realloc(s->items, capacity * sizeof *grown);
    if (!grown) return false;
    s->items = grown;
    s->capacity = capacity;
  }
  s->items[s->count++] = (slice){table, first, end, 0};
  return true;
}

static bool add_view(slices *s, const treadle_op *op, const treadle_paged *view, bool written) {
  int64_t first, end;
  if (!view->table || op->elems == 0) return true;
  reach(op, written, &first, &end);
  return add_slice(s, view->table, first >> view->page_shift, ((end - 1) >> view->page_shift) + 1);
}

static size_t slices_bytes(const slices *s) {
  size_t sum = 0;
  for (size_t i = 0; i < s->count; i++)
    sum += (size_t)(s->items[i].end - s->items[i].first) * sizeof(int32_t);
  return sum;
}

/* To memory of the host that the device has at `address`. */
static void put_slices(slices *s, char *to, uint64_t address) {
  for (size_t i = 0; i < s->count; i++) {
    slice *one = &s->items[i];
    const size_t bytes = (size_t)(one->end - one->first) * sizeof(int32_t);
    memcpy(to, one->table + one->first, bytes);
    one->at = address - (uint64_t)one->first * sizeof(int32_t);
    to += bytes;
    address += bytes;
  }
}

static treadle_cuda_view view_of(const slices *s, const treadle_paged *view) {
  return (treadle_cuda_view){.base = (uintptr_t)view->base,
                             .table = view->table ? find_slice(s, view->table)->at : 0,
                             .page_shift = view->page_shift};
}

/* An op as boxes; from NULL: a fill. */
static int cut(const slices *s, const treadle_op *op, const treadle_paged *from, const treadle_paged *to,
               treadle_cuda_box *boxes) {
  const treadle_cuda_view into = view_of(s, to), source = from ? view_of(s, from) : into;
  return op->elems == 0 ? 0 : treadle_cuda_cut(op, from ? &source : NULL, &into, boxes);
}

/* ---- Ops that run again and again ---- */

struct treadle_work {
  treadle_cuda *cuda;
  const treadle_op *ops;
  size_t count;
  int64_t *item_first; /* [count + 1] by op */
  CUdeviceptr memory;  /* boxes, items, page tables; 0: there are none */
  size_t bytes;
  uint64_t boxes, items;
  treadle_cuda_count *counts; /* pinned, by item */
  size_t counts_bytes;
};

/* All of it on the host, before it goes to the device. */
typedef struct draft {
  slices slices;
  treadle_cuda_box *boxes;
  treadle_cuda_item *items;
  int64_t box_count, item_count;
  char *image;
  size_t bytes;
} draft;

static bool is_run(const treadle_op *op, const treadle_paged *from, const treadle_paged *to) {
  return to->base && (op->source < 0 || from->base) && op->elems > 0;
}

static treadle_status collect_slices(draft *d, const treadle_op *ops, const treadle_paged *from,
                                     const treadle_paged *to, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (is_run(&ops[i], &from[i], &to[i]) &&
        !(add_view(&d->slices, &ops[i], &to[i], true) &&
          (ops[i].source < 0 || add_view(&d->slices, &ops[i], &from[i], false))))
      return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  return TREADLE_OK;
}

/* The boxes of all ops, one after another, and the numbers of items before each op. With NULL boxes they are only counted. */
static void cut_all(draft *d, treadle_work *work, const treadle_paged *from, const treadle_paged *to) {
  treadle_cuda_box room[TREADLE_CUDA_BOXES];
  int64_t boxes = 0, items = 0;
  for (size_t i = 0; i < work->count; i++) {
    const treadle_op *op = &work->ops[i];
    const int made = is_run(op, &from[i], &to[i])
                         ? cut(&d->slices, op, op->source < 0 ? NULL : &from[i], &to[i], room)
                         : 0;
    work->item_first[i] = items;
    for (int b = 0; b < made; b++) {
      const int64_t count = treadle_cuda_item_count(&room[b]);
      for (int64_t k = 0; d->boxes && k < count; k++)
        d->items[items + k] = treadle_cuda_item_of(&room[b], (uint32_t)(boxes + b), k);
      items += count;
      if (d->boxes) d->boxes[boxes + b] = room[b];
    }
    boxes += made;
  }
  work->item_first[work->count] = items;
  d->box_count = boxes;
  d->item_count = items;
}

/* Boxes, items and tables as they will lie on the device from `at` on; at 0: how long they are. */
static treadle_status lay_out(draft *d, treadle_work *work, const treadle_paged *from,
                              const treadle_paged *to) {
  cut_all(d, work, from, to);
  const size_t boxes = (size_t)d->box_count * sizeof *d->boxes,
               items = (size_t)d->item_count * sizeof *d->items;
  d->bytes = boxes + items + slices_bytes(&d->slices);
  d->image = d->bytes ? treadle_alloc(d->bytes) : NULL;
  if (d->bytes && !d->image) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  return TREADLE_OK;
}

static treadle_status upload(draft *d, treadle_work *work, const treadle_paged *from,
                             const treadle_paged *to) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = work->cuda;
  TRY(treadle_cuda_say(cuda));
  CUDA_TRY(cuda, "cuMemAlloc", cuda->driver->alloc(&work->memory, d->bytes));
  work->bytes = d->bytes;
  cuda->figures.table_bytes += d->bytes;
  const size_t boxes = (size_t)d->box_count * sizeof *d->boxes,
               items = (size_t)d->item_count * sizeof *d->items;
  work->boxes = work->memory;
  work->items = work->memory + boxes;
  d->boxes = (treadle_cuda_box *)(void *)d->image;
  d->items = (treadle_cuda_item *)(void *)(d->image + boxes);
  put_slices(&d->slices, d->image + boxes + items, work->memory + boxes + items);
  cut_all(d, work, from, to);
  CUDA_TRY(cuda, "cuMemcpyAsync",
           cuda->driver->copy(work->memory, (uintptr_t)d->image, d->bytes, cuda->stream));
  TRY(treadle_cuda_fence(cuda));
  work->counts_bytes = (size_t)d->item_count * sizeof *work->counts;
  work->counts = treadle_host_create(work->counts_bytes, "the counts of copies");
  if (!work->counts) TRY(TREADLE_NO_MEMORY);
  CUDA_TRY(cuda, "cuMemHostRegister",
           cuda->driver->host_register(work->counts, work->counts_bytes,
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
out:
  return status;
}

treadle_status treadle_cuda_prepare(const treadle_device *device, const treadle_op *ops,
                                    const treadle_paged *from, const treadle_paged *to, size_t count,
                                    treadle_work **work_p) {
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  draft d = {0};
  treadle_work *work = *work_p = treadle_alloc(sizeof *work);
  if (!work) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  *work = (treadle_work){.cuda = cuda, .ops = ops, .count = count};
  work->item_first = treadle_alloc_array(count + 1, sizeof *work->item_first);
  if (!work->item_first) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out"));
  TRY(collect_slices(&d, ops, from, to, count));
  TRY(lay_out(&d, work, from, to));
  if (d.bytes == 0) goto out;
  treadle_cuda_enter(cuda);
  status = upload(&d, work, from, to);
  treadle_cuda_leave(cuda);
out:
  treadle_free(d.image);
  treadle_free(d.slices.items);
  if (status != TREADLE_OK) {
    treadle_cuda_work_release(work);
    *work_p = NULL;
  }
  return status;
}

void treadle_cuda_work_release(treadle_work *work) {
  if (!work) return;
  treadle_cuda *cuda = work->cuda;
  treadle_cuda_enter(cuda);
  (void)treadle_cuda_fence(cuda); /* its runs are noted, even those that had nothing to do */
  if (work->counts) cuda->driver->host_unregister(work->counts);
  if (work->memory) cuda->driver->alloc_free(work->memory);
  cuda->figures.table_bytes -= work->bytes;
  treadle_cuda_leave(cuda);
  treadle_host_destroy(work->counts, work->counts_bytes);
  treadle_free(work->item_first);
  treadle_free(work);
}

static void note_run(treadle_cuda *cuda, const treadle_work *work, size_t first, size_t count,
                     treadle_written *written) {
  bool waits = cuda->run_count == TREADLE_CUDA_RUNS;
  for (int i = 0; i < cuda->run_count && !waits; i++)
    waits = treadle_cuda_run_overlaps(&cuda->runs[i], work, first, count);
  if (waits) (void)treadle_cuda_fence(cuda);
  cuda->runs[cuda->run_count++] = (treadle_cuda_run){work, first, count, written, cuda->marked + 1};
}

void treadle_cuda_run_work(const treadle_device *device, const treadle_work *work, size_t first,
                           size_t count, treadle_written *written) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  assert(first + count <= work->count && cuda == work->cuda);
  const int64_t begin = work->item_first[first], items = work->item_first[first + count] - begin;
  treadle_cuda_copy_args args = {.boxes = work->boxes,
                                 .items = work->items + (uint64_t)begin * sizeof(treadle_cuda_item),
                                 .counts = (uintptr_t)(work->counts + begin),
                                 .count = (uint32_t)items};
  treadle_cuda_enter(cuda);
  if (!cuda->failed) {
    note_run(cuda, work, first, count, written);
    if (items == 0) (void)treadle_cuda_ask(cuda);
    const unsigned blocks = items < cuda->blocks_at_once ? (unsigned)items : cuda->blocks_at_once;
    treadle_cuda_launch(cuda, cuda->copy, blocks, &args);
  }
  treadle_cuda_leave(cuda);
}

bool treadle_cuda_run_overlaps(const treadle_cuda_run *run, const treadle_work *work, size_t first,
                               size_t count) {
  return run->work == work && run->first < first + count && first < run->first + run->count;
}

void treadle_cuda_add_written(treadle_cuda_run *run) {
  const treadle_work *work = run->work;
  for (size_t i = 0; i < run->count; i++) {
    const int64_t begin = work->item_first[run->first + i], end = work->item_first[run->first + i + 1];
    treadle_written *written = &run->written[i];
    for (int64_t k = begin; k < end; k++) {
      written->bytes += (int64_t)work->counts[k].bytes;
      written->mark += work->counts[k].mark;
    }
    written->times += begin == end || work->counts[begin].bytes > 0;
    if (begin == end) written->mark += treadle_op_mark(&work->ops[run->first + i]);
    if (begin < end) memset(&work->counts[begin], 0, (size_t)(end - begin) * sizeof *work->counts);
  }
}

/* ---- Ops that are asked for once ---- */

enum { ITEMS_AT_ONCE = 64 << 10 };

/* A part of an op's items, with all of its boxes and tables, in the room. */
static void copy_some(treadle_cuda *cuda, slices *s, const treadle_op *op, const treadle_paged *from,
                      const treadle_paged *to, int64_t skip, int64_t count) {
  treadle_cuda_box *boxes;
  const size_t box_bytes = TREADLE_CUDA_BOXES * sizeof *boxes,
               item_bytes = (size_t)count * sizeof(treadle_cuda_item);
  char *room = treadle_cuda_room(cuda, box_bytes + item_bytes + slices_bytes(s));
  treadle_cuda_item *items = (treadle_cuda_item *)(void *)(room + box_bytes);
  boxes = (treadle_cuda_box *)(void *)room;
  put_slices(s, room + box_bytes + item_bytes, (uintptr_t)room + box_bytes + item_bytes);
  const int made = cut(s, op, from, to, boxes);
  int64_t at = 0, put = 0;
  for (int b = 0; b < made; b++)
    for (int64_t k = 0, all = treadle_cuda_item_count(&boxes[b]); k < all; k++, at++)
      if (at >= skip && put < count) items[put++] = treadle_cuda_item_of(&boxes[b], (uint32_t)b, k);
  treadle_cuda_copy_args args = {
      .boxes = (uintptr_t)boxes, .items = (uintptr_t)items, .count = (uint32_t)put};
  treadle_cuda_launch(cuda, cuda->copy, put < cuda->blocks_at_once ? (unsigned)put : cuda->blocks_at_once,
                      &args);
}

static int64_t items_of(const slices *s, const treadle_op *op, const treadle_paged *from,
                        const treadle_paged *to) {
  treadle_cuda_box boxes[TREADLE_CUDA_BOXES];
  int64_t sum = 0;
  const int made = cut(s, op, from, to, boxes);
  for (int b = 0; b < made; b++) sum += treadle_cuda_item_count(&boxes[b]);
  return sum;
}

/* All of what is read lies where the device reads. */
static void copy_here(treadle_cuda *cuda, const treadle_op *op, const treadle_paged *from,
                      const treadle_paged *to) {
  slice two[2];
  slices s = {.items = two, .capacity = 2};
  (void)add_view(&s, op, to, true);
  if (from) (void)add_view(&s, op, from, false);
  if (slices_bytes(&s) > TREADLE_CUDA_ROOM / 2) {
    treadle_cuda_keep_text(cuda, "a copy over %zu pages, which are too many at once",
                           slices_bytes(&s) / sizeof(int32_t));
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

/* ---- Blocks ---- */

static void run_block(const treadle_device *device, treadle_cuda_block block) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_blocks_args args = {.one = block, .count = 1};
  treadle_cuda_enter(cuda);
  treadle_cuda_launch(cuda, cuda->blocks, 1, &args);
  treadle_cuda_leave(cuda);
}

static treadle_cuda_block block_of(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                   const float *scale, int64_t rows, int64_t columns) {
  return (treadle_cuda_block){.values = (uintptr_t)values.base,
                              .codes = (uintptr_t)codes.base,
                              .scale = (uintptr_t)scale,
                              .values_row = values.row_stride,
                              .values_column = values.column_stride,
                              .codes_row = codes.row_stride,
                              .codes_column = codes.column_stride,
                              .rows = (uint32_t)rows,
                              .columns = (uint32_t)columns,
                              .dtype = (uint8_t)dtype};
}

void treadle_cuda_quantise(const treadle_device *device, treadle_matrix codes, float *scale,
                           treadle_matrix values, treadle_dtype dtype, int64_t rows, int64_t columns) {
  run_block(device, block_of(values, dtype, codes, scale, rows, columns));
}

void treadle_cuda_dequantise(const treadle_device *device, treadle_matrix values, treadle_dtype dtype,
                             treadle_matrix codes, const float *scale, int64_t rows, int64_t columns) {
  treadle_cuda_block block = block_of(values, dtype, codes, scale, rows, columns);
  block.back = 1;
  run_block(device, block);
}

/* ---- Elements ---- */

static treadle_cuda_elements elements_of(const treadle_elements *e, const void *window) {
  treadle_cuda_elements made = {.window = (uintptr_t)window,
                                .tensor = e->tensor,
                                .at = e->at,
                                .index = e->index,
                                .ndim = (uint8_t)e->ndim,
                                .dtype = (uint8_t)e->dtype,
                                .near_one = e->near_one,
                                .add = e->add};
  for (int a = 0; a < e->ndim; a++) {
    made.size[a] = e->size[a];
    made.stride[a] = e->stride[a];
    made.weight[a] = e->weight[a];
  }
  return made;
}

void treadle_cuda_generate(const treadle_device *device, const treadle_elements *elements, void *window) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_elements_args args = {.one = elements_of(elements, window), .count = 1};
  treadle_cuda_enter(cuda);
  treadle_cuda_launch(cuda, cuda->generate, cuda->blocks_at_once, &args);
  treadle_cuda_leave(cuda);
}

/* As many as have room: they and their sums. */
static treadle_status hash_some(treadle_cuda *cuda, const treadle_elements *elements,
                                const void *const *windows, size_t count, uint64_t *sums) {
  treadle_status status;
  const size_t bytes = count * sizeof(treadle_cuda_elements);
  char *room = treadle_cuda_room(cuda, bytes + count * sizeof *sums);
  treadle_cuda_elements *many = (treadle_cuda_elements *)(void *)room;
  uint64_t *made = (uint64_t *)(void *)(room + bytes);
  for (size_t i = 0; i < count; i++) many[i] = elements_of(&elements[i], windows[i]);
  memset(made, 0, count * sizeof *made);
  treadle_cuda_elements_args args = {
      .many = (uintptr_t)many, .sums = (uintptr_t)made, .count = (uint32_t)count};
  treadle_cuda_launch(cuda, cuda->hash, cuda->blocks_at_once, &args);
  TRY(treadle_cuda_fence(cuda));
  memcpy(sums, made, count * sizeof *sums);
out:
  return status;
}

treadle_status treadle_cuda_hash(const treadle_device *device, const treadle_elements *elements,
                                 const void *const *windows, size_t count, uint64_t *sums) {
  enum { AT_ONCE = 4096 };
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  TRY(treadle_cuda_say(cuda));
  for (size_t i = 0; i < count; i += AT_ONCE)
    TRY(hash_some(cuda, elements + i, windows + i, count - i < AT_ONCE ? count - i : AT_ONCE, sums + i));
out:
  treadle_cuda_leave(cuda);
  return status;
}

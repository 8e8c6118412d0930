/* Ops that run again and again on a CUDA device: their boxes, items and page tables lie on the device, and their counts in pinned memory. */
#include "memory/slices_cuda.h"
#include "memory/state_cuda.h"

#include "base/alloc.h"
#include "memory/host.h"

#include <assert.h>

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
  treadle_cuda_slices slices;
  treadle_cuda_cuts cuts;
  char *image;
  size_t bytes;
} draft;

static bool is_run(const treadle_op *op, const treadle_paged *from, const treadle_paged *to) {
  return to->base && (op->source < 0 || from->base);
}

static treadle_status collect_slices(draft *d, const treadle_op *ops, const treadle_paged *from,
                                     const treadle_paged *to, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (is_run(&ops[i], &from[i], &to[i]) &&
        !treadle_cuda_slices_add(&d->slices, &ops[i], &from[i], &to[i]))
      return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  return TREADLE_OK;
}

/* Boxes, items and tables as they will lie on the device from `at` on; at 0: how long they are. */
static treadle_status lay_out(draft *d, treadle_work *work, const treadle_paged *from,
                              const treadle_paged *to) {
  d->cuts.item_first = work->item_first;
  treadle_cuda_cut_ops(&d->slices, work->ops, from, to, work->count, &d->cuts);
  const size_t boxes = (size_t)d->cuts.box_count * sizeof(treadle_cuda_box),
               items = (size_t)d->cuts.item_count * sizeof(treadle_cuda_item);
  d->bytes = boxes + items + treadle_cuda_slices_bytes(&d->slices);
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
  const size_t boxes = (size_t)d->cuts.box_count * sizeof(treadle_cuda_box),
               items = (size_t)d->cuts.item_count * sizeof(treadle_cuda_item);
  work->boxes = work->memory;
  work->items = work->memory + boxes;
  treadle_cuda_slices_put(&d->slices, d->image + boxes + items, work->memory + boxes + items);
  d->cuts.boxes = (treadle_cuda_box *)(void *)d->image;
  d->cuts.items = (treadle_cuda_item *)(void *)(d->image + boxes);
  treadle_cuda_cut_ops(&d->slices, work->ops, from, to, work->count, &d->cuts);
  CUDA_TRY(cuda, "cuMemcpyAsync",
           cuda->driver->copy(work->memory, (uintptr_t)d->image, d->bytes, cuda->stream));
  TRY(treadle_cuda_fence(cuda));
  work->counts_bytes = (size_t)d->cuts.item_count * sizeof *work->counts;
  work->counts = treadle_host_create_alone(work->counts_bytes, "the counts of copies");
  if (!work->counts) TRY(TREADLE_NO_MEMORY);
  TRY(treadle_cuda_pin(cuda, work->counts, work->counts_bytes));
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
                                 .counts =
                                     (uintptr_t)work->counts + (uintptr_t)begin * sizeof *work->counts,
                                 .count = (uint32_t)items};
  treadle_cuda_enter(cuda);
  if (!cuda->failed) {
    note_run(cuda, work, first, count, written);
    if (items == 0) (void)treadle_cuda_ask(cuda);
    treadle_cuda_launch(cuda, cuda->copy, items, &args);
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

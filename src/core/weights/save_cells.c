/* Elements from a window to their places in the files of a saved model. A cell is a strided box of the window, and so is it in the file: one
 * op of the copy kernel, conversion included, straight into the mapped file. From a window of another device than the host blocks of it come, one
 * by one: converted and dense to memory of the device, as bytes to the host, and from there to their places. */
#include "weights/save_plan.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "memory/device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK_ELEMS = 1 << 20, BLOCK_BYTES = BLOCK_ELEMS * 4 };

typedef struct saver {
  const treadle_save_plan *plan;
  const treadle_device *device; /* of the window */
  char *there, *here; /* [BLOCK_BYTES] of another device, and of the host; NULL: the window is the host's */
  treadle_boxes boxes;
  const char *folder;
  int32_t file; /* that is mapped; -1: none */
  int descriptor;
  char *image;
  int64_t elems;
} saver;

static treadle_status system_says(const char *path, const char *verb) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(errno));
}

/* What was written to the file that is mapped reaches the disk. */
static treadle_status close_file(saver *s) {
  treadle_status status = TREADLE_OK;
  if (s->file < 0) return TREADLE_OK;
  const treadle_save_file *file = &s->plan->files[s->file];
  if (munmap(s->image, (size_t)file->bytes) != 0) status = system_says(file->name, "unmap");
  if (!status && fsync(s->descriptor) != 0) status = system_says(file->name, "sync");
  close(s->descriptor);
  s->file = -1;
  return status;
}

static treadle_status open_file(saver *s, int32_t number) {
  treadle_status status;
  const treadle_save_file *file = &s->plan->files[number];
  char path[4096];
  if (s->file == number) return TREADLE_OK;
  TRY(close_file(s));
  snprintf(path, sizeof path, "%s/%s", s->folder, file->name);
  s->descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (s->descriptor < 0) return system_says(path, "open");
  void *image = mmap(NULL, (size_t)file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->descriptor, 0);
  if (image == MAP_FAILED) {
    status = system_says(path, "map");
    close(s->descriptor);
    goto out;
  }
  s->image = image;
  s->file = number;
out:
  return status;
}

/* Elements of a block from a window of another device. */
static treadle_status bring(const saver *s, const treadle_op *op, const treadle_paged *from,
                            const treadle_paged *to) {
  treadle_status status;
  const treadle_device *host = treadle_device_host();
  const treadle_paged there = treadle_paged_of(s->there), here = treadle_paged_of(s->here);
  treadle_op out = *op, in = *op;
  int64_t bytes = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  for (int a = op->ndim - 1; a >= 0; a--) {
    out.to_stride[a] = in.from_stride[a] = bytes;
    bytes *= op->size[a];
  }
  out.to = in.from = 0;
  in.from_dtype = op->to_dtype;
  in.add = 0;
  s->device->ops->copy(s->device, &out, from, &there, 1);
  s->device->ops->move(s->device, s->here, s->there, (size_t)bytes);
  TRY(s->device->ops->fence(s->device));
  host->ops->copy(host, &in, &here, to, 1);
  TRY(host->ops->fence(host));
out:
  return status;
}

/* Elements of one entry: a box of its tensor, one expert where that is stacked. */
static treadle_status save_box(saver *s, const treadle_cell *cell, const treadle_box *box, int64_t from,
                               const int64_t *stride, const void *window) {
  treadle_status status;
  const treadle_model *model = s->plan->layout->model;
  const treadle_tensor *tensor = &model->tensors[cell->tensor];
  const treadle_stored *entry =
      &s->plan->entries[tensor->first_entry + (tensor->by_expert ? box->start[0] : 0)];
  int64_t unit = (int64_t)treadle_dtype_bytes(entry->dtype);
  treadle_op op = {.from_dtype = (uint8_t)cell->dtype,
                   .to_dtype = (uint8_t)entry->dtype,
                   .add = (int8_t)-cell->add,
                   .tensor = cell->tensor,
                   .from = from,
                   .to = (int64_t)entry->begin,
                   .ndim = (uint8_t)tensor->naxes,
                   .elems = 1};
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    op.size[a] = box->size[a];
    op.from_stride[a] = stride[a];
    op.to_stride[a] = unit;
    if (a > 0 || !tensor->by_expert) op.to += box->start[a] * unit;
    op.elems *= op.size[a];
    unit *= tensor->axis[a];
  }
  TRY(open_file(s, entry->file));
  const treadle_paged out = {.base = window}, in = treadle_paged_of(s->image);
  if (s->there) {
    TRY(bring(s, &op, &out, &in));
  } else {
    s->device->ops->copy(s->device, &op, &out, &in, 1);
    TRY(s->device->ops->fence(s->device));
  }
  s->elems += op.elems;
out:
  return status;
}

/* Block by block, where there is room for one alone. */
static treadle_status save_blocks(saver *s, const treadle_cell *cell, const treadle_box *box, int64_t from,
                                  const int64_t *stride, const void *window) {
  treadle_status status = TREADLE_OK;
  const int naxes = s->plan->layout->model->tensors[cell->tensor].naxes;
  const int64_t elems = treadle_box_elems(box);
  if (!s->there) return save_box(s, cell, box, from, stride, window);
  for (int64_t at = 0; at < elems; at += BLOCK_ELEMS) {
    s->boxes.count = 0;
    TRY(treadle_box_range(box, 0, naxes - 1, at, at + BLOCK_ELEMS < elems ? at + BLOCK_ELEMS : elems,
                          &s->boxes));
    for (size_t i = 0; i < s->boxes.count; i++) {
      const treadle_box *part = &s->boxes.items[i];
      int64_t first = from;
      for (int a = 0; a < naxes; a++) first += (part->start[a] - box->start[a]) * stride[a];
      TRY(save_box(s, cell, part, first, stride, window));
    }
  }
out:
  return status;
}

static treadle_status save_cell(saver *s, const treadle_cell *cell, int64_t holder, const void *window) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &s->plan->layout->model->tensors[cell->tensor];
  const int64_t *stride;
  int64_t at = treadle_cell_locate(s->plan->layout, cell, holder, &stride), experts = 1;
  treadle_box box = cell->box;
  if (tensor->by_expert) {
    experts = box.size[0];
    box.size[0] = 1;
  }
  for (int64_t e = 0; e < experts; e++, box.start[0]++, at += stride[0])
    TRY(save_blocks(s, cell, &box, at, stride, window));
out:
  return status;
}

static treadle_status make_room(saver *s) {
  if (treadle_device_is_host(s->device)) return TREADLE_OK;
  s->here = treadle_alloc(BLOCK_BYTES);
  s->there = s->here ? s->device->ops->scratch(s->device, BLOCK_BYTES) : NULL;
  if (s->there) return TREADLE_OK;
  const treadle_status over =
      s->device->ops->fence(s->device); /* a device that has failed has no memory, either */
  return over == TREADLE_OK ? treadle_fail(TREADLE_NO_MEMORY, "save: memory is out") : over;
}

treadle_status treadle_save_cells(const treadle_save_plan *plan, int64_t rank, const void *window,
                                  const char *folder, int64_t *elems_p) {
  treadle_status status = TREADLE_OK, closed;
  saver s = {.plan = plan, .device = treadle_device_at(window), .folder = folder, .file = -1};
  treadle_cells cells = {0};
  const treadle_model *model = plan->layout->model;
  TRY(s.device->ops->renew(s.device));
  TRY(make_room(&s));
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_box whole = treadle_box_whole(&model->tensors[t]);
    cells.count = 0;
    if (plan->left_out && plan->left_out[t]) continue;
    TRY(treadle_layout_cells(plan->layout, t, &whole, &cells));
    for (size_t i = 0; i < cells.count; i++) {
      const treadle_cell *cell = &cells.items[i];
      int64_t holder = (t + (int64_t)i) % cell->holders; /* copies share the work */
      if (treadle_cell_find(plan->layout, cell, rank) == holder) TRY(save_cell(&s, cell, holder, window));
    }
  }
out:
  status = treadle_device_finish(s.device, status);
  if (s.there) s.device->ops->scratch_release(s.device, s.there);
  treadle_free(s.here);
  closed = close_file(&s);
  treadle_array_release(&s.boxes);
  treadle_array_release(&cells);
  *elems_p = s.elems;
  return status ? status : closed;
}

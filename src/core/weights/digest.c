/* Digests of windows. The device hashes many boxes of elements at once. */
#include "weights/digest.h"

#include "memory/value.h"
#include "weights/box_elements.h"

enum { BATCH = 64 };

/* Boxes that wait for the device, and what they are of. */
typedef struct batch {
  const treadle_rank_window *of;
  uint64_t *sums; /* [entries] */
  size_t count;
  treadle_elements elements[BATCH];
  const void *windows[BATCH];
  int64_t entries[BATCH];
} batch;

static treadle_status hash_all(batch *b) {
  treadle_status status;
  const treadle_device *device = b->of->device;
  uint64_t found[BATCH];
  TRY(device->ops->hash(device, b->elements, b->windows, b->count, found));
  for (size_t i = 0; i < b->count; i++) b->sums[b->entries[i]] += found[i];
  b->count = 0;
out:
  return status;
}

/* Elements of an entry, in the window or in the own tensor that has them. Experts of one tensor may be own tensors each. */
static treadle_status add(batch *b, const treadle_elements *elements, int64_t entry) {
  treadle_status status = TREADLE_OK;
  const treadle_own_spans *own = &b->of->own;
  treadle_elements part = *elements;
  int64_t last = elements->at;
  int slow = -1;
  for (int a = elements->ndim - 1; a >= 0; a--) {
    last += (elements->size[a] - 1) * elements->stride[a];
    if (elements->size[a] > 1) slow = a;
  }
  if (slow < 0 || last <= treadle_own_until(own, elements->at)) {
    const treadle_own_span *span = treadle_own_find(own, part.at);
    if (span) part.at -= span->offset;
    b->elements[b->count] = part;
    b->windows[b->count] = span ? span->memory : b->of->window;
    b->entries[b->count++] = entry;
    return b->count < BATCH ? TREADLE_OK : hash_all(b);
  }
  part.size[slow] = 1;
  for (int64_t i = 0; i < elements->size[slow]; i++) {
    TRY(add(b, &part, entry));
    part.at += elements->stride[slow];
    part.index += elements->weight[slow];
  }
out:
  return status;
}

treadle_status treadle_digest_add(const treadle_rank_window *of, int64_t turn, uint64_t *sums) {
  treadle_status status = TREADLE_OK;
  treadle_cells cells = {0};
  batch waiting = {.of = of, .sums = sums};
  const treadle_layout *layout = of->layout;
  const treadle_model *model = layout->model;
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    const treadle_box whole = treadle_box_whole(tensor);
    cells.count = 0;
    TRY(treadle_layout_cells(layout, t, &whole, &cells));
    for (size_t i = 0; i < cells.count; i++) {
      const treadle_cell *cell = &cells.items[i];
      if (treadle_cell_find(layout, cell, of->rank) != turn % cell->holders) continue;
      const int64_t *stride;
      int64_t at = treadle_cell_locate(layout, cell, turn % cell->holders, &stride), experts = 1;
      if (of->arrangement) at = treadle_plan_place(of->arrangement, at);
      treadle_box box = cell->box;
      if (tensor->by_expert) {
        experts = box.size[0];
        box.size[0] = 1;
      }
      for (int64_t e = 0; e < experts; e++) { /* each is a tensor of its own */
        int64_t entry = tensor->first_entry + (tensor->by_expert ? box.start[0] : 0);
        treadle_elements elements = treadle_elements_of(tensor, box.start, box.size, at, stride);
        elements.tensor = treadle_value_tensor(model->entries[entry].name);
        elements.dtype = cell->dtype;
        elements.add = cell->add;
        TRY(add(&waiting, &elements, entry));
        box.start[0]++;
        at += stride[0];
      }
    }
  }
  TRY(hash_all(&waiting));
out:
  treadle_array_release(&cells);
  return status;
}

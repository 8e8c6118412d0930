/* Digests of windows. */
#include "weights/digest.h"

#include "memory/value.h"
#include "weights/box_elements.h"

/* The hash of elements, in the window or in the own tensor that has them. Experts of one tensor may be own tensors each. */
static uint64_t hash(const treadle_rank_window *of, const treadle_elements *elements) {
  treadle_elements part = *elements;
  int64_t last = elements->at;
  int slow = -1;
  for (int a = elements->ndim - 1; a >= 0; a--) {
    last += (elements->size[a] - 1) * elements->stride[a];
    if (elements->size[a] > 1) slow = a;
  }
  if (slow < 0 || last <= treadle_own_until(&of->own, elements->at)) {
    const treadle_own_span *span = treadle_own_find(&of->own, part.at);
    if (span) part.at -= span->offset;
    return of->device->ops->hash(of->device, &part, span ? span->memory : of->window);
  }
  uint64_t sum = 0;
  part.size[slow] = 1;
  for (int64_t i = 0; i < elements->size[slow]; i++) {
    sum += hash(of, &part);
    part.at += elements->stride[slow];
    part.index += elements->weight[slow];
  }
  return sum;
}

treadle_status treadle_digest_add(const treadle_rank_window *of, int64_t turn, uint64_t *sums) {
  treadle_status status = TREADLE_OK;
  treadle_cells cells = {0};
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
        sums[entry] += hash(of, &elements);
        box.start[0]++;
        at += stride[0];
      }
    }
  }
out:
  treadle_array_release(&cells);
  return status;
}

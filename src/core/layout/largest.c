/* How a layout cuts the largest tensor. That tensor is the limit for engines that gather full tensors. */
#include "base/dtype.h"
#include "base/sized.h"
#include "layout/layout.h"

/* The Hugging Face shape of a box: the product of the sizes of each dimension's axes. */
static void shape_of(const treadle_tensor *tensor, const treadle_box *box, int64_t *shape) {
  for (int dim = 0; dim < tensor->ndim; dim++) shape[dim] = 1;
  for (int axis = 0; axis < tensor->naxes; axis++) shape[tensor->axis_dim[axis]] *= box->size[axis];
}

static treadle_status look_at_cells(const treadle_layout *layout, int32_t number, treadle_cut_info *info) {
  treadle_status status;
  treadle_cells cells = {0};
  const treadle_tensor *tensor = &layout->model->tensors[number];
  const treadle_box whole = treadle_box_whole(tensor);
  int64_t most = 0;
  shape_of(tensor, &whole, info->shape);
  TRY(treadle_layout_cells(layout, number, &whole, &cells));
  for (size_t i = 0; i < cells.count; i++) {
    const treadle_cell *cell = &cells.items[i];
    if (i == 0 || cell->holders < info->holders_min) info->holders_min = cell->holders;
    if (cell->holders > info->holders_max) info->holders_max = cell->holders;
    if (treadle_box_elems(&cell->box) <= most) continue;
    most = treadle_box_elems(&cell->box);
    shape_of(tensor, &cell->box, info->part_shape);
  }
  info->parts = (int64_t)cells.count;
  info->part_bytes = (size_t)most * treadle_dtype_bytes(treadle_layout_dtype(layout, tensor));
out:
  treadle_array_release(&cells);
  return status;
}

treadle_status treadle_layout_largest_cut(const treadle_layout *layout, treadle_cut_info *info_p) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(layout);
  TREADLE_NEED_SIZED(info_p);
  const treadle_model *model = layout->model;
  treadle_cut_info info = {0};
  int32_t largest = -1;
  for (int32_t i = 0; i < model->tensor_count; i++) {
    const treadle_tensor *tensor = &model->tensors[i];
    size_t bytes = (size_t)tensor->elems * treadle_dtype_bytes(tensor->dtype);
    if (largest >= 0 && bytes <= info.bytes) continue;
    largest = i;
    info.tensor = tensor->name;
    info.ndim = tensor->ndim;
    info.bytes = bytes;
  }
  if (largest >= 0) TRY(look_at_cells(layout, largest, &info));
  TREADLE_GIVE(info_p, &info);
out:
  return status;
}

/* Originals of values with an offset: which are kept, and whether they still hold. */
#include "convert/kept.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "memory/device.h"

#include <string.h>

/* ---- Keeping ----------------------------------------------------------------------------------- */

/* Where the values of a tensor are to be had as they were; NULL: nowhere, or not under one name. */
static const treadle_stored *find_original(const treadle_target *target, int32_t tensor) {
  const treadle_model *model = target->model;
  const treadle_stored *stored = model->files->entries[model->tensors[tensor].first_entry];
  if (!stored || model->tensors[tensor].by_expert) return NULL;
  if (stored->data) return stored;
  const treadle_stored *carried =
      target->carried ? treadle_checkpoint_find(target->carried, stored->name) : NULL;
  bool same =
      carried && carried->bytes == stored->bytes && strcmp(carried->dtype_text, stored->dtype_text) == 0;
  return same ? stored : NULL;
}

treadle_status treadle_kept_mark(treadle_target *target) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = target->model;
  treadle_cells cells = {0};
  if (!model->checkpoint) return TREADLE_OK;
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_box whole = treadle_box_whole(&model->tensors[t]);
    const treadle_stored *original = find_original(target, t);
    if (!original) continue;
    cells.count = 0;
    TRY(treadle_layout_cells(target->layout, t, &whole, &cells));
    for (size_t i = 0; i < cells.count; i++)
      if (cells.items[i].add) target->own[original - model->checkpoint->tensors].kept = true;
  }
out:
  treadle_array_release(&cells);
  return status;
}

/* ---- Taking ------------------------------------------------------------------------------------ */

/* The values of a place, row-major, in a type. */
static void gather(const treadle_file_box *place, int8_t add, treadle_dtype dtype, char *values) {
  treadle_op op = {.from_dtype = (uint8_t)place->dtype,
                   .to_dtype = (uint8_t)dtype,
                   .add = add,
                   .ndim = TREADLE_MAX_AXES,
                   .elems = treadle_box_elems(&place->box)};
  int64_t stride = (int64_t)treadle_dtype_bytes(dtype);
  for (int a = TREADLE_MAX_AXES - 1; a >= 0; a--) {
    op.size[a] = place->box.size[a];
    op.from_stride[a] = place->stride[a];
    op.to_stride[a] = stride;
    stride *= op.size[a];
  }
  const treadle_paged from = {.base = place->data}, to = treadle_paged_of(values);
  treadle_device_plain()->ops->copy(treadle_device_plain(), &op, &from, &to, 1);
}

treadle_status treadle_kept_take(treadle_source *source, int32_t index, treadle_file_box *place) {
  const treadle_tensor *tensor = &source->model->tensors[index];
  const treadle_stored *original =
      source->kept ? treadle_checkpoint_find(source->kept, tensor->name) : NULL;
  if (!original || tensor->by_expert || original->elems != tensor->elems ||
      original->dtype == TREADLE_DTYPE_NONE || original->dtype == TREADLE_FP8_E4M3 ||
      (original->dtype == TREADLE_INT32) != (place->dtype == TREADLE_INT32))
    return TREADLE_OK;
  treadle_file_box kept = *place;
  int64_t stride = (int64_t)treadle_dtype_bytes(original->dtype);
  kept.data = original->data;
  kept.dtype = original->dtype;
  kept.add = 0;
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    kept.stride[a] = stride;
    kept.data += place->box.start[a] * stride;
    stride *= tensor->axis[a];
  }
  size_t bytes = (size_t)treadle_box_elems(&place->box) * treadle_dtype_bytes(place->dtype);
  char *stored = treadle_alloc_array(2, bytes + 1);
  if (!stored) return treadle_fail(TREADLE_NO_MEMORY, "convert: no memory to compare %s", tensor->name);
  gather(place, 0, place->dtype, stored);
  gather(&kept, place->add, place->dtype, stored + bytes);
  if (memcmp(stored, stored + bytes, bytes) == 0) *place = kept;
  treadle_free(stored);
  return TREADLE_OK;
}

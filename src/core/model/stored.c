/* Places of tensors in files: the geometry.
 *
 * A tensor that stands single is row-major over its axes. A stacked tensor of the files has the parts of its rule one
 * above the other, each row-major over its own axes, which are those of the canonical tensor in another order: so a
 * part is a box of the canonical tensor with a stride for each of its axes. */
#include "model/stored.h"
#include "model/match.h"

#include <string.h>

/* ---- Making places ----------------------------------------------------------------------------- */

int treadle_rule_stored_shape(const treadle_part_shape *parts, int count, int64_t experts, int64_t *shape) {
  int lead = parts[0].experts;
  if (lead) shape[0] = experts;
  for (int d = 0; d < parts[0].ndim; d++) shape[lead + d] = parts[0].shape[d];
  for (int p = 1; p < count; p++) shape[lead] += parts[p].shape[0];
  return lead + parts[0].ndim;
}

treadle_stored_box treadle_part_place(const treadle_part_shape *part, const treadle_tensor *tensor,
                                      int64_t rows, const treadle_stored *stored, const int64_t *shape) {
  treadle_stored_box place = {.stored = stored};
  int64_t stride[1 + TREADLE_MAX_DIMS], elems = 1; /* by dimension of the stored tensor */
  int lead = part->experts;
  for (int d = lead + part->ndim - 1; d >= 0; d--) {
    stride[d] = elems;
    elems *= shape[d];
  }
  for (int a = 0; a < tensor->naxes; a++) {
    place.start[a] = part->start[a];
    place.size[a] = part->size[a];
  }
  if (lead) place.stride[0] = stride[0];
  for (int a = part->naxes - 1; a >= 0; a--) {
    int dim = lead + part->axis_dim[a];
    place.stride[part->of_axis[a]] = stride[dim];
    stride[dim] *= part->axis[a];
  }
  place.at = part->ndim ? rows * (elems / (lead ? shape[0] : 1) / shape[lead]) : 0;
  return place;
}

/* ---- Finding them ------------------------------------------------------------------------------ */

/* A tensor, or one expert of it, that stands single and row-major. */
static bool single_place(const treadle_files *files, const treadle_tensor *tensor, int32_t entry,
                         const int64_t *start, const int64_t *size, treadle_stored_box *place) {
  int64_t stride = 1;
  *place = (treadle_stored_box){.stored = files->entries[entry], .scales = files->entry_scales[entry]};
  if (!place->stored) return false;
  if (place->scales) {
    place->coding = TREADLE_CODED_FP8;
    memcpy(place->block, files->block, sizeof place->block);
  }
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    bool expert = tensor->by_expert && a == 0;
    place->start[a] = expert ? entry - tensor->first_entry : start[a];
    place->size[a] = expert ? 1 : size[a];
    place->stride[a] = stride;
    if (!expert) place->at += start[a] * stride;
    stride *= tensor->axis[a];
  }
  return true;
}

/* What of a place is in a box; false: nothing. */
static bool cut_place(const treadle_tensor *tensor, const int64_t *start, const int64_t *size,
                      treadle_stored_box *place) {
  for (int a = 0; a < tensor->naxes; a++) {
    int64_t low = start[a] > place->start[a] ? start[a] : place->start[a];
    int64_t end = start[a] + size[a], place_end = place->start[a] + place->size[a];
    if (place_end < end) end = place_end;
    if (low >= end) return false;
    place->at += (low - place->start[a]) * place->stride[a];
    place->start[a] = low;
    place->size[a] = end - low;
  }
  return true;
}

bool treadle_model_stored(const treadle_model *model, int32_t index, const int64_t *start,
                          const int64_t *size, int32_t *next_p, treadle_stored_box *place_p) {
  const treadle_files *files = model->files;
  const treadle_tensor *tensor = &model->tensors[index];
  int32_t first = files->first_place[index], count = files->first_place[index + 1] - first;
  for (; count && *next_p < count; ++*next_p) {
    *place_p = files->places[first + *next_p];
    if (!cut_place(tensor, start, size, place_p)) continue;
    ++*next_p;
    return true;
  }
  if (count || *next_p >= (tensor->by_expert ? size[0] : 1)) return false;
  int64_t entry = tensor->first_entry + (tensor->by_expert ? start[0] + *next_p : 0);
  ++*next_p;
  return single_place(files, tensor, (int32_t)entry, start, size, place_p);
}

/* Coded values in files: fp8 with a scale for each block, and MXFP4.
 *
 * fp8: `NAME_scale_inv` belongs to NAME: fp32, bf16 or fp16 [.., ceil(rows / block rows), ceil(cols / block cols)], value = element *
 * scale. MXFP4: a packed canonical [E, in, out] stands as `NAME_blocks` U8 [E, out, in / 32, 16] and `NAME_scales` U8
 * [E, out, in / 32]: 32 values of a row share a scale. docs/rules.md 4.9 and 4.10 (transformers,
 * integrations/mxfp4.py and finegrained_fp8.py). */
#include "model/match.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 400 };

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* A stored type that is known is this one. */
static bool is_type(const treadle_stored *stored, const char *type) {
  return stored->ndim < 0 || strcmp(stored->dtype_text, type) == 0;
}

/* ---- fp8 --------------------------------------------------------------------------------------- */

static const char SCALES[] = "_scale_inv";

static bool is_fp8(const treadle_stored *stored) { return stored->ndim >= 0 && is_type(stored, "F8_E4M3"); }

/* One tensor that has scales, or should have. */
static void match_scale(treadle_match *match, const char *name, const treadle_stored *weight,
                        const treadle_stored *scales, const int64_t block[2]) {
  char scales_name[NAME_BYTES];
  int64_t shape[8];
  snprintf(scales_name, sizeof scales_name, "%s%s", name, SCALES);
  if (!scales) {
    treadle_match_missing(match, "%s", scales_name);
    return;
  }
  match->files->scale_count++;
  if (weight->ndim >= 0 && (!is_fp8(weight) || weight->ndim < 2)) {
    treadle_match_missing(match,
                          "%s has scales, but is %s of %d dimensions instead of F8_E4M3 of 2 or more", name,
                          weight->dtype_text, weight->ndim);
    return;
  }
  if (!is_type(scales, "F32") && !is_type(scales, "BF16") && !is_type(scales, "F16"))
    treadle_match_missing(match, "%s is %s instead of F32, BF16 or F16", scales_name, scales->dtype_text);
  if (weight->ndim < 0 || scales->ndim < 0) return;
  for (int d = 0; d < weight->ndim; d++) {
    int from_end = weight->ndim - 1 - d;
    int64_t size = from_end < 2 ? block[1 - from_end] : 1;
    shape[d] = (weight->shape[d] + size - 1) / size;
  }
  treadle_match_shape(match, scales_name, scales, weight->ndim, shape);
}

/* Where the model has scales of its own, they are tensors: where they stand, or that they are missing. A weight that is
 * known not to be fp8 needs none; of one that is, match_scale() has spoken. */
static void place_scales(treadle_match *match) {
  const treadle_model *model = match->model;
  for (int32_t i = 0; i < model->entry_count; i++) {
    const treadle_entry *entry = &model->entries[i];
    const treadle_tensor *tensor = &model->tensors[entry->tensor];
    if (tensor->scale_of < 0) continue;
    const treadle_tensor *weight = &model->tensors[tensor->scale_of];
    const treadle_stored *stored =
        match->files->entries[weight->first_entry + (entry->expert > 0 ? entry->expert : 0)];
    int32_t at = treadle_names_find(&match->names, entry->name);
    if (at >= 0 && match->names.roles[at] == TREADLE_ROLE_SCALES)
      match->files->entries[i] = &match->checkpoint->tensors[at];
    else if (stored && stored->ndim < 0)
      treadle_match_missing(match, "%s", entry->name);
  }
}

treadle_status treadle_match_scales(treadle_match *match) {
  const treadle_checkpoint *checkpoint = match->checkpoint;
  treadle_names *names = &match->names;
  treadle_files *files = match->files;
  bool quantised = match->model->block[0] > 0;
  const treadle_stored **scales =
      treadle_arena_alloc_array(match->arena, (size_t)checkpoint->count + 1, sizeof *scales);
  if (!scales) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the scales of %s", match->model->path);
  for (int i = 0; i < 2; i++)
    files->block[i] = quantised ? match->model->block[i] : 128; /* as DeepSeek's files */
  for (int32_t i = 0; i < checkpoint->count; i++) {
    char weight[NAME_BYTES];
    size_t length = strlen(names->names[i]);
    if (names->roles[i] != TREADLE_ROLE_NONE || !ends_with(names->names[i], SCALES) ||
        length >= sizeof weight)
      continue;
    snprintf(weight, sizeof weight, "%.*s", (int)(length - (sizeof SCALES - 1)), names->names[i]);
    int32_t at = treadle_names_find(names, weight);
    if (at < 0 || names->roles[at] != TREADLE_ROLE_TENSOR) continue; /* left over */
    if (!quantised && !is_fp8(&checkpoint->tensors[at])) continue;
    names->roles[i] = TREADLE_ROLE_SCALES;
    scales[at] = &checkpoint->tensors[i];
  }
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const treadle_stored *weight = &checkpoint->tensors[i];
    if (names->roles[i] == TREADLE_ROLE_TENSOR && (scales[i] || is_fp8(weight)))
      match_scale(match, names->names[i], weight, scales[i], files->block);
  }
  place_scales(match);
  for (int32_t i = 0; i < match->model->entry_count; i++)
    if (files->entries[i]) files->entry_scales[i] = scales[files->entries[i] - checkpoint->tensors];
  for (size_t i = 0; i < match->places.count; i++) {
    treadle_stored_box *place = &match->places.items[i];
    const treadle_stored *scale = scales[place->stored - checkpoint->tensors];
    if (place->coding != TREADLE_CODED_PLAIN || !scale) continue;
    place->coding = TREADLE_CODED_FP8;
    place->scales = scale;
    memcpy(place->block, files->block, sizeof place->block);
  }
  return TREADLE_OK;
}

/* ---- MXFP4 ------------------------------------------------------------------------------------- */

/* [E, in, out] of a tensor, and the strides of its axes in [E, out, in]. */
static void transposed(const treadle_tensor *tensor, treadle_stored_box *place) {
  int64_t stride[3] = {tensor->shape[2] * tensor->shape[1], 1, tensor->shape[1]};
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    place->size[a] = tensor->axis[a];
    place->stride[a] = stride[tensor->axis_dim[a]];
    stride[tensor->axis_dim[a]] *= tensor->axis[a];
  }
}

static treadle_status match_blocks(treadle_match *match, int32_t index) {
  static const char *const ends[] = {"_blocks", "_scales"};
  const treadle_tensor *tensor = &match->model->tensors[index];
  const treadle_stored *stored[2] = {NULL};
  const int64_t in = tensor->shape[1], out = tensor->shape[2];
  const int64_t shape[] = {tensor->shape[0], out, in / 32, 16};
  bool good = true;
  for (int i = 0; i < 2; i++) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", tensor->name, ends[i]);
    stored[i] = treadle_match_take(match, name);
    if (!stored[i]) {
      treadle_match_missing(match, "%s", name);
      good = false;
      continue;
    }
    if (!is_type(stored[i], "U8")) {
      treadle_match_missing(match, "%s is %s instead of U8", name, stored[i]->dtype_text);
      good = false;
    }
    good = treadle_match_shape(match, name, stored[i], 4 - i, shape) && good;
  }
  if (good && in % 32 != 0) {
    treadle_match_missing(match, "%s has rows of %lld values, not whole blocks of 32", tensor->name,
                          (long long)in);
    good = false;
  }
  match->stacked[index] = true;
  if (!good) return TREADLE_OK;
  treadle_stored_box place = {.stored = stored[0], .scales = stored[1], .coding = TREADLE_CODED_MXFP4};
  transposed(tensor, &place);
  return treadle_match_place(match, index, &place);
}

treadle_status treadle_match_mxfp4(treadle_match *match) {
  const treadle_model *model = match->model;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < model->tensor_count; i++) {
    const treadle_tensor *tensor = &model->tensors[i];
    char blocks[NAME_BYTES], scales[NAME_BYTES];
    if (!model->family->patterns[tensor->pattern].packed || tensor->ndim != 3 || match->stacked[i])
      continue;
    snprintf(blocks, sizeof blocks, "%s_blocks", tensor->name);
    snprintf(scales, sizeof scales, "%s_scales", tensor->name);
    if (treadle_names_find(&match->names, tensor->name) >= 0) continue;
    if (treadle_names_find(&match->names, blocks) >= 0 || treadle_names_find(&match->names, scales) >= 0)
      TRY(match_blocks(match, i));
  }
out:
  return status;
}

/* What is in a model, as users ask for it: treadle_tools.h. */
#include "base/dtype.h"
#include "base/sized.h"
#include "model/build.h"
#include "model/stored.h"
#include "treadle_tools.h"

#include <stdio.h>
#include <string.h>

void treadle_model_get_info(const treadle_model *model, treadle_model_info *info_p) {
  static const treadle_model_info nothing = {0};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(model);
  const treadle_files *files = model->files;
  treadle_model_info info = {.family = model->family->name,
                             .family_path = model->family->path,
                             .changes = model->changes,
                             .elems = model->elems,
                             .bytes = model->bytes,
                             .layers = model->layers,
                             .mtp_layers = model->mtp_layers,
                             .has_mtp = model->family->mtp,
                             .tensors = model->entry_count,
                             .dims = model->family->dim_count,
                             .patterns = model->family->pattern_count,
                             .open = model->family->to_say_count,
                             .notes = model->notes.text ? model->notes.text : "",
                             .files = model->checkpoint ? model->checkpoint->file_count : 0};
  if (files) {
    info.stacked = files->stacked_count;
    info.scales = files->scale_count;
    info.carried = files->carried_count;
    info.skipped = files->skipped_count;
    if (info.carried) info.carried_first = files->carried[0]->name;
    if (info.skipped) info.skipped_first = files->skipped[0]->name;
  }
  TREADLE_GIVE(info_p, &info);
}

treadle_status treadle_model_dim(const treadle_model *model, int32_t dim, const char **name_p,
                                 int64_t *value_p) {
  treadle_status status;
  bool found;
  TREADLE_NEED(name_p);
  TREADLE_NEED(value_p);
  *name_p = NULL;
  *value_p = 0;
  TREADLE_NEED(model);
  if (dim < 0 || dim >= model->family->dim_count)
    return treadle_fail(TREADLE_REFUSED, "dim %d is none of the family's %d", (int)dim,
                        (int)model->family->dim_count);
  const char *name = model->family->dim_names[dim];
  status = treadle_model_look_up(model, name, NULL, value_p, &found);
  if (status) return treadle_fail_in(status, "%s: ", model->path);
  if (found) *name_p = name;
  return TREADLE_OK;
}

const char *treadle_model_file(const treadle_model *model, int32_t file) {
  TREADLE_NEED_OR(model, NULL);
  int32_t count = model->checkpoint ? model->checkpoint->file_count : 0;
  if (file >= 0 && file < count) return model->checkpoint->files[file];
  treadle_fail(TREADLE_REFUSED, "file %d is none of the model's %d", (int)file, (int)count);
  return NULL;
}

int64_t treadle_model_elems_of(const treadle_model *model, treadle_dtype dtype) {
  TREADLE_NEED_OR(model, -1);
  if (TREADLE_CHECK_ENUM(dtype, TREADLE_INT32 + 1)) return -1;
  int64_t elems = 0;
  for (int32_t i = 0; i < model->tensor_count; i++)
    if (model->tensors[i].dtype == dtype) elems += model->tensors[i].elems;
  return elems;
}

treadle_status treadle_model_pattern(const treadle_model *model, int32_t pattern,
                                     treadle_pattern_info *info_p) {
  TREADLE_NEED(model);
  TREADLE_NEED_SIZED(info_p);
  if (pattern < 0 || pattern >= model->family->pattern_count)
    return treadle_fail(TREADLE_REFUSED, "pattern %d is none of the family's %d", (int)pattern,
                        (int)model->family->pattern_count);
  treadle_pattern_info info = {.name = model->family->patterns[pattern].name};
  for (int32_t i = 0; i < model->tensor_count; i++) {
    const treadle_tensor *tensor = &model->tensors[i];
    if (tensor->pattern != pattern) continue;
    if (info.count++ == 0) {
      info.ndim = tensor->ndim;
      info.dtype = tensor->dtype;
      for (int d = 0; d < tensor->ndim; d++) info.shape[d] = tensor->shape[d];
    }
    if (tensor->dtype != info.dtype) info.dtype = TREADLE_DTYPE_NONE;
    info.bytes += tensor->elems * (int64_t)treadle_dtype_bytes(tensor->dtype);
  }
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}

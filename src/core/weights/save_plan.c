#include "weights/save_plan.h"

#include "base/dtype.h"
#include "io/json.h"
#include "model/stored.h"

#include <string.h>

static treadle_status no_memory(const treadle_layout *layout) {
  return treadle_fail(TREADLE_NO_MEMORY, "layout '%s': no memory for the files to save", layout->text);
}

/* What cannot be written without loss of meaning. */
static treadle_status check_model(const treadle_layout *layout) {
  const treadle_model *model = layout->model;
  const char *path = model->path ? model->path : "the model";
  if (layout->fp8 || model->is_fp8 || model->quantisation)
    return treadle_fail(
        TREADLE_REFUSED,
        "%s: a quantised model is not saved: treadle convert writes its values as a model of bf16", path);
  if (treadle_model_is_part(model) || (model->files && model->files->carried_count))
    return treadle_fail(TREADLE_REFUSED, "%s: has more than the language model that would be saved", path);
  return TREADLE_OK;
}

static treadle_stored about_entry(const treadle_layout *layout, int32_t index, treadle_dtype dtype) {
  const treadle_entry *entry = &layout->model->entries[index];
  const treadle_tensor *tensor = &layout->model->tensors[entry->tensor];
  int skip = tensor->by_expert;
  bool own = dtype == TREADLE_DTYPE_NONE || tensor->fixed_dtype || tensor->dtype == TREADLE_INT32;
  treadle_stored about = {.name = entry->name,
                          .ndim = tensor->ndim - skip,
                          .dtype = own ? treadle_layout_dtype(layout, tensor) : dtype,
                          .elems = tensor->elems / (skip ? tensor->shape[0] : 1)};
  memcpy(about.shape, tensor->shape + skip, (size_t)about.ndim * sizeof *about.shape);
  about.bytes = (size_t)about.elems * treadle_dtype_bytes(about.dtype);
  return about;
}

/* Deals entries to files, in the model's order. */
static void deal(treadle_save_plan *plan, treadle_dtype dtype, int64_t shard_bytes) {
  const int32_t count = plan->layout->model->entry_count;
  int64_t filled = 0;
  plan->file_count = 1;
  for (int32_t i = 0; i < count; i++) {
    plan->entries[i] = about_entry(plan->layout, i, dtype);
    plan->files[plan->file_count - 1].count++;
    if (plan->left_out && plan->left_out[plan->layout->model->entries[i].tensor]) {
      plan->entries[i].name = NULL;
      continue;
    }
    int64_t bytes = (int64_t)plan->entries[i].bytes;
    if (filled > 0 && filled + bytes > shard_bytes) {
      plan->files[plan->file_count - 1].count--;
      plan->files[plan->file_count++] = (treadle_save_file){.first = i, .count = 1};
      filled = 0;
    }
    filled += bytes;
    plan->data_bytes += bytes;
    plan->elems += plan->entries[i].elems;
    plan->entries[i].file = plan->file_count - 1;
    if (i == 0) plan->dtype = plan->entries[i].dtype;
    if (plan->dtype != plan->entries[i].dtype) plan->dtype = TREADLE_DTYPE_NONE;
  }
}

treadle_status treadle_save_plan_make(const treadle_layout *layout, treadle_dtype dtype,
                                      int64_t shard_bytes, treadle_save_plan *plan) {
  treadle_status status;
  const size_t count = (size_t)layout->model->entry_count;
  plan->layout = layout;
  TRY(check_model(layout));
  plan->entries = treadle_arena_alloc_array(&plan->arena, count + 1, sizeof *plan->entries);
  plan->files = treadle_arena_alloc_array(&plan->arena, count + 1, sizeof *plan->files);
  if (!plan->entries || !plan->files) TRY(no_memory(layout));
  deal(plan, dtype, shard_bytes);
  for (int32_t f = 0; f < plan->file_count; f++) {
    treadle_save_file *file = &plan->files[f];
    file->name =
        plan->file_count == 1
            ? "model.safetensors"
            : treadle_arena_format(&plan->arena, "model-%05d-of-%05d.safetensors", f + 1, plan->file_count);
    if (!file->name) TRY(no_memory(layout));
    TRY(treadle_safetensors_plan(file->name, plan->entries + file->first, file->count, &file->beginning,
                                 &file->bytes));
    plan->bytes += file->bytes;
    if (file->bytes > plan->largest_file) plan->largest_file = file->bytes;
  }
out:
  return status;
}

void treadle_save_plan_release(treadle_save_plan *plan) {
  for (int32_t f = 0; f < plan->file_count; f++) treadle_builder_release(&plan->files[f].beginning);
  treadle_arena_release(&plan->arena);
}

treadle_status treadle_save_plan_index(const treadle_save_plan *plan, char **text_p) {
  json_t *map = json_object(), *root = NULL;
  bool failed = !map;
  for (int32_t i = 0; !failed && i < plan->layout->model->entry_count; i++)
    failed = plan->entries[i].name &&
             json_object_set_new(map, plan->entries[i].name,
                                 json_string(plan->files[plan->entries[i].file].name)) != 0;
  if (!failed)
    root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)plan->data_bytes, "weight_map",
                     map);
  *text_p = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  json_decref(map);
  json_decref(root);
  return *text_p ? TREADLE_OK : no_memory(plan->layout);
}

/* Hugging Face's files. Without files of the model's own, treadle deals its entries to shards in the model's order. */
#include "convert/target_parts.h"

#include "base/dtype.h"
#include "memory/quantise.h"

#include <inttypes.h>
#include <string.h>

static const int64_t SHARD_BYTES = 5000000000; /* as transformers cuts */

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its files", what);
}

/* ---- One tensor -------------------------------------------------------------------------------- */

/* All of a tensor, or one expert, as it stands under the model's name. */
static treadle_stored about_entry(const treadle_target *target, int32_t index) {
  const treadle_entry *entry = &target->model->entries[index];
  const treadle_tensor *tensor = &target->model->tensors[entry->tensor];
  int skip = tensor->by_expert;
  treadle_stored about = {.ndim = tensor->ndim - skip,
                          .dtype = treadle_layout_dtype(target->layout, tensor),
                          .elems = tensor->elems / (skip ? tensor->shape[0] : 1)};
  memcpy(about.shape, tensor->shape + skip, (size_t)about.ndim * sizeof *about.shape);
  return about;
}

treadle_stored treadle_out_entry_about(const treadle_target *target, const treadle_out_entry *item) {
  treadle_stored about;
  if (item->entry >= 0) {
    about = about_entry(target, item->entry);
  } else {
    about = target->model->checkpoint->tensors[item->own];
    int32_t first = target->own_first[item->own];
    if (item->making == TREADLE_MADE_OF_VALUES && first < target->own_first[item->own + 1])
      about.dtype = target->own_pieces.items[first].dtype;
  }
  about.name = item->name;
  about.data = NULL;
  if (item->making == TREADLE_MADE_RAW) return about;
  if (item->making == TREADLE_MADE_CODES) about.dtype = TREADLE_FP8_E4M3;
  if (item->making == TREADLE_MADE_SCALES) {
    about.dtype = TREADLE_FP32;
    about.elems = 1;
    for (int d = 0; d < about.ndim; d++) {
      int64_t size = d < about.ndim - 2 ? 1 : target->model->block[d - (about.ndim - 2)];
      about.shape[d] = (about.shape[d] + size - 1) / size;
      about.elems *= about.shape[d];
    }
  }
  about.dtype_text = treadle_dtype_safetensors(about.dtype);
  about.bytes = (size_t)about.elems * treadle_dtype_bytes(about.dtype);
  return about;
}

/* Row-major. */
static treadle_piece entry_piece(const treadle_target *target, int32_t index) {
  const treadle_entry *entry = &target->model->entries[index];
  const treadle_tensor *tensor = &target->model->tensors[entry->tensor];
  treadle_dtype dtype = treadle_layout_dtype(target->layout, tensor);
  if (dtype == TREADLE_FP8_E4M3) dtype = TREADLE_FP32; /* which it is made of */
  treadle_piece piece = {.tensor = entry->tensor, .dtype = dtype, .box = treadle_box_whole(tensor)};
  int64_t stride = (int64_t)treadle_dtype_bytes(dtype);
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    piece.stride[a] = stride;
    stride *= tensor->axis[a];
  }
  if (tensor->by_expert) {
    piece.box.start[0] = entry->expert;
    piece.box.size[0] = 1;
  }
  return piece;
}

/* The values of codes and scales as matrices. */
static void set_blocks(const treadle_target *target, const treadle_out_entry *item,
                       treadle_out_tensor *out) {
  treadle_out_entry codes = *item;
  codes.making = TREADLE_MADE_CODES;
  const treadle_stored about = treadle_out_entry_about(target, &codes);
  out->rows = about.shape[about.ndim - 2];
  out->columns = about.shape[about.ndim - 1];
  memcpy(out->block, target->model->block, sizeof out->block);
}

static treadle_status make_tensor(const treadle_target *target, const treadle_out_entry *item,
                                  treadle_out_file *file, treadle_out_tensor *out) {
  treadle_status status = TREADLE_OK;
  out->about = treadle_out_entry_about(target, item);
  out->making = item->making;
  out->first_piece = file->pieces.count;
  if (item->making == TREADLE_MADE_RAW) return treadle_target_find_carried(target, &out->about, &out->raw);
  if (item->making != TREADLE_MADE_OF_VALUES) set_blocks(target, item, out);
  if (item->entry >= 0) TRY(treadle_array_push(&file->pieces, entry_piece(target, item->entry)));
  for (int32_t p = item->entry >= 0 ? 0 : target->own_first[item->own];
       item->entry < 0 && p < target->own_first[item->own + 1]; p++)
    TRY(treadle_array_push(&file->pieces, target->own_pieces.items[p]));
  out->piece_count = file->pieces.count - out->first_piece;
out:
  return status;
}

treadle_status treadle_target_hf_file(const treadle_target *target, int32_t number,
                                      treadle_out_file *file) {
  treadle_status status = TREADLE_OK;
  int32_t first = target->first_item[number];
  file->type = TREADLE_OUT_SAFETENSORS;
  file->count = target->first_item[number + 1] - first;
  file->tensors = treadle_arena_alloc_array(&file->arena, (size_t)file->count, sizeof *file->tensors);
  if (!file->tensors) return no_memory(file->path);
  for (int32_t i = 0; i < file->count; i++) {
    TRY(make_tensor(target, &target->items[first + i], file, &file->tensors[i]));
    file->bytes += (int64_t)file->tensors[i].about.bytes;
  }
  if (target->own && target->as_they_are) file->header = &target->headers[number];
out:
  return status;
}

/* ---- The list of files ------------------------------------------------------------------------- */

static treadle_status add_entry(treadle_target *target, treadle_making making, int32_t index,
                                int32_t *count, int64_t *filled) {
  treadle_out_entry item = {.making = making, .name = target->model->entries[index].name, .entry = index};
  if (making == TREADLE_MADE_SCALES) {
    item.name = treadle_arena_format(&target->arena, "%s_scale_inv", item.name);
    if (!item.name) return no_memory(target->text);
  }
  int64_t bytes = (int64_t)treadle_out_entry_about(target, &item).bytes;
  if (*filled > 0 && *filled + bytes > SHARD_BYTES) {
    target->file_count++;
    *filled = 0;
  }
  *filled += bytes;
  target->items[(*count)++] = item;
  target->first_item[target->file_count] = *count;
  return TREADLE_OK;
}

/* Shards in the model's order; scales behind their weights. */
static treadle_status make_files(treadle_target *target) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = target->model;
  int64_t filled = 0;
  int32_t count = 0;
  target->file_count = 1;
  target->decodes = !target->layout->fp8;
  for (int32_t i = 0; i < model->entry_count; i++) {
    const treadle_tensor *tensor = &model->tensors[model->entries[i].tensor];
    bool coded = treadle_layout_dtype(target->layout, tensor) == TREADLE_FP8_E4M3;
    if (tensor->scale_of >= 0) continue;
    TRY(add_entry(target, coded ? TREADLE_MADE_CODES : TREADLE_MADE_OF_VALUES, i, &count, &filled));
    if (coded) TRY(add_entry(target, TREADLE_MADE_SCALES, i, &count, &filled));
  }
  for (int32_t f = 0; f < target->file_count; f++) {
    target->paths[f] = target->file_count == 1
                           ? "model.safetensors"
                           : treadle_arena_format(&target->arena, "model-%05d-of-%05d.safetensors", f + 1,
                                                  target->file_count);
    if (!target->paths[f]) return no_memory("hf");
  }
out:
  return status;
}

/* fp8 of a family that says what is quantised, in blocks that are made. */
static treadle_status check_fp8(const treadle_target *target) {
  const treadle_model *model = target->model;
  bool some = false;
  if (!target->layout->fp8) return TREADLE_OK;
  for (int32_t t = 0; t < model->tensor_count; t++) some |= model->tensors[t].scale >= 0;
  if (!some)
    return treadle_fail(TREADLE_REFUSED,
                        "--to '%s': family %s has no tensors that fp8 files hold in blocks", target->text,
                        model->family->name);
  if (!target->from_own || !model->is_fp8)
    for (int i = 0; i < 2; i++)
      if (model->block[i] > TREADLE_BLOCK_ROW_SIDE)
        return treadle_fail(
            TREADLE_REFUSED,
            "--to '%s': fp8 blocks of %" PRId64 " x %" PRId64 "; %d x %d at the most are made",
            target->text, model->block[0], model->block[1], TREADLE_BLOCK_ROW_SIDE, TREADLE_BLOCK_ROW_SIDE);
  return TREADLE_OK;
}

treadle_status treadle_target_open_hf(treadle_target *target) {
  treadle_status status;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  size_t tensors = (size_t)(checkpoint ? checkpoint->count : target->model->entry_count);
  size_t files = checkpoint ? (size_t)checkpoint->file_count : tensors * 2;
  TRY(treadle_layout_create(target->model, target->text, 1, NULL, &target->layout));
  TRY(check_fp8(target));
  target->items = treadle_arena_alloc_array(&target->arena, tensors * 2 + 1, sizeof *target->items);
  target->first_item = treadle_arena_alloc_array(&target->arena, files + 2, sizeof *target->first_item);
  target->headers = treadle_arena_alloc_array(&target->arena, files + 1, sizeof *target->headers);
  target->paths = treadle_arena_alloc_array(&target->arena, files + 1, sizeof *target->paths);
  if (!target->items || !target->first_item || !target->headers || !target->paths)
    TRY(no_memory(target->text));
  TRY(checkpoint ? treadle_target_take_own(target) : make_files(target));
out:
  return status;
}

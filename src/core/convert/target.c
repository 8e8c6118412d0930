/* Targets: opening and closing, what is carried, and which type makes a file. */
#include "convert/target.h"

#include "convert/target_parts.h"
#include "layout/settings.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its files", what);
}

/* ---- What is carried --------------------------------------------------------------------------- */

/* Which tensors of the model's own files are no part of it. */
static treadle_status mark_carried(treadle_target *target) {
  const treadle_files *files = target->model->files;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  if (!checkpoint) return TREADLE_OK;
  target->own =
      treadle_arena_alloc_array(&target->arena, (size_t)checkpoint->count + 1, sizeof *target->own);
  if (!target->own) return no_memory(target->text);
  for (int32_t i = 0; i < checkpoint->count; i++) target->own[i].entry = -1;
  for (int32_t i = 0; i < files->carried_count; i++)
    target->own[files->carried[i] - checkpoint->tensors].carried = true;
  for (int32_t i = 0; i < files->skipped_count; i++)
    target->own[files->skipped[i] - checkpoint->tensors].carried = true;
  return TREADLE_OK;
}

int32_t treadle_target_count_carried(const treadle_target *target) {
  const treadle_model *model = target->model;
  int32_t count = 0;
  for (int32_t i = 0; model->checkpoint && i < model->checkpoint->count; i++)
    count += target->own[i].carried || target->own[i].kept;
  return count;
}

/* In the files of the model, or where they were kept. */
treadle_status treadle_target_find_carried(const treadle_target *target, const treadle_stored *about,
                                           const char **raw_p) {
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  const treadle_stored *stored = checkpoint ? treadle_checkpoint_find(checkpoint, about->name) : NULL;
  if (!stored || (!stored->data && stored->bytes))
    stored = target->carried ? treadle_checkpoint_find(target->carried, about->name) : NULL;
  if (!stored || stored->bytes != about->bytes || strcmp(stored->dtype_text, about->dtype_text) != 0)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: the model's files have it beside the weights, and the checkpoint does not: "
                        "hf/carried.safetensors should hold it",
                        about->name);
  *raw_p = stored->bytes ? stored->data : "";
  return TREADLE_OK;
}

static int compare_carried(const void *a, const void *b) {
  return strcmp(((const treadle_out_tensor *)a)->about.name, ((const treadle_out_tensor *)b)->about.name);
}

static treadle_status carried_file(const treadle_target *target, treadle_out_file *file) {
  treadle_status status = TREADLE_OK;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  size_t count = (size_t)treadle_target_count_carried(target);
  file->type = TREADLE_OUT_SAFETENSORS;
  file->tensors = treadle_arena_alloc_array(&file->arena, count, sizeof *file->tensors);
  if (!file->tensors) return no_memory(file->path);
  for (int32_t i = 0; i < checkpoint->count; i++) {
    if (!target->own[i].carried && !target->own[i].kept) continue;
    treadle_out_tensor *out = &file->tensors[file->count++];
    out->about = checkpoint->tensors[i];
    out->making = TREADLE_MADE_RAW;
    TRY(treadle_target_find_carried(target, &out->about, &out->raw));
    file->bytes += (int64_t)out->about.bytes;
  }
  qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_carried);
out:
  return status;
}

/* ---- Both types -------------------------------------------------------------------------------- */

treadle_status treadle_target_open(const treadle_model *model, bool from_own,
                                   const treadle_checkpoint *carried, const char *text, int64_t iteration,
                                   treadle_target **target_p) {
  treadle_status status;
  treadle_settings words;
  treadle_target *target = treadle_alloc(sizeof *target);
  *target_p = NULL;
  if (!target) return no_memory(text);
  target->model = model;
  target->from_own = from_own;
  target->carried = carried;
  target->text = text;
  TRY(treadle_settings_parse(text, &target->arena, &words));
  TRY(mark_carried(target));
  target->is_hf = strcmp(words.type, "hf") == 0;
  target->is_dist = strcmp(words.type, "torch_dist") == 0;
  if (!target->is_hf && !target->is_dist && strcmp(words.type, "megatron") != 0)
    TRY(treadle_fail(TREADLE_REFUSED, "--to '%s': checkpoints are written as hf, megatron or torch_dist",
                     text));
  TRY(target->is_hf     ? treadle_target_open_hf(target)
      : target->is_dist ? treadle_target_open_dist(target, iteration)
                        : treadle_target_open_megatron(target, iteration));
  *target_p = target;
  target = NULL;
out:
  treadle_target_close(target);
  return status;
}

void treadle_target_close(treadle_target *target) {
  if (!target) return;
  treadle_array_release(&target->own_pieces);
  treadle_layout_destroy(target->layout ? target->layout : target->world.layout);
  treadle_arena_release(&target->arena);
  treadle_free(target);
}

treadle_status treadle_target_file(const treadle_target *target, int32_t number, treadle_out_file *file) {
  *file = (treadle_out_file){.path = target->paths[number]};
  treadle_status status = target->is_hf ? treadle_target_hf_file(target, number, file)
                          : number >= target->world.file_count ? carried_file(target, file)
                          : target->is_dist ? treadle_target_dist_file(target, number, file)
                                            : treadle_target_megatron_file(target, number, file);
  if (status != TREADLE_OK) treadle_out_file_release(file);
  return status;
}

void treadle_out_file_release(treadle_out_file *file) {
  treadle_array_release(&file->pieces);
  treadle_arena_release(&file->arena);
}

/* torch_dist: Megatron's distributed checkpoints. What one rank of a megatron layout would have, each storage tensor as a
 * chunk of a global tensor: source_dist.c says which key it has.
 *
 * Layers that are all alike have one key and an axis of layers; else each has its number in the key. As in Megatron
 * (transformer_block.py), whose layers are not all alike where some have experts and others have none. Experts have an axis
 * of their own. Files take storage tensors in the order of their keys, up to 5 GB. */
#include "convert/target_parts.h"

#include "base/dtype.h"
#include "base/text.h"
#include "convert/dist_keys.h"
#include "convert/kept.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t FILE_BYTES = 5000000000;

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its files", what);
}

/* A storage tensor under its key. */
typedef struct dist_row {
  const char *key, *numbered; /* without and with the number of its layer */
  int64_t layer, expert;      /* -1: it has none */
  treadle_storage_info info;
  int32_t number; /* as users count it */
} dist_row;

static int by_key(const void *a_, const void *b_) {
  const dist_row *a = a_, *b = b_;
  int order = strcmp(a->key, b->key);
  if (order != 0) return order;
  if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
  return (a->expert > b->expert) - (a->expert < b->expert);
}

static treadle_status check_row(const treadle_target *target, const dist_row *row) {
  static const char *const others[] = {".local_experts.", ".in_proj.", ".conv1d."};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strstr(row->info.name, others[i]))
      return treadle_fail(
          TREADLE_REFUSED,
          "--to '%s': %s: experts one by one and linear attention are read from torch_dist, "
          "and not written",
          target->text, row->info.name);
  if (row->info.ndim + (row->layer >= 0) + (row->expert >= 0) > 8)
    return treadle_fail(TREADLE_REFUSED, "--to '%s': %s has too many dimensions", target->text,
                        row->info.name);
  return TREADLE_OK;
}

/* What tensors of one key have besides their place. */
static bool same_shape(const dist_row *a, const dist_row *b) {
  bool same = a->info.ndim == b->info.ndim && a->info.dtype == b->info.dtype;
  for (int d = 0; same && d < a->info.ndim; d++) same = a->info.shape[d] == b->info.shape[d];
  return same && (a->expert < 0) == (b->expert < 0);
}

/* Has every layer the same keys, of the same shapes? Rows are sorted. */
static bool layers_are_alike(const dist_row *rows, int32_t count, int64_t layers) {
  for (int32_t i = 0, end; i < count; i = end) {
    int64_t experts = 0;
    for (end = i; end < count && strcmp(rows[end].key, rows[i].key) == 0; end++) {
      if (!same_shape(&rows[i], &rows[end])) return false;
      experts += rows[end].layer == rows[i].layer;
    }
    if (rows[i].layer >= 0 && end - i != layers * experts) return false;
  }
  return true;
}

static treadle_status list_rows(treadle_target *target, dist_row *rows, int32_t count) {
  treadle_status status = TREADLE_OK;
  for (int32_t n = 0; n < count; n++) {
    char key[300], numbered[300];
    dist_row *row = &rows[n];
    row->number = n;
    row->info.struct_size = sizeof row->info;
    TRY(treadle_layout_storage(target->layout, 0, n, &row->info));
    snprintf(key, sizeof key, "%s", row->info.name);
    row->expert = treadle_dist_take_expert(key, sizeof key);
    snprintf(numbered, sizeof numbered, "%s", key);
    row->layer = treadle_dist_take_layer(key);
    row->key = treadle_arena_copy_text(&target->arena, key);
    row->numbered = treadle_arena_copy_text(&target->arena, numbered);
    if (!row->key || !row->numbered) TRY(no_memory(target->text));
    TRY(check_row(target, row));
  }
out:
  return status;
}

/* What a row is a chunk of. experts: of its layer. */
static treadle_dist_part part_of(const dist_row *row, int64_t layers, int64_t experts) {
  treadle_dist_part part = {.key = row->key, .dtype = row->info.dtype};
  if (row->layer >= 0) {
    part.shape[part.ndim] = layers;
    part.offset[part.ndim] = row->layer;
    part.size[part.ndim++] = 1;
  }
  if (row->expert >= 0) {
    part.shape[part.ndim] = experts;
    part.offset[part.ndim] = row->expert;
    part.size[part.ndim++] = 1;
  }
  for (int d = 0; d < row->info.ndim; d++) {
    part.shape[part.ndim] = row->info.shape[d];
    part.size[part.ndim++] = row->info.shape[d];
  }
  return part;
}

/* Deals the rows to files. */
static treadle_status deal(treadle_target *target, const dist_row *rows, int32_t count) {
  const treadle_model *model = target->model;
  int64_t filled = 0;
  target->dist_parts = treadle_arena_alloc_array(&target->arena, (size_t)count, sizeof *target->dist_parts);
  target->dist_numbers =
      treadle_arena_alloc_array(&target->arena, (size_t)count, sizeof *target->dist_numbers);
  target->first_item =
      treadle_arena_alloc_array(&target->arena, (size_t)count + 1, sizeof *target->first_item);
  target->paths = treadle_arena_alloc_array(&target->arena, (size_t)count + 2, sizeof *target->paths);
  if (!target->dist_parts || !target->dist_numbers || !target->first_item || !target->paths)
    return no_memory(target->text);
  for (int32_t i = 0; i < count; i++) {
    int64_t bytes = (int64_t)rows[i].info.bytes;
    if (i == 0 || filled + bytes > FILE_BYTES) {
      target->paths[target->file_count] =
          treadle_arena_format(&target->arena, "%s/__0_%d.distcp", target->folder, target->file_count);
      if (!target->paths[target->file_count]) return no_memory(target->text);
      target->first_item[target->file_count++] = i;
      filled = 0;
    }
    filled += bytes;
    target->dist_parts[i] = part_of(&rows[i], model->layers, model->experts);
    target->dist_numbers[i] = rows[i].number;
  }
  target->first_item[target->file_count] = count;
  target->world.file_count = target->file_count;
  return TREADLE_OK;
}

treadle_status treadle_target_open_dist(treadle_target *target, int64_t iteration) {
  treadle_status status;
  const char *options = strchr(target->text, ':');
  const char *text = treadle_arena_format(&target->arena, "megatron%s", options ? options : "");
  dist_row *rows = NULL;
  if (!text) return no_memory(target->text);
  TRY(treadle_layout_create(target->model, text, 1, NULL, &target->layout));
  target->folder =
      iteration < 0 ? "release" : treadle_arena_format(&target->arena, "iter_%07" PRId64, iteration);
  int32_t count = treadle_layout_storage_count(target->layout, 0);
  rows = treadle_alloc_array((size_t)count + 1, sizeof *rows);
  if (!target->folder || !rows) TRY(no_memory(target->text));
  TRY(list_rows(target, rows, count));
  qsort(rows, (size_t)count, sizeof *rows, by_key);
  if (!layers_are_alike(rows, count, target->model->layers)) {
    for (int32_t i = 0; i < count; i++) {
      rows[i].key = rows[i].numbered;
      rows[i].layer = -1;
    }
    qsort(rows, (size_t)count, sizeof *rows, by_key);
  }
  TRY(deal(target, rows, count));
  TRY(treadle_kept_mark(target));
  if (treadle_target_count_carried(target) > 0)
    target->paths[target->file_count++] = "hf/carried.safetensors";
out:
  treadle_free(rows);
  return status;
}

treadle_status treadle_target_dist_file(const treadle_target *target, int32_t number,
                                        treadle_out_file *file) {
  treadle_status status;
  int32_t first = target->first_item[number];
  TRY(treadle_target_list_rank(target, 0, target->dist_numbers + first,
                               target->first_item[number + 1] - first, file));
  file->type = TREADLE_OUT_DIST;
  file->parts = target->dist_parts + first;
out:
  return status;
}

/* The files of the target as the metadata has them: beside it. */
treadle_status treadle_target_dist_metadata(const treadle_target *target, treadle_pickle *pickle) {
  treadle_status status = TREADLE_OK;
  int32_t count = target->world.file_count;
  treadle_dist_written *files = treadle_alloc_array((size_t)count + 1, sizeof *files);
  if (!files) return no_memory(target->text);
  for (int32_t f = 0; f < count; f++)
    files[f] = (treadle_dist_written){.path = strrchr(target->paths[f], '/') + 1,
                                      .parts = target->dist_parts + target->first_item[f],
                                      .count = target->first_item[f + 1] - target->first_item[f]};
  TRY(treadle_dist_metadata_make(".metadata", files, count, pickle));
out:
  treadle_free(files);
  return status;
}

treadle_status treadle_target_dist_beside(const treadle_target *target, int which, treadle_arena *arena,
                                          const char **path_p) {
  static const char *const names[TREADLE_DIST_BESIDE] = {"common.pt", ".metadata", "metadata.json"};
  *path_p = treadle_arena_format(arena, "%s/%s", target->folder, names[which]);
  return *path_p ? TREADLE_OK : no_memory(target->text);
}

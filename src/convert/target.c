/* Targets: Hugging Face's files and Megatron's. */
#include "convert/target.h"

#include "base/dtype.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "layout/words.h"
#include "model/model_stored.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t SHARD_BYTES = 5000000000; /* as transformers cuts */

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its files", what);
}

/* ---- Hugging Face: which files ----------------------------------------------------------------- */

static int32_t index_of(const treadle_checkpoint *checkpoint, const treadle_stored *stored) {
  return (int32_t)(stored - checkpoint->tensors);
}

/* Which tensors of the model's own files are no part of it. */
static treadle_status mark_carried(treadle_target *target) {
  const treadle_files *files = target->model->files;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  if (!checkpoint) return TREADLE_OK;
  target->own_carried =
      treadle_arena_alloc_array(&target->arena, (size_t)checkpoint->count + 1, sizeof *target->own_carried);
  if (!target->own_carried) return no_memory(target->text);
  for (int32_t i = 0; i < files->carried_count; i++)
    target->own_carried[index_of(checkpoint, files->carried[i])] = true;
  for (int32_t i = 0; i < files->skipped_count; i++)
    target->own_carried[index_of(checkpoint, files->skipped[i])] = true;
  return TREADLE_OK;
}

/* A box of a canonical tensor in a stored one. */
static treadle_piece piece_of(const treadle_target *target, int32_t index,
                              const treadle_stored_place *place) {
  const treadle_tensor *tensor = &target->model->tensors[index];
  treadle_dtype dtype = treadle_layout_dtype(target->layout, tensor);
  int64_t size = (int64_t)treadle_dtype_bytes(dtype);
  treadle_piece piece = {
      .tensor = index, .dtype = dtype, .box = treadle_box_whole(tensor), .offset = place->at * size};
  for (int a = 0; a < tensor->naxes; a++) {
    piece.box.start[a] = place->start[a];
    piece.box.size[a] = place->size[a];
    piece.stride[a] = place->stride[a] * size;
  }
  return piece;
}

static treadle_status take_place(treadle_target *target, int pass, int32_t tensor,
                                 const treadle_stored_place *place) {
  int32_t at = index_of(target->model->checkpoint, place->stored);
  if (place->coding != TREADLE_CODED_PLAIN)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: its files are coded (fp8 with scales, MXFP4), which is not converted yet",
                        place->stored->name);
  if (pass == 0)
    target->own_first[at + 2]++;
  else
    target->own_pieces.items[target->own_first[at + 1]++] = piece_of(target, tensor, place);
  return TREADLE_OK;
}

/* What the tensors of the model's own files consist of: the places of the model's tensors in them, the other way round.
 * They are counted, then put where they belong: own_first has counts, then begins, one further on. */
static treadle_status take_own_pieces(treadle_target *target) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = target->model;
  const treadle_files *files = model->files;
  size_t count = (size_t)model->checkpoint->count;
  target->own_first = treadle_arena_alloc_array(&target->arena, count + 3, sizeof *target->own_first);
  if (!target->own_first) return no_memory(target->text);
  for (int pass = 0; pass < 2; pass++) {
    for (int32_t t = 0; t < model->tensor_count; t++) {
      const treadle_box whole = treadle_box_whole(&model->tensors[t]);
      treadle_stored_place place;
      for (int32_t next = 0; treadle_model_stored(model, t, whole.start, whole.size, &next, &place);)
        TRY(take_place(target, pass, t, &place));
    }
    for (int32_t a = 0; a < model->alias_count; a++) { /* a copy looks like its original */
      int32_t t = model->aliases[a].tensor, next = 0;
      const treadle_box whole = treadle_box_whole(&model->tensors[t]);
      treadle_stored_place place;
      if (!files->aliases[a] || !treadle_model_stored(model, t, whole.start, whole.size, &next, &place))
        continue;
      place.stored = files->aliases[a];
      TRY(take_place(target, pass, t, &place));
    }
    if (pass == 1) break;
    for (size_t i = 0; i <= count; i++) target->own_first[i + 2] += target->own_first[i + 1];
    size_t total = (size_t)target->own_first[count + 1];
    target->own_pieces.items = treadle_alloc_array(total + 1, sizeof *target->own_pieces.items);
    if (!target->own_pieces.items) return no_memory(target->text);
    target->own_pieces.count = target->own_pieces.capacity = total;
  }
out:
  return status;
}

typedef struct file_place {
  int32_t file, tensor;
  size_t begin, bytes;
} file_place;

static int compare_places(const void *a_, const void *b_) {
  const file_place *a = a_, *b = b_;
  if (a->file != b->file) return a->file < b->file ? -1 : 1;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1; /* empty ones first */
  return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

/* The files that the model came in: the same names, and in each the same order. */
static treadle_status take_own_files(treadle_target *target) {
  treadle_status status = TREADLE_OK;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  file_place *places = treadle_alloc_array((size_t)checkpoint->count + 1, sizeof *places);
  if (!places) return no_memory("hf");
  target->own_files = target->same_types = true;
  TRY(take_own_pieces(target));
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const treadle_stored *stored = &checkpoint->tensors[i];
    places[i] = (file_place){stored->file, i, stored->begin, stored->bytes};
    for (int32_t p = target->own_first[i]; p < target->own_first[i + 1]; p++)
      if (target->own_pieces.items[p].dtype != stored->dtype) target->same_types = false;
  }
  qsort(places, (size_t)checkpoint->count, sizeof *places, compare_places);
  for (int32_t i = 0; i < checkpoint->count; i++) {
    target->order[i] = places[i].tensor;
    target->file_of[places[i].file + 1] = i + 1;
  }
  for (int32_t f = 0; f < checkpoint->file_count; f++) {
    target->headers[f] = treadle_checkpoint_header(checkpoint, f);
    target->paths[f] = target->headers[f].file;
    if (target->file_of[f + 1] < target->file_of[f]) target->file_of[f + 1] = target->file_of[f];
  }
  target->file_count = checkpoint->file_count;
out:
  treadle_free(places);
  return status;
}

static int64_t entry_bytes(const treadle_target *target, const treadle_entry *entry) {
  const treadle_tensor *tensor = &target->model->tensors[entry->tensor];
  int64_t elems = tensor->by_expert ? tensor->elems / tensor->shape[0] : tensor->elems;
  return elems * (int64_t)treadle_dtype_bytes(treadle_layout_dtype(target->layout, tensor));
}

/* Shards in the model's order. */
static treadle_status make_files(treadle_target *target) {
  const treadle_model *model = target->model;
  int64_t filled = 0;
  target->file_count = 1;
  for (int32_t i = 0; i < model->entry_count; i++) {
    int64_t bytes = entry_bytes(target, &model->entries[i]);
    if (filled > 0 && filled + bytes > SHARD_BYTES) {
      target->file_count++;
      filled = 0;
    }
    filled += bytes;
    target->order[i] = i;
    target->file_of[target->file_count] = i + 1;
  }
  for (int32_t f = 0; f < target->file_count; f++) {
    target->paths[f] = target->file_count == 1
                           ? "model.safetensors"
                           : treadle_arena_format(&target->arena, "model-%05d-of-%05d.safetensors", f + 1,
                                                  target->file_count);
    if (!target->paths[f]) return no_memory("hf");
  }
  return TREADLE_OK;
}

static treadle_status open_hf(treadle_target *target) {
  treadle_status status;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  size_t tensors = (size_t)(checkpoint ? checkpoint->count : target->model->entry_count);
  size_t files = checkpoint ? (size_t)checkpoint->file_count : tensors;
  TRY(treadle_layout_create(target->model, target->text, 1, &target->layout));
  target->order = treadle_arena_alloc_array(&target->arena, tensors + 1, sizeof *target->order);
  target->file_of = treadle_arena_alloc_array(&target->arena, files + 2, sizeof *target->file_of);
  target->headers = treadle_arena_alloc_array(&target->arena, files + 1, sizeof *target->headers);
  target->paths = treadle_arena_alloc_array(&target->arena, files + 1, sizeof *target->paths);
  if (!target->order || !target->file_of || !target->headers || !target->paths)
    TRY(no_memory(target->text));
  TRY(checkpoint ? take_own_files(target) : make_files(target));
out:
  return status;
}

/* ---- Hugging Face: what is in a file ------------------------------------------------------------ */

/* The bytes of what is carried: in the files of the model, or where they were kept. */
static const treadle_stored *find_carried(const treadle_target *target, const char *name) {
  const treadle_stored *stored =
      target->model->checkpoint ? treadle_checkpoint_find(target->model->checkpoint, name) : NULL;
  if (stored && (stored->data || stored->bytes == 0)) return stored;
  return target->carried ? treadle_checkpoint_find(target->carried, name) : NULL;
}

static treadle_status add_carried(const treadle_target *target, const treadle_stored *about,
                                  treadle_out_tensor *out) {
  const treadle_stored *stored = find_carried(target, about->name);
  if (!stored || stored->bytes != about->bytes || strcmp(stored->dtype_text, about->dtype_text) != 0)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: the model's files have it beside the weights, and the checkpoint does not: "
                        "hf/carried.safetensors should hold it",
                        about->name);
  out->raw = stored->bytes ? stored->data : "";
  return TREADLE_OK;
}

/* A tensor of the model's own files. */
static treadle_status own_tensor(const treadle_target *target, int32_t index, treadle_out_file *file,
                                 treadle_out_tensor *out) {
  treadle_status status = TREADLE_OK;
  out->about = target->model->checkpoint->tensors[index];
  out->about.data = NULL;
  if (target->own_carried[index]) return add_carried(target, &out->about, out);
  out->first_piece = file->pieces.count;
  for (int32_t p = target->own_first[index]; p < target->own_first[index + 1]; p++) {
    const treadle_piece *piece = &target->own_pieces.items[p];
    TRY(treadle_array_push(&file->pieces, *piece));
    out->about.dtype = piece->dtype;
    out->piece_count++;
  }
  out->about.dtype_text = treadle_dtype_safetensors(out->about.dtype);
  out->about.bytes = (size_t)out->about.elems * treadle_dtype_bytes(out->about.dtype);
out:
  return status;
}

/* All of a tensor, or one expert, row-major, under the model's name. */
static treadle_status entry_tensor(const treadle_target *target, const treadle_entry *entry,
                                   treadle_out_file *file, treadle_out_tensor *out) {
  const treadle_tensor *tensor = &target->model->tensors[entry->tensor];
  treadle_dtype dtype = treadle_layout_dtype(target->layout, tensor);
  treadle_piece piece = {.tensor = entry->tensor, .dtype = dtype, .box = treadle_box_whole(tensor)};
  int64_t stride = (int64_t)treadle_dtype_bytes(dtype);
  int skip = tensor->by_expert;
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    piece.stride[a] = stride;
    stride *= tensor->axis[a];
  }
  if (tensor->by_expert) {
    piece.box.start[0] = entry->expert;
    piece.box.size[0] = 1;
  }
  out->about = (treadle_stored){.name = entry->name, .dtype = dtype, .ndim = tensor->ndim - skip};
  out->about.dtype_text = treadle_dtype_safetensors(dtype);
  memcpy(out->about.shape, tensor->shape + skip, (size_t)out->about.ndim * sizeof *out->about.shape);
  out->about.elems = treadle_box_elems(&piece.box);
  out->about.bytes = (size_t)out->about.elems * treadle_dtype_bytes(dtype);
  out->first_piece = file->pieces.count;
  out->piece_count = 1;
  return treadle_array_push(&file->pieces, piece);
}

static treadle_status hf_file(const treadle_target *target, int32_t number, treadle_out_file *file) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = target->model;
  int32_t first = target->file_of[number];
  file->kind = TREADLE_OUT_SAFETENSORS;
  file->count = target->file_of[number + 1] - first;
  file->tensors = treadle_arena_alloc_array(&file->arena, (size_t)file->count, sizeof *file->tensors);
  if (!file->tensors) return no_memory(file->path);
  for (int32_t i = 0; i < file->count; i++) {
    int32_t index = target->order[first + i];
    treadle_out_tensor *out = &file->tensors[i];
    TRY(target->own_files ? own_tensor(target, index, file, out)
                          : entry_tensor(target, &model->entries[index], file, out));
    file->bytes += (int64_t)file->tensors[i].about.bytes;
  }
  if (target->own_files && target->same_types) file->header = &target->headers[number];
out:
  return status;
}

/* ---- Megatron ---------------------------------------------------------------------------------- */

static int32_t count_carried(const treadle_target *target) {
  const treadle_model *model = target->model;
  int32_t count = 0;
  for (int32_t i = 0; model->checkpoint && i < model->checkpoint->count; i++)
    count += target->own_carried[i];
  return count;
}

static treadle_status open_megatron(treadle_target *target, int64_t iteration) {
  treadle_status status;
  TRY(treadle_world_make(target->model, target->text, &target->arena, &target->world));
  target->layout = target->world.layout;
  target->folder =
      iteration < 0 ? "release" : treadle_arena_format(&target->arena, "iter_%07" PRId64, iteration);
  target->file_count = target->world.file_count;
  target->paths =
      treadle_arena_alloc_array(&target->arena, (size_t)target->file_count + 1, sizeof *target->paths);
  if (!target->folder || !target->paths) TRY(no_memory(target->text));
  for (int32_t f = 0; f < target->file_count; f++) {
    target->paths[f] = treadle_arena_format(&target->arena, "%s/%s/model_optim_rng.pt", target->folder,
                                            target->world.names[f]);
    if (!target->paths[f]) TRY(no_memory(target->text));
  }
  if (count_carried(target) > 0) target->paths[target->file_count++] = "hf/carried.safetensors";
out:
  return status;
}

/* The pieces of a window, by storage tensor; those of stacked experts are cut expert by expert. */
static treadle_status megatron_pieces(const treadle_target *target, int64_t rank, int32_t count,
                                      treadle_out_file *file) {
  treadle_status status;
  treadle_pieces window = {0};
  int32_t storages;
  int64_t *next = treadle_alloc_array((size_t)count + 1, sizeof *next);
  const treadle_storage *all = treadle_layout_storages(target->layout, rank, &storages);
  if (!next) return no_memory(file->path);
  TRY(treadle_layout_pieces(target->layout, rank, &window));
  for (int pass = 0; pass < 2; pass++) { /* counts them, then puts each where it belongs */
    for (size_t i = 0; i < window.count; i++) {
      const treadle_piece *piece = &window.items[i];
      const treadle_storage *storage = &all[piece->storage];
      int64_t experts = storage->by_expert ? piece->box.size[0] : 1;
      int64_t slot = storage->by_expert ? (piece->offset - storage->offset) / storage->slot_stride : 0;
      for (int64_t e = 0; e < experts; e++) {
        int32_t number = storage->public_first + (int32_t)(slot + e) * storage->run + storage->run_at;
        if (pass == 0) {
          file->tensors[number].piece_count++;
          continue;
        }
        treadle_piece one = *piece;
        if (storage->by_expert) {
          one.box.start[0] += e;
          one.box.size[0] = 1;
        }
        one.offset -= storage->offset + slot * storage->slot_stride;
        file->pieces.items[next[number]++] = one;
      }
    }
    if (pass == 1) break;
    size_t total = 0;
    for (int32_t n = 0; n < count; n++) {
      file->tensors[n].first_piece = total;
      next[n] = (int64_t)total;
      total += file->tensors[n].piece_count;
    }
    file->pieces.items = treadle_alloc_array(total + 1, sizeof *file->pieces.items);
    if (!file->pieces.items) TRY(no_memory(file->path));
    file->pieces.count = file->pieces.capacity = total;
  }
out:
  treadle_array_release(&window);
  treadle_free(next);
  return status;
}

static treadle_status megatron_file(const treadle_target *target, int32_t number, treadle_out_file *file) {
  treadle_status status;
  int64_t rank = target->world.ranks[number];
  file->kind = TREADLE_OUT_TORCH;
  file->count = treadle_layout_storage_count(target->layout, rank);
  file->tensors = treadle_arena_alloc_array(&file->arena, (size_t)file->count, sizeof *file->tensors);
  if (!file->tensors) return no_memory(file->path);
  const char *entry = "model";
  int32_t chunk = -1;
  for (int32_t n = 0; n < file->count; n++) {
    treadle_storage_info info;
    treadle_out_tensor *out = &file->tensors[n];
    TRY(treadle_layout_storage(target->layout, rank, n, &info));
    if (target->world.chunked && info.chunk != chunk)
      entry = treadle_arena_format(&file->arena, "model%d", chunk = info.chunk);
    out->entry = entry;
    out->about = (treadle_stored){.name = treadle_arena_copy_text(&file->arena, info.name),
                                  .dtype = info.dtype,
                                  .dtype_text = treadle_dtype_safetensors(info.dtype),
                                  .ndim = info.ndim,
                                  .bytes = info.bytes};
    memcpy(out->about.shape, info.shape, sizeof info.shape);
    out->about.elems = (int64_t)(info.bytes / treadle_dtype_bytes(info.dtype));
    if (!entry || !out->about.name) TRY(no_memory(file->path));
    file->bytes += (int64_t)info.bytes;
  }
  TRY(megatron_pieces(target, rank, file->count, file));
out:
  return status;
}

static int compare_carried(const void *a, const void *b) {
  return strcmp(((const treadle_out_tensor *)a)->about.name, ((const treadle_out_tensor *)b)->about.name);
}

static treadle_status carried_file(const treadle_target *target, treadle_out_file *file) {
  treadle_status status = TREADLE_OK;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  file->kind = TREADLE_OUT_SAFETENSORS;
  file->tensors =
      treadle_arena_alloc_array(&file->arena, (size_t)count_carried(target), sizeof *file->tensors);
  if (!file->tensors) return no_memory(file->path);
  for (int32_t i = 0; i < checkpoint->count; i++) {
    if (!target->own_carried[i]) continue;
    treadle_out_tensor *out = &file->tensors[file->count++];
    out->about = checkpoint->tensors[i];
    TRY(add_carried(target, &out->about, out));
    file->bytes += (int64_t)out->about.bytes;
  }
  qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_carried);
out:
  return status;
}

/* ---- Both -------------------------------------------------------------------------------------- */

treadle_status treadle_target_open(const treadle_model *model, const treadle_checkpoint *carried,
                                   const char *text, int64_t iteration, treadle_target **target_p) {
  treadle_status status;
  treadle_words words;
  treadle_target *target = treadle_alloc(sizeof *target);
  *target_p = NULL;
  if (!target) return no_memory(text);
  target->model = model;
  target->carried = carried;
  target->text = text;
  TRY(treadle_words_parse(text, &target->arena, &words));
  TRY(mark_carried(target));
  target->is_hf = strcmp(words.kind, "hf") == 0;
  if (!target->is_hf && strcmp(words.kind, "megatron") != 0)
    TRY(treadle_fail(TREADLE_REFUSED, "--to '%s': checkpoints are written as hf or megatron", text));
  TRY(target->is_hf ? open_hf(target) : open_megatron(target, iteration));
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
  treadle_status status = target->is_hf                       ? hf_file(target, number, file)
                          : number < target->world.file_count ? megatron_file(target, number, file)
                                                              : carried_file(target, file);
  if (status != TREADLE_OK) treadle_out_file_release(file);
  return status;
}

void treadle_out_file_release(treadle_out_file *file) {
  treadle_array_release(&file->pieces);
  treadle_arena_release(&file->arena);
}

/* ---- The index of Hugging Face ------------------------------------------------------------------ */

static treadle_status make_index(const treadle_target *target, json_t **root_p) {
  treadle_status status = TREADLE_OK;
  json_t *map = json_object();
  int64_t total = 0;
  for (int32_t f = 0; f < target->file_count; f++)
    for (int32_t i = target->file_of[f]; i < target->file_of[f + 1]; i++) {
      const treadle_entry *entry = &target->model->entries[target->order[i]];
      total += entry_bytes(target, entry);
      json_object_set_new(map, entry->name, json_string(target->paths[f]));
    }
  *root_p = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
  if (!*root_p) status = no_memory("the index");
  return status;
}

/* The files' own index with the total of the types that are written. */
static treadle_status change_index(const treadle_target *target, const char *source_index,
                                   json_t **root_p) {
  treadle_status status;
  int64_t total = 0;
  TRY(treadle_json_load(source_index, root_p));
  for (int32_t f = 0; f < target->file_count; f++) {
    treadle_out_file file;
    TRY(treadle_target_file(target, f, &file));
    total += file.bytes;
    treadle_out_file_release(&file);
  }
  json_t *metadata = json_object_get(*root_p, "metadata");
  if (json_is_object(metadata)) json_object_set_new(metadata, "total_size", json_integer(total));
out:
  return status;
}

treadle_status treadle_target_index(const treadle_target *target, const char *source_index, char **text_p) {
  treadle_status status = TREADLE_OK;
  json_t *root = NULL;
  size_t length;
  *text_p = NULL;
  if (source_index && target->own_files && target->same_types)
    return treadle_file_read(source_index, (size_t)1 << 30, text_p, &length);
  if (target->own_files && !source_index) return TREADLE_OK;
  if (!target->own_files && target->file_count == 1) return TREADLE_OK;
  TRY(target->own_files ? change_index(target, source_index, &root) : make_index(target, &root));
  char *dumped = json_dumps(root, JSON_INDENT(2));
  size_t bytes = dumped ? strlen(dumped) : 0;
  *text_p = dumped ? treadle_alloc(bytes + 1) : NULL;
  if (*text_p) memcpy(*text_p, dumped, bytes);
  free(dumped);
  if (!*text_p) status = no_memory("the index");
out:
  json_decref(root);
  return status;
}

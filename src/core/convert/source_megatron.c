/* Megatron's legacy checkpoints: for each (tp, pp, ep) a folder with model_optim_rng.pt, an archive of torch.save.
 *
 * A file must hold exactly the tensors that the layout gives its rank, by name, type and shape. Beside them there may be
 * anything: arguments, optimizer, random states are counted and left alone, and so is _extra_state among them. */
#include "convert/megatron_files.h"
#include "convert/megatron_twice.h"
#include "convert/megatron_writers.h"
#include "convert/source_layout.h"

#include "base/dtype.h"
#include "base/hash_map.h"
#include "base/text.h"
#include "io/file.h"
#include "io/torch.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

typedef struct archive {
  treadle_torch *torch;
  const treadle_torch_tensor **tensors; /* by number of the rank's storage tensors, as users count them */
} archive;

typedef struct megatron {
  treadle_megatron_files world;
  archive *archives; /* by file */
} megatron;

static treadle_status no_memory(const char *path) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tensors", path);
}

/* ---- Which files there are --------------------------------------------------------------------- */

static treadle_status count_folders(const char *folder, const treadle_hash_map *expected, int32_t *count_p,
                                    char *unexpected, size_t room) {
  DIR *listing = opendir(folder);
  *count_p = 0;
  *unexpected = 0;
  if (!listing) return treadle_fail(TREADLE_SYSTEM, "%s: cannot be listed: %s", folder, strerror(errno));
  for (struct dirent *entry; (entry = readdir(listing));) {
    if (!treadle_text_starts(entry->d_name, "mp_rank_")) continue;
    ++*count_p;
    if (treadle_hash_map_get(expected, entry->d_name, -1) < 0)
      snprintf(unexpected, room, "%s", entry->d_name);
  }
  closedir(listing);
  return TREADLE_OK;
}

static treadle_status check_folders(const treadle_source *source, const char *folder,
                                    const treadle_megatron_files *world) {
  treadle_status status = TREADLE_OK;
  treadle_hash_map expected = {0};
  char unexpected[256];
  int32_t count;
  for (int32_t i = 0; i < world->file_count; i++) TRY(treadle_hash_map_put(&expected, world->names[i], i));
  TRY(count_folders(folder, &expected, &count, unexpected, sizeof unexpected));
  if (count != world->file_count || *unexpected) {
    const char *missing = NULL;
    for (int32_t i = 0; i < world->file_count && !missing; i++)
      if (!treadle_file_exists(source->files[i])) missing = world->names[i];
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has %s mp_rank_*, and %s has %d%s%s%s%s", folder,
                     treadle_text_of_count(count, "folder"), world->layout->text, world->file_count,
                     missing ? "; missing is " : "", missing ? missing : "",
                     *unexpected ? "; of no rank is " : "", unexpected));
  }
out:
  treadle_hash_map_release(&expected);
  return status;
}

/* ---- What is in them --------------------------------------------------------------------------- */

/* The names of Megatron's wrappers stand in front of those of the model. */
static const char *bare_name(const char *name) {
  while (treadle_text_starts(name, "module.")) name += strlen("module.");
  return name;
}

static treadle_status check_tensor(const char *path, const treadle_torch_tensor *tensor,
                                   const treadle_storage_info *info) {
  bool same = tensor->ndim == info->ndim;
  for (int d = 0; same && d < info->ndim; d++) same = tensor->shape[d] == info->shape[d];
  if (!same) {
    treadle_builder found = {0}, wanted = {0};
    for (int d = 0; d < tensor->ndim; d++)
      treadle_builder_add(&found, "%s%" PRId64, d ? ", " : "", tensor->shape[d]);
    for (int d = 0; d < info->ndim; d++)
      treadle_builder_add(&wanted, "%s%" PRId64, d ? ", " : "", info->shape[d]);
    treadle_status status =
        treadle_fail(TREADLE_REFUSED, "%s: tensor %s is [%s], and the layout says [%s]%s", path,
                     tensor->name, found.text ? found.text : "", wanted.text ? wanted.text : "",
                     strstr(info->name, "embedding") || strstr(info->name, "output_layer")
                         ? "; padded_vocab_size=N says how far the vocabulary is padded"
                         : "");
    treadle_builder_release(&found);
    treadle_builder_release(&wanted);
    return status;
  }
  if (tensor->dtype != info->dtype)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: tensor %s is of type %s, and the layout says %s; dtype=%s in it changes that",
                        path, tensor->name, tensor->dtype_text, treadle_dtype_safetensors(info->dtype),
                        tensor->dtype ? treadle_dtype_name(tensor->dtype) : "...");
  return TREADLE_OK;
}

/* Finds the tensors of a rank in its file: each there once, and no others. */
static treadle_status match(treadle_source *source, int32_t file, archive *a) {
  treadle_status status = TREADLE_OK;
  megatron *m = source->state;
  treadle_hash_map names = {0};
  treadle_arena arena = {0};
  const char *path = source->files[file];
  int64_t rank = m->world.ranks[file];
  int32_t count = treadle_layout_storage_count(source->layout, rank);
  a->tensors = treadle_arena_alloc_array(&source->arena, (size_t)count, sizeof *a->tensors);
  if (!a->tensors) TRY(no_memory(path));
  for (int32_t i = 0; i < a->torch->count; i++) {
    const treadle_torch_tensor *tensor = &a->torch->tensors[i];
    const char *key = treadle_arena_format(&arena, "%s %s", tensor->entry, bare_name(tensor->name));
    if (!key) TRY(no_memory(path));
    TRY(treadle_hash_map_put(&names, key, i));
  }
  for (int32_t n = 0; n < count; n++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_layout_storage(source->layout, rank, n, &info));
    char entry[24] = "model", key[300];
    if (m->world.chunked) snprintf(entry, sizeof entry, "model%d", info.chunk);
    snprintf(key, sizeof key, "%s %s", entry, info.name);
    int64_t at = treadle_hash_map_get(&names, key, -1);
    if (at < 0)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: has no tensor %s in '%s', which the layout has there", path,
                       info.name, entry));
    a->tensors[n] = &a->torch->tensors[at];
    TRY(check_tensor(path, a->tensors[n], &info));
    TRY(treadle_entry_sums_add(&source->sums, &a->tensors[n]->storage, path, a->tensors[n]->name));
    TRY(treadle_hash_map_put(&names, key, -2)); /* taken */
  }
  for (int32_t i = 0; i < a->torch->count && a->torch->count != count; i++) {
    const treadle_torch_tensor *tensor = &a->torch->tensors[i];
    char key[600];
    snprintf(key, sizeof key, "%s %s", tensor->entry, bare_name(tensor->name));
    if (treadle_hash_map_get(&names, key, -1) != -2)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: tensor %s in '%s' is not in the layout", path, tensor->name,
                       tensor->entry));
  }
out:
  treadle_hash_map_release(&names);
  treadle_arena_release(&arena);
  return status;
}

static treadle_status open_archive(treadle_source *source, int32_t file) {
  static const treadle_torch_options options = {.entry = "model", .skipped = "_extra_state"};
  megatron *m = source->state;
  archive *a = &m->archives[file];
  treadle_status status;
  TRY(treadle_torch_open(source->files[file], &options, &a->torch));
  TRY(match(source, file, a));
  source->skipped += a->torch->skipped;
  source->opaque += a->torch->opaque;
out:
  return status;
}

/* Does each file stand where it belongs? */
static treadle_status check_places(treadle_source *source) {
  treadle_status status;
  const megatron *m = source->state;
  treadle_megatron_file *files =
      treadle_arena_alloc_array(&source->arena, (size_t)source->file_count, sizeof *files);
  if (!files) return no_memory(source->files[0]);
  for (int32_t i = 0; i < source->file_count; i++)
    files[i] =
        (treadle_megatron_file){.path = source->files[i],
                                .rank = m->world.ranks[i],
                                .torch = m->archives[i].torch,
                                .count = treadle_layout_storage_count(source->layout, m->world.ranks[i]),
                                .tensors = m->archives[i].tensors};
  TRY(treadle_megatron_check_twice(source->layout, files, source->file_count));
  TRY(treadle_megatron_check_writers(source->layout, files, source->file_count));
out:
  return status;
}

static treadle_status megatron_open(treadle_source *source, const char *folder, const char *layout_text) {
  treadle_status status;
  megatron *m = treadle_arena_alloc(&source->arena, sizeof *m);
  if (!m) return no_memory(folder);
  source->state = m;
  TRY(treadle_megatron_files_make(source->model, layout_text, &source->arena, &m->world));
  source->layout = m->world.layout;
  TRY(treadle_source_folder(source, folder, m->world.names[0], &folder));
  size_t count = (size_t)m->world.file_count;
  source->files = treadle_arena_alloc_array(&source->arena, count, sizeof *source->files);
  m->archives = treadle_arena_alloc_array(&source->arena, count, sizeof *m->archives);
  if (!source->files || !m->archives) TRY(no_memory(folder));
  for (int32_t i = 0; i < m->world.file_count; i++) {
    source->files[i] =
        treadle_arena_format(&source->arena, "%s/%s/model_optim_rng.pt", folder, m->world.names[i]);
    if (!source->files[i]) TRY(no_memory(folder));
  }
  source->file_count = m->world.file_count;
  TRY(check_folders(source, folder, &m->world));
  for (int32_t i = 0; i < source->file_count; i++) TRY(open_archive(source, i));
  TRY(check_places(source));
out:
  return status;
}

/* ---- The questions ----------------------------------------------------------------------------- */

static bool megatron_chunk(const treadle_source *source, int64_t rank, int32_t number, int32_t n,
                           treadle_stored_shard *chunk_p) {
  const megatron *m = source->state;
  if (n > 0) return false;
  int32_t file = m->world.file_of[rank];
  const treadle_torch_tensor *tensor = m->archives[file].tensors[number];
  *chunk_p = (treadle_stored_shard){.data = tensor->data, .file = file};
  for (int d = 0; d < tensor->ndim; d++) {
    chunk_p->size[d] = tensor->shape[d];
    chunk_p->stride[d] = tensor->strides[d];
  }
  return true;
}

static treadle_status megatron_places(treadle_source *source, int32_t tensor, const treadle_box *box,
                                      treadle_file_boxes *places) {
  return treadle_layout_places(source, megatron_chunk, tensor, box, places);
}

static treadle_status megatron_compare(treadle_source *source, int32_t tensor, int64_t limit,
                                       int64_t *bytes) {
  return treadle_layout_compare(source, megatron_chunk, tensor, limit, bytes);
}

static const void *megatron_image(const treadle_source *source, int32_t file) {
  const megatron *m = source->state;
  return m->archives[file].torch->image;
}

static void megatron_close(treadle_source *source) {
  megatron *m = source->state;
  for (int32_t i = 0; m && m->archives && i < m->world.file_count; i++)
    treadle_torch_close(m->archives[i].torch);
  if (m && !source->layout) treadle_layout_destroy(m->world.layout);
}

const treadle_source_type treadle_source_megatron = {"megatron",       megatron_open,  megatron_places,
                                                     megatron_compare, megatron_image, megatron_close};

/* A checkpoint: one safetensors file, or shards with an index, as one list of tensors.
 *
 * Shards are mapped read-only, so that only what is copied is ever read. The index is checked against the
 * shards in both directions: each tensor lies in the shard that the index names and nowhere else, and no
 * shard has a tensor that the index does not know. Names of shards are plain file names: an index cannot
 * point out of its folder. */
#include "io/safetensors.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/file_map.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/safetensors_header.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";

struct treadle_checkpoint_mapping {
  const void *image; /* NULL: not mapped */
  size_t bytes;
  treadle_header header;
  treadle_stored *tensors;
  int32_t count;
};

static treadle_status no_memory(const char *path) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tensors", path);
}

/* Is there an entry of this name? A link that leads nowhere is one: it is opened, and then refused by name
 * (a model that was downloaded by half is not a model without weights). */
static treadle_status look_for(const char *path, bool *found_p) {
  struct stat about;
  *found_p = lstat(path, &about) == 0;
  if (*found_p || errno == ENOENT) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot stat: %s", path, strerror(errno));
}

static treadle_status map_file(treadle_checkpoint *checkpoint, int32_t file) {
  const char *path = checkpoint->files[file];
  struct treadle_checkpoint_mapping *mapping = &checkpoint->mappings[file];
  treadle_status status;
  TRY(treadle_file_map(path, &mapping->image, &mapping->bytes));
  status = treadle_safetensors_parse(path, mapping->image, mapping->bytes, &checkpoint->arena,
                                     &mapping->tensors, &mapping->count);
  treadle_status intact = treadle_file_intact(mapping->image); /* what is gone is not a bad header */
  TRY(intact ? intact : status);
  const char *slash = strrchr(path, '/');
  size_t length =
      mapping->bytes - TREADLE_HEADER_LENGTH_BYTES; /* of header and data; the parser checked both */
  const unsigned char *start = mapping->image;
  uint64_t header_length = 0;
  for (int i = 0; i < TREADLE_HEADER_LENGTH_BYTES; i++) header_length |= (uint64_t)start[i] << (8 * i);
  mapping->header =
      (treadle_header){slash ? slash + 1 : path, (const char *)start + TREADLE_HEADER_LENGTH_BYTES,
                       (size_t)header_length, length - (size_t)header_length};
out:
  return status;
}

static treadle_status alloc_files(treadle_checkpoint *checkpoint, const char *path, size_t count) {
  checkpoint->files = treadle_arena_alloc_array(&checkpoint->arena, count, sizeof *checkpoint->files);
  checkpoint->mappings = treadle_arena_alloc_array(&checkpoint->arena, count, sizeof *checkpoint->mappings);
  return checkpoint->files && checkpoint->mappings ? TREADLE_OK : no_memory(path);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const treadle_stored *)a)->name, ((const treadle_stored *)b)->name);
}

/* Sorts the tensors and makes by_name and total_bytes. */
static treadle_status finish(treadle_checkpoint *checkpoint) {
  treadle_status status = TREADLE_OK;
  if (checkpoint->count)
    qsort(checkpoint->tensors, (size_t)checkpoint->count, sizeof *checkpoint->tensors, compare_names);
  for (int32_t i = 0; i < checkpoint->count; i++) {
    TRY(treadle_hash_map_put(&checkpoint->by_name, checkpoint->tensors[i].name, i));
    checkpoint->total_bytes += checkpoint->tensors[i].bytes;
  }
out:
  return status;
}

static treadle_status open_single(treadle_checkpoint *checkpoint, const char *path) {
  treadle_status status;
  TRY(alloc_files(checkpoint, path, 1));
  checkpoint->files[0] = treadle_arena_copy_text(&checkpoint->arena, path);
  if (!checkpoint->files[0]) {
    status = no_memory(path);
    goto out;
  }
  checkpoint->file_count = 1;
  TRY(map_file(checkpoint, 0));
  checkpoint->tensors = checkpoint->mappings[0].tensors;
  checkpoint->count = checkpoint->mappings[0].count;
  TRY(finish(checkpoint));
out:
  return status;
}

/* The file number of a shard, which the first mention adds. `numbers` is from shard name to number. */
static treadle_status add_shard(treadle_checkpoint *checkpoint, const char *path, treadle_hash_map *numbers,
                                const char *tensor, const char *shard, int32_t *file_p) {
  treadle_status status = TREADLE_OK;
  int64_t number = treadle_hash_map_get(numbers, shard, -1);
  if (number < 0) {
    if (strchr(shard, '/') || !*shard || strcmp(shard, ".") == 0 || strcmp(shard, "..") == 0) {
      status = treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': shard '%s' is not a plain file name", path,
                            tensor, shard);
      goto out;
    }
    const char *slash = strrchr(path, '/');
    number = checkpoint->file_count;
    checkpoint->files[number] = treadle_arena_format(&checkpoint->arena, "%.*s%s",
                                                     slash ? (int)(slash + 1 - path) : 0, path, shard);
    if (!checkpoint->files[number]) {
      status = no_memory(path);
      goto out;
    }
    TRY(treadle_hash_map_put(numbers, shard, number));
    checkpoint->file_count++;
  }
  *file_p = (int32_t)number;
out:
  return status;
}

/* Reads weight_map: tensors with name and file, files. */
static treadle_status read_index(treadle_checkpoint *checkpoint, const char *path) {
  json_t *root = NULL, *shard;
  const char *name;
  treadle_hash_map numbers = {0};
  treadle_status status;
  TRY(treadle_json_load(path, &root));
  json_t *weight_map = json_object_get(root, "weight_map");
  if (!treadle_json_is_object(weight_map)) {
    status = treadle_fail(TREADLE_REFUSED, "%s: has no object weight_map", path);
    goto out;
  }
  size_t names = json_object_size(weight_map);
  if (names > INT32_MAX) {
    status = treadle_fail(TREADLE_REFUSED, "%s: %zu tensors, at most 2^31 - 1", path, names);
    goto out;
  }
  TRY(alloc_files(checkpoint, path, names)); /* at most one file a tensor */
  checkpoint->tensors = treadle_arena_alloc_array(&checkpoint->arena, names, sizeof *checkpoint->tensors);
  if (!checkpoint->tensors) {
    status = no_memory(path);
    goto out;
  }
  json_object_foreach(weight_map, name, shard) {
    if (strstr(name, TREADLE_JSON_ZERO)) {
      status =
          treadle_fail(TREADLE_REFUSED, "%s: the name of tensor '%.80s' has a zero character", path, name);
      goto out;
    }
    if (!json_is_string(shard)) {
      status = treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': its shard is not a text%s", path, name,
                            treadle_json_note(shard));
      goto out;
    }
    treadle_stored *tensor = &checkpoint->tensors[checkpoint->count];
    TRY(add_shard(checkpoint, path, &numbers, name, json_string_value(shard), &tensor->file));
    tensor->name = treadle_arena_copy_text(&checkpoint->arena, name);
    if (!tensor->name) {
      status = no_memory(path);
      goto out;
    }
    tensor->ndim = -1;
    checkpoint->count++;
  }
  TRY(finish(checkpoint));
out:
  treadle_hash_map_release(&numbers); /* its keys are those of root */
  json_decref(root);
  return status;
}

/* Puts the tensors of one shard in the place of the index's entries. */
static treadle_status take_shard(treadle_checkpoint *checkpoint, const char *path, int32_t file) {
  const struct treadle_checkpoint_mapping *mapping = &checkpoint->mappings[file];
  for (int32_t i = 0; i < mapping->count; i++) {
    const char *name = mapping->tensors[i].name;
    int64_t at = treadle_hash_map_get(&checkpoint->by_name, name, -1);
    if (at < 0)
      return treadle_fail(TREADLE_REFUSED, "%s: has tensor '%s', which %s does not know",
                          checkpoint->files[file], name, path);
    treadle_stored *tensor = &checkpoint->tensors[at];
    if (tensor->file != file)
      return treadle_fail(TREADLE_REFUSED, "%s: has tensor '%s', which %s places in %s",
                          checkpoint->files[file], name, path, checkpoint->files[tensor->file]);
    const char *key = tensor->name; /* by_name holds this pointer */
    *tensor = mapping->tensors[i];
    tensor->name = key;
    tensor->file = file;
    checkpoint->total_bytes += tensor->bytes;
  }
  return TREADLE_OK;
}

static treadle_status open_shards(treadle_checkpoint *checkpoint, const char *path) {
  treadle_status status;
  TRY(read_index(checkpoint, path));
  for (int32_t file = 0; file < checkpoint->file_count; file++) {
    TRY(map_file(checkpoint, file));
    TRY(take_shard(checkpoint, path, file));
  }
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const treadle_stored *tensor = &checkpoint->tensors[i];
    if (tensor->ndim >= 0) continue;
    status = treadle_fail(TREADLE_REFUSED, "%s: lacks tensor '%s', which %s places there",
                          checkpoint->files[tensor->file], tensor->name, path);
    goto out;
  }
out:
  return status;
}

/* What a folder has: its single file, its index, or neither; *path_p is NULL then. `scratch` keeps it. */
static treadle_status choose(const char *folder, treadle_arena *scratch, const char **path_p,
                             bool *sharded_p) {
  const char *const names[] = {SINGLE, INDEX};
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < 2; i++) {
    bool found;
    const char *path = treadle_arena_format(scratch, "%s/%s", folder, names[i]);
    if (!path) {
      status = no_memory(folder);
      goto out;
    }
    TRY(look_for(path, &found));
    if (!found) continue;
    *path_p = path;
    *sharded_p = i == 1;
    goto out;
  }
out:
  return status;
}

static treadle_status create(const char *path, treadle_checkpoint **checkpoint_p) {
  *checkpoint_p = treadle_alloc(sizeof **checkpoint_p);
  return *checkpoint_p ? TREADLE_OK : no_memory(path);
}

static bool is_read(const treadle_checkpoint *checkpoint, const char *name) {
  for (int32_t i = 0; i < checkpoint->file_count; i++) {
    const char *slash = strrchr(checkpoint->files[i], '/');
    if (strcmp(slash ? slash + 1 : checkpoint->files[i], name) == 0) return true;
  }
  return false;
}

/* Notes what weights lie in the folder beside those that are read. */
static treadle_status note_others(treadle_checkpoint *checkpoint, const char *folder, bool sharded) {
  static const char end[] = ".safetensors";
  treadle_folder_names names = {0};
  const char *first = NULL;
  int count = 0;
  treadle_status status;
  TRY(treadle_folder_list(folder, &checkpoint->arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    const char *name = names.items[i];
    size_t length = strlen(name);
    if (length < sizeof end || strcmp(name + length - (sizeof end - 1), end) != 0 ||
        is_read(checkpoint, name))
      continue;
    if (!first || strcmp(name, first) < 0) first = name;
    count++;
  }
  if (!first) goto out;
  char more[40] = "";
  if (count > 1) snprintf(more, sizeof more, " and %d more", count - 1);
  checkpoint->note = treadle_arena_format(
      &checkpoint->arena, "%s%s not read: %s", treadle_text_shown(first),
      count > 1 ? strcat(more, " are") : " is",
      sharded ? "the index does not name it" : "model.safetensors has precedence, as in transformers");
  if (!checkpoint->note) status = no_memory(folder);
out:
  treadle_array_release(&names);
  return status;
}

treadle_status treadle_checkpoint_open(const char *path, treadle_checkpoint **checkpoint_p) {
  treadle_checkpoint *checkpoint = NULL;
  treadle_arena scratch = {0};
  const char *folder = NULL;
  bool sharded = false;
  treadle_status status;
  *checkpoint_p = NULL;
  if (treadle_file_is_folder(path)) {
    const char *chosen = NULL;
    TRY(choose(path, &scratch, &chosen, &sharded));
    if (!chosen) goto out;
    folder = path;
    path = chosen;
  }
  TRY(create(path, &checkpoint));
  TRY(sharded ? open_shards(checkpoint, path) : open_single(checkpoint, path));
  if (folder) TRY(note_others(checkpoint, folder, sharded));
  *checkpoint_p = checkpoint;
  checkpoint = NULL;
out:
  treadle_checkpoint_close(checkpoint);
  treadle_arena_release(&scratch);
  return status;
}

treadle_status treadle_checkpoint_open_index(const char *path, treadle_checkpoint **checkpoint_p) {
  treadle_checkpoint *checkpoint = NULL;
  treadle_status status;
  *checkpoint_p = NULL;
  TRY(create(path, &checkpoint));
  checkpoint->index_only = true;
  TRY(read_index(checkpoint, path));
  *checkpoint_p = checkpoint;
  checkpoint = NULL;
out:
  treadle_checkpoint_close(checkpoint);
  return status;
}

treadle_status treadle_checkpoint_open_list(const char *path, treadle_checkpoint **checkpoint_p) {
  treadle_checkpoint *checkpoint = NULL;
  treadle_status status;
  *checkpoint_p = NULL;
  TRY(create(path, &checkpoint));
  TRY(treadle_tensor_list_read(path, &checkpoint->arena, &checkpoint->tensors, &checkpoint->count));
  TRY(finish(checkpoint));
  *checkpoint_p = checkpoint;
  checkpoint = NULL;
out:
  treadle_checkpoint_close(checkpoint);
  return status;
}

treadle_header treadle_checkpoint_header(const treadle_checkpoint *checkpoint, int32_t file) {
  return checkpoint->mappings[file].header;
}

/* One header: its text in the arena, its tensors listed. */
static treadle_status take_header(treadle_checkpoint *checkpoint, const char *what,
                                  const treadle_header *header) {
  struct treadle_checkpoint_mapping *mapping = &checkpoint->mappings[checkpoint->file_count];
  treadle_arena *arena = &checkpoint->arena;
  treadle_status status;
  char *text = treadle_arena_alloc(arena, header->length + 1);
  const char *file = treadle_arena_copy_text(arena, header->file);
  if (!text || !file) return no_memory(what);
  memcpy(text, header->text, header->length);
  mapping->header = (treadle_header){file, text, header->length, header->data_bytes};
  checkpoint->files[checkpoint->file_count++] = file;
  TRY(treadle_safetensors_read_header(what, &mapping->header, NULL, arena, &mapping->tensors,
                                      &mapping->count));
  checkpoint->count += mapping->count;
out:
  return status;
}

treadle_status treadle_checkpoint_from_headers(const char *what, const treadle_header *headers,
                                               int32_t count, treadle_checkpoint **checkpoint_p) {
  treadle_checkpoint *checkpoint = NULL;
  treadle_status status;
  *checkpoint_p = NULL;
  TRY(create(what, &checkpoint));
  TRY(alloc_files(checkpoint, what, (size_t)count));
  for (int32_t i = 0; i < count; i++) TRY(take_header(checkpoint, what, &headers[i]));
  checkpoint->tensors =
      treadle_arena_alloc_array(&checkpoint->arena, (size_t)checkpoint->count, sizeof *checkpoint->tensors);
  if (!checkpoint->tensors) {
    status = no_memory(what);
    goto out;
  }
  int32_t at = 0;
  for (int32_t file = 0; file < count; file++)
    for (int32_t i = 0; i < checkpoint->mappings[file].count; i++) {
      checkpoint->tensors[at] = checkpoint->mappings[file].tensors[i];
      checkpoint->tensors[at++].file = file;
    }
  TRY(finish(checkpoint));
  if ((int32_t)checkpoint->by_name.count != checkpoint->count) {
    status = treadle_fail(TREADLE_REFUSED, "%s: two files have a tensor of one name", what);
    goto out;
  }
  *checkpoint_p = checkpoint;
  checkpoint = NULL;
out:
  treadle_checkpoint_close(checkpoint);
  return status;
}

treadle_status treadle_checkpoint_unchanged(const treadle_checkpoint *checkpoint) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; checkpoint && i < checkpoint->file_count && checkpoint->mappings; i++)
    TRY(treadle_file_unchanged(checkpoint->mappings[i].image));
out:
  return status;
}

const void *treadle_checkpoint_image(const treadle_checkpoint *checkpoint, int32_t file) {
  return checkpoint->mappings ? checkpoint->mappings[file].image : NULL;
}

void treadle_checkpoint_close(treadle_checkpoint *checkpoint) {
  if (!checkpoint) return;
  for (int32_t i = 0; i < checkpoint->file_count; i++)
    treadle_file_unmap(checkpoint->mappings[i].image, checkpoint->mappings[i].bytes);
  treadle_hash_map_release(&checkpoint->by_name);
  treadle_arena_release(&checkpoint->arena);
  treadle_free(checkpoint);
}

const treadle_stored *treadle_checkpoint_find(const treadle_checkpoint *checkpoint, const char *name) {
  int64_t at = treadle_hash_map_get(&checkpoint->by_name, name, -1);
  return at < 0 ? NULL : &checkpoint->tensors[at];
}

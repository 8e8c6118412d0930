/* Reading checkpoints of torch.distributed.checkpoint.
 *
 * First the metadata alone: keys, sizes, chunks, and where each chunk is stored, found by key and offset as torch
 * finds it. Then each chunk's archive is opened where it lies, and its tensor must be of the type and size that
 * the metadata says. */
#include "io/torch_dist.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/text.h"
#include "io/file.h"
#include "io/torch_chunks.h"
#include "io/torch_types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIMS = 8, MOST_METADATA = 1 << 30 };

static const char CHECKPOINT[] = "torch.distributed.checkpoint.metadata";

struct treadle_dist_file {
  const char *path;
  const void *image;
  size_t bytes;
};

/* Where a chunk is stored. */
typedef struct stored {
  const char *file;
  int64_t offset, length;
} stored;

typedef struct reader {
  const char *what; /* of the metadata, in messages */
  const char *skipped;
  treadle_torch_dist *dist;
  treadle_map places; /* key and offset of a chunk to its number in stored */
  stored *stored;
  stored **of_chunk; /* [all chunks in the order of the tensors] */
  size_t chunk_count;
} reader;

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tensors", what);
}

static treadle_status bad_key(const reader *r, const char *key, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s: '%s': %s", r->what, key, why);
}

/* ---- Values of the metadata ---------------------------------------------------------------------- */

/* The attributes of an object of the class `name`, of whatever module (they moved between versions). */
static const treadle_items *attributes(const treadle_value *value, const char *name) {
  if (!value || value->kind != TREADLE_VALUE_CALL || value->is.call->callee->kind != TREADLE_VALUE_GLOBAL ||
      strcmp(value->is.call->callee->is.global.name, name) != 0 ||
      !treadle_text_starts(value->is.call->callee->is.global.module, "torch.distributed."))
    return NULL;
  return treadle_value_pairs(value->is.call->state);
}

static bool read_numbers(const treadle_value *value, int64_t *numbers, int *count_p) {
  const treadle_items *items = treadle_value_sequence(value);
  if (!items || items->count > MOST_DIMS) return false;
  for (uint32_t i = 0; i < items->count; i++)
    if (!treadle_value_int(items->values[i], &numbers[i]) || numbers[i] < 0) return false;
  *count_p = (int)items->count;
  return true;
}

/* "key|1,2," : what a chunk is found by. */
static const char *place_text(const reader *r, const char *key, const int64_t *offset, int ndim) {
  treadle_builder builder = {0};
  treadle_builder_add(&builder, "%s|", key);
  for (int i = 0; i < ndim; i++) treadle_builder_add(&builder, "%" PRId64 ",", offset[i]);
  const char *text = builder.failed ? NULL : treadle_arena_copy_text(&r->dist->arena, builder.text);
  treadle_builder_release(&builder);
  return text;
}

/* storage_data: {MetadataIndex(fqn, offset, index): _StorageInfo(relative_path, offset, length)}. Entries without
 * an offset are bytes. */
static treadle_status read_places(reader *r, const treadle_items *pairs) {
  treadle_status status = TREADLE_OK;
  r->stored = treadle_arena_alloc_array(&r->dist->arena, pairs->count / 2, sizeof *r->stored);
  if (!r->stored) {
    status = no_memory(r->what);
    goto out;
  }
  for (uint32_t i = 0; i < pairs->count; i += 2) {
    const treadle_items *index = attributes(pairs->values[i], "MetadataIndex");
    const treadle_items *info = attributes(pairs->values[i + 1], "_StorageInfo");
    const char *key = treadle_value_text(treadle_pairs_get(index, "fqn"));
    const treadle_value *offset = treadle_pairs_get(index, "offset");
    stored *place = &r->stored[i / 2];
    int64_t start[MOST_DIMS];
    int ndim = 0;
    if (!key || !info) {
      status = treadle_fail(TREADLE_REFUSED,
                            "%s: entry %u of storage_data is no MetadataIndex with a "
                            "_StorageInfo",
                            r->what, i / 2);
      goto out;
    }
    if (!offset || offset->kind == TREADLE_VALUE_NONE) continue;
    const treadle_value *packed = treadle_pairs_get(info, "transform_descriptors");
    place->file = treadle_value_text(treadle_pairs_get(info, "relative_path"));
    if (!read_numbers(offset, start, &ndim) || !place->file ||
        !treadle_value_int(treadle_pairs_get(info, "offset"), &place->offset) || place->offset < 0 ||
        !treadle_value_int(treadle_pairs_get(info, "length"), &place->length) || place->length < 0) {
      status = bad_key(r, key, "where it is stored is not a file, an offset and a length");
      goto out;
    }
    if (packed && packed->kind != TREADLE_VALUE_NONE) {
      status = bad_key(r, key, "is stored in a packed form, which is not read");
      goto out;
    }
    const char *text = place_text(r, key, start, ndim);
    if (!text) {
      status = no_memory(r->what);
      goto out;
    }
    if (treadle_map_get(&r->places, text, -1) >= 0) {
      status = bad_key(r, key, "has a chunk that is stored twice");
      goto out;
    }
    TRY(treadle_map_put(&r->places, text, i / 2));
  }
out:
  return status;
}

static bool is_skipped(const reader *r, const char *key) {
  if (!r->skipped) return false;
  size_t length = strlen(r->skipped);
  for (const char *at = key; (at = strstr(at, r->skipped)); at++)
    if (at[length] == 0 || at[length] == '/') return true;
  return false;
}

/* TensorProperties: its state is a tuple (dtype, ...), or attributes. */
static const treadle_torch_type *type_of(const treadle_value *properties) {
  if (!properties || properties->kind != TREADLE_VALUE_CALL) return NULL;
  const treadle_items *state = treadle_value_sequence(properties->is.call->state);
  const treadle_value *dtype = state && state->count
                                   ? state->values[0]
                                   : treadle_pairs_get(attributes(properties, "TensorProperties"), "dtype");
  if (!dtype || dtype->kind != TREADLE_VALUE_GLOBAL || strcmp(dtype->is.global.module, "torch") != 0)
    return NULL;
  return treadle_torch_type_named(dtype->is.global.name);
}

static treadle_status read_chunks(reader *r, treadle_dist_tensor *tensor, const treadle_items *chunks) {
  treadle_status status;
  tensor->chunks = treadle_arena_alloc_array(&r->dist->arena, chunks->count, sizeof *tensor->chunks);
  if (!tensor->chunks) {
    status = no_memory(r->what);
    goto out;
  }
  tensor->chunk_count = (int32_t)chunks->count;
  for (uint32_t i = 0; i < chunks->count; i++) {
    const treadle_items *chunk = attributes(chunks->values[i], "ChunkStorageMetadata");
    int offsets = 0, sizes = 0;
    if (!read_numbers(treadle_pairs_get(chunk, "offsets"), tensor->chunks[i].offset, &offsets) ||
        !read_numbers(treadle_pairs_get(chunk, "sizes"), tensor->chunks[i].size, &sizes) ||
        offsets != tensor->ndim || sizes != tensor->ndim) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s': chunk %u has no offset and size of %d numbers",
                            r->what, tensor->key, i, tensor->ndim);
      goto out;
    }
  }
  TRY(treadle_torch_check_chunks(r->what, tensor));
out:
  return status;
}

static treadle_status read_tensor(reader *r, const char *key, const treadle_items *metadata) {
  treadle_dist_tensor *tensor = &r->dist->tensors[r->dist->count];
  treadle_torch_tensor measured = {0};
  const treadle_torch_type *type = type_of(treadle_pairs_get(metadata, "properties"));
  const treadle_items *chunks = treadle_value_sequence(treadle_pairs_get(metadata, "chunks"));
  treadle_status status;
  if (!type) {
    status = bad_key(r, key, "its element type is not known");
    goto out;
  }
  if (!chunks || !read_numbers(treadle_pairs_get(metadata, "size"), measured.shape, &measured.ndim) ||
      !treadle_torch_measure(type, &measured)) {
    status = bad_key(r, key, "has no list of chunks, or no size of at most 8 numbers");
    goto out;
  }
  tensor->key = key;
  tensor->dtype = measured.dtype;
  tensor->dtype_text = measured.dtype_text;
  tensor->ndim = measured.ndim;
  memcpy(tensor->shape, measured.shape, sizeof tensor->shape);
  tensor->elems = measured.elems;
  tensor->bytes = measured.bytes;
  TRY(read_chunks(r, tensor, chunks));
  r->chunk_count += (size_t)tensor->chunk_count;
  r->dist->total_bytes += tensor->bytes;
  r->dist->count++;
out:
  return status;
}

static treadle_status read_tensors(reader *r, const treadle_items *pairs) {
  treadle_map keys = {0};
  treadle_status status = TREADLE_OK;
  r->dist->tensors = treadle_arena_alloc_array(&r->dist->arena, pairs->count / 2, sizeof *r->dist->tensors);
  if (!r->dist->tensors) {
    status = no_memory(r->what);
    goto out;
  }
  for (uint32_t i = 0; i < pairs->count; i += 2) {
    const char *key = treadle_value_text(pairs->values[i]);
    const treadle_items *metadata = attributes(pairs->values[i + 1], "TensorStorageMetadata");
    if (!key) {
      status =
          treadle_fail(TREADLE_REFUSED, "%s: key %u of state_dict_metadata is no text", r->what, i / 2);
      goto out;
    }
    if (treadle_map_get(&keys, key, -1) >= 0) {
      status = bad_key(r, key, "is there twice");
      goto out;
    }
    TRY(treadle_map_put(&keys, key, i));
    const treadle_value *value = pairs->values[i + 1];
    bool is_bytes = value->kind == TREADLE_VALUE_CALL &&
                    treadle_value_is_global(value->is.call->callee, CHECKPOINT, "BytesStorageMetadata");
    if (is_bytes || is_skipped(r, key)) {
      r->dist->skipped++;
    } else if (metadata) {
      TRY(read_tensor(r, key, metadata));
    } else {
      char words[256];
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s' is neither a tensor nor bytes but %s", r->what, key,
                            treadle_value_words(value, words, sizeof words));
      goto out;
    }
  }
out:
  treadle_map_release(&keys);
  return status;
}

/* Where each chunk of each tensor is stored. Chunks without elements need not be. */
static treadle_status find_places(reader *r) {
  treadle_status status = TREADLE_OK;
  size_t next = 0;
  r->of_chunk = treadle_arena_alloc_array(&r->dist->arena, r->chunk_count, sizeof *r->of_chunk);
  if (!r->of_chunk) {
    status = no_memory(r->what);
    goto out;
  }
  for (int32_t i = 0; i < r->dist->count; i++) {
    const treadle_dist_tensor *tensor = &r->dist->tensors[i];
    for (int32_t c = 0; c < tensor->chunk_count; c++) {
      const char *text = place_text(r, tensor->key, tensor->chunks[c].offset, tensor->ndim);
      int64_t place = text ? treadle_map_get(&r->places, text, -1) : -1;
      if (!text) {
        status = no_memory(r->what);
        goto out;
      }
      if (place < 0) {
        status = treadle_fail(TREADLE_REFUSED, "%s: '%s': chunk %d is not in storage_data", r->what,
                              tensor->key, c);
        goto out;
      }
      r->of_chunk[next++] = &r->stored[place];
    }
  }
out:
  return status;
}

static treadle_status read_metadata(reader *r, const void *image, size_t bytes) {
  treadle_value *top = NULL;
  treadle_status status;
  TRY(treadle_pickle_read(r->what, image, bytes, &r->dist->arena, &top));
  const treadle_items *metadata = attributes(top, "Metadata");
  const treadle_items *tensors = treadle_value_pairs(treadle_pairs_get(metadata, "state_dict_metadata"));
  const treadle_items *places = treadle_value_pairs(treadle_pairs_get(metadata, "storage_data"));
  if (!tensors || !places) {
    char words[256];
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: is %s, not a Metadata of torch.distributed.checkpoint with its two dicts",
                          r->what, treadle_value_words(top, words, sizeof words));
    goto out;
  }
  TRY(read_places(r, places));
  TRY(read_tensors(r, tensors));
  TRY(find_places(r));
out:
  return status;
}

/* ---- The chunks' data ---------------------------------------------------------------------------- */

/* The file of a chunk, which the first mention maps. `numbers` is from name to number. */
static treadle_status map_file(reader *r, const char *folder, const char *name, treadle_map *numbers,
                               const struct treadle_dist_file **file_p) {
  treadle_status status = TREADLE_OK;
  int64_t number = treadle_map_get(numbers, name, -1);
  if (number < 0) {
    if (strchr(name, '/') || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a plain file name", r->what, name);
      goto out;
    }
    struct treadle_dist_file *file = &r->dist->files[r->dist->file_count];
    file->path = treadle_arena_format(&r->dist->arena, "%s/%s", folder, name);
    if (!file->path) {
      status = no_memory(r->what);
      goto out;
    }
    TRY(treadle_map_put(numbers, name, r->dist->file_count));
    TRY(treadle_file_map(file->path, &file->image, &file->bytes));
    number = r->dist->file_count++;
  }
  *file_p = &r->dist->files[number];
out:
  return status;
}

static treadle_status open_chunk(const treadle_dist_tensor *tensor, treadle_dist_chunk *chunk,
                                 const struct treadle_dist_file *file, const stored *place) {
  treadle_arena scratch = {0};
  treadle_torch_tensor found = {0};
  treadle_status status;
  if ((uint64_t)place->offset > file->bytes ||
      (uint64_t)place->length > file->bytes - (size_t)place->offset) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: '%s': a chunk has %" PRId64 " bytes from byte %" PRId64 ", the file has %zu",
                          file->path, tensor->key, place->length, place->offset, file->bytes);
    goto out;
  }
  status = treadle_torch_parse_tensor(file->path, (const unsigned char *)file->image + place->offset,
                                      (size_t)place->length, &scratch, &found);
  if (status != TREADLE_OK) {
    treadle_fail_in(status, "'%s', at byte %" PRId64 ": ", tensor->key, place->offset);
    goto out;
  }
  if (found.ndim != tensor->ndim || memcmp(found.shape, chunk->size, sizeof found.shape) != 0 ||
      strcmp(found.dtype_text, tensor->dtype_text) != 0) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: '%s': the chunk at byte %" PRId64
                          " has another type or size than the metadata says",
                          file->path, tensor->key, place->offset);
    goto out;
  }
  memcpy(chunk->strides, found.strides, sizeof chunk->strides);
  chunk->contiguous = found.contiguous;
  chunk->data = found.data;
  chunk->bytes = found.bytes;
out:
  treadle_arena_release(&scratch);
  return status;
}

static treadle_status open_chunks(reader *r, const char *folder) {
  treadle_map numbers = {0};
  treadle_status status = TREADLE_OK;
  size_t next = 0;
  r->dist->files = treadle_arena_alloc_array(&r->dist->arena, r->chunk_count, sizeof *r->dist->files);
  if (!r->dist->files) {
    status = no_memory(r->what);
    goto out;
  }
  for (int32_t i = 0; i < r->dist->count; i++) {
    treadle_dist_tensor *tensor = &r->dist->tensors[i];
    for (int32_t c = 0; c < tensor->chunk_count; c++) {
      const stored *place = r->of_chunk[next++];
      const struct treadle_dist_file *file = NULL;
      TRY(map_file(r, folder, place->file, &numbers, &file));
      TRY(open_chunk(tensor, &tensor->chunks[c], file, place));
    }
  }
out:
  treadle_map_release(&numbers);
  return status;
}

/* `folder` NULL: the metadata alone. */
static treadle_status read_all(const char *what, const void *image, size_t bytes, const char *folder,
                               const char *skipped, treadle_torch_dist **dist_p) {
  reader r = {.what = what, .skipped = skipped};
  treadle_status status;
  *dist_p = NULL;
  r.dist = treadle_alloc(sizeof *r.dist);
  if (!r.dist) {
    status = no_memory(what);
    goto out;
  }
  TRY(read_metadata(&r, image, bytes));
  if (folder) TRY(open_chunks(&r, folder));
  *dist_p = r.dist;
  r.dist = NULL;
out:
  treadle_map_release(&r.places);
  treadle_torch_dist_close(r.dist);
  return status;
}

treadle_status treadle_torch_dist_parse(const char *what, const void *image, size_t bytes,
                                        const char *skipped, treadle_torch_dist **dist_p) {
  return read_all(what, image, bytes, NULL, skipped, dist_p);
}

treadle_status treadle_torch_dist_open(const char *folder, const char *skipped,
                                       treadle_torch_dist **dist_p) {
  treadle_arena scratch = {0};
  char *image = NULL;
  size_t bytes = 0;
  treadle_status status;
  *dist_p = NULL;
  const char *path = treadle_arena_format(&scratch, "%s/.metadata", folder);
  if (!path) {
    status = no_memory(folder);
    goto out;
  }
  TRY(treadle_file_read(path, MOST_METADATA, &image, &bytes));
  TRY(read_all(path, image, bytes, folder, skipped, dist_p));
out:
  treadle_free(image);
  treadle_arena_release(&scratch);
  return status;
}

void treadle_torch_dist_close(treadle_torch_dist *dist) {
  if (!dist) return;
  for (int32_t i = 0; i < dist->file_count; i++)
    treadle_file_unmap(dist->files[i].image, dist->files[i].bytes);
  treadle_arena_release(&dist->arena);
  treadle_free(dist);
}

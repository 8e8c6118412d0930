/* The metadata of torch.distributed.checkpoint: keys, types, sizes, chunks, and where each chunk is
 * stored, found by key and offset as torch finds it. */
#include "io/torch_dist_metadata.h"

#include "base/text.h"
#include "io/torch_chunks.h"
#include "io/torch_types.h"

#include <inttypes.h>
#include <string.h>

static const char CHECKPOINT[] = "torch.distributed.checkpoint.metadata";

treadle_status treadle_dist_no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tensors", what);
}

static treadle_status bad_key(const treadle_dist_reader *r, const char *key, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s: '%s': %s", r->what, key, why);
}

/* The attributes of an object of the class `name`, of whatever module (they moved between versions). */
static const treadle_pickle_items *attributes(const treadle_value *value, const char *name) {
  if (!value || value->type != TREADLE_VALUE_CALL || value->is.call->callee->type != TREADLE_VALUE_GLOBAL ||
      strcmp(value->is.call->callee->is.global.name, name) != 0 ||
      !treadle_text_starts(value->is.call->callee->is.global.module, "torch.distributed."))
    return NULL;
  return treadle_value_pairs(value->is.call->state);
}

/* "key|1,2," : what a chunk is found by. */
static const char *place_text(const treadle_dist_reader *r, const char *key, const int64_t *offset,
                              int ndim) {
  treadle_builder builder = {0};
  treadle_builder_add(&builder, "%s|", key);
  for (int i = 0; i < ndim; i++) treadle_builder_add(&builder, "%" PRId64 ",", offset[i]);
  const char *text = builder.failed ? NULL : treadle_arena_copy_text(&r->dist->arena, builder.text);
  treadle_builder_release(&builder);
  return text;
}

/* storage_data: {MetadataIndex(fqn, offset, index): _StorageInfo(relative_path, offset, length)}.
 * Entries without an offset are bytes. */
static treadle_status read_places(treadle_dist_reader *r, const treadle_pickle_items *pairs) {
  treadle_status status = TREADLE_OK;
  r->stored = treadle_arena_alloc_array(&r->dist->arena, pairs->count / 2, sizeof *r->stored);
  if (!r->stored) {
    status = treadle_dist_no_memory(r->what);
    goto out;
  }
  for (uint32_t i = 0; i < pairs->count; i += 2) {
    const treadle_pickle_items *index = attributes(pairs->values[i], "MetadataIndex");
    const treadle_pickle_items *info = attributes(pairs->values[i + 1], "_StorageInfo");
    const char *key = treadle_value_text(treadle_pairs_get(index, "fqn"));
    const treadle_value *offset = treadle_pairs_get(index, "offset");
    treadle_dist_extent *place = &r->stored[i / 2];
    int64_t start[8];
    int ndim = 0;
    if (!key || !info) {
      status = treadle_fail(TREADLE_REFUSED,
                            "%s: entry %u of storage_data is not a MetadataIndex with a "
                            "_StorageInfo",
                            r->what, i / 2);
      goto out;
    }
    if (!offset || offset->type == TREADLE_VALUE_NONE) continue;
    const treadle_value *packed = treadle_pairs_get(info, "transform_descriptors");
    place->file = treadle_value_text(treadle_pairs_get(info, "relative_path"));
    if (!treadle_value_numbers(offset, start, &ndim) || !place->file ||
        !treadle_value_int(treadle_pairs_get(info, "offset"), &place->offset) || place->offset < 0 ||
        !treadle_value_int(treadle_pairs_get(info, "length"), &place->length) || place->length < 0) {
      status = bad_key(r, key, "where it is stored is not a file, an offset and a length");
      goto out;
    }
    if (packed && packed->type != TREADLE_VALUE_NONE) {
      status = bad_key(r, key, "is stored in a packed form, which is not read");
      goto out;
    }
    const char *text = place_text(r, key, start, ndim);
    if (!text) {
      status = treadle_dist_no_memory(r->what);
      goto out;
    }
    if (treadle_hash_map_get(&r->places, text, -1) >= 0) {
      status = bad_key(r, key, "has a chunk that is stored twice");
      goto out;
    }
    TRY(treadle_hash_map_put(&r->places, text, i / 2));
  }
out:
  return status;
}

static bool is_skipped(const treadle_dist_reader *r, const char *key) {
  if (!r->skipped) return false;
  size_t length = strlen(r->skipped);
  for (const char *at = key; (at = strstr(at, r->skipped)); at++)
    if (at[length] == 0 || at[length] == '/') return true;
  return false;
}

/* TensorProperties: its state is a tuple (dtype, ...), or attributes. */
static const treadle_torch_type *type_of(const treadle_value *properties) {
  if (!properties || properties->type != TREADLE_VALUE_CALL) return NULL;
  const treadle_pickle_items *state = treadle_value_sequence(properties->is.call->state);
  const treadle_value *dtype = state && state->count
                                   ? state->values[0]
                                   : treadle_pairs_get(attributes(properties, "TensorProperties"), "dtype");
  if (!dtype || dtype->type != TREADLE_VALUE_GLOBAL || strcmp(dtype->is.global.module, "torch") != 0)
    return NULL;
  return treadle_torch_type_named(dtype->is.global.name);
}

static treadle_status read_chunks(treadle_dist_reader *r, treadle_dist_tensor *tensor,
                                  const treadle_pickle_items *chunks) {
  treadle_status status;
  tensor->chunks = treadle_arena_alloc_array(&r->dist->arena, chunks->count, sizeof *tensor->chunks);
  if (!tensor->chunks) {
    status = treadle_dist_no_memory(r->what);
    goto out;
  }
  tensor->chunk_count = (int32_t)chunks->count;
  for (uint32_t i = 0; i < chunks->count; i++) {
    const treadle_pickle_items *chunk = attributes(chunks->values[i], "ChunkStorageMetadata");
    int offsets = 0, sizes = 0;
    if (!treadle_value_numbers(treadle_pairs_get(chunk, "offsets"), tensor->chunks[i].offset, &offsets) ||
        !treadle_value_numbers(treadle_pairs_get(chunk, "sizes"), tensor->chunks[i].size, &sizes) ||
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

static treadle_status read_tensor(treadle_dist_reader *r, const char *key,
                                  const treadle_pickle_items *metadata) {
  treadle_dist_tensor *tensor = &r->dist->tensors[r->dist->count];
  treadle_torch_tensor measured = {0};
  const treadle_torch_type *type = type_of(treadle_pairs_get(metadata, "properties"));
  const treadle_pickle_items *chunks = treadle_value_sequence(treadle_pairs_get(metadata, "chunks"));
  treadle_status status;
  if (!type) {
    status = bad_key(r, key, "its element type is not known");
    goto out;
  }
  if (!chunks ||
      !treadle_value_numbers(treadle_pairs_get(metadata, "size"), measured.shape, &measured.ndim) ||
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

static treadle_status read_tensors(treadle_dist_reader *r, const treadle_pickle_items *pairs) {
  treadle_hash_map keys = {0};
  treadle_status status = TREADLE_OK;
  r->dist->tensors = treadle_arena_alloc_array(&r->dist->arena, pairs->count / 2, sizeof *r->dist->tensors);
  if (!r->dist->tensors) {
    status = treadle_dist_no_memory(r->what);
    goto out;
  }
  for (uint32_t i = 0; i < pairs->count; i += 2) {
    const char *key = treadle_value_text(pairs->values[i]);
    const treadle_pickle_items *metadata = attributes(pairs->values[i + 1], "TensorStorageMetadata");
    if (!key) {
      status =
          treadle_fail(TREADLE_REFUSED, "%s: key %u of state_dict_metadata is not a text", r->what, i / 2);
      goto out;
    }
    if (treadle_hash_map_get(&keys, key, -1) >= 0) {
      status = bad_key(r, key, "is there twice");
      goto out;
    }
    TRY(treadle_hash_map_put(&keys, key, i));
    const treadle_value *value = pairs->values[i + 1];
    bool is_bytes = value->type == TREADLE_VALUE_CALL &&
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
  treadle_hash_map_release(&keys);
  return status;
}

/* Where each chunk of each tensor is stored. Chunks without elements need not be. */
static treadle_status find_places(treadle_dist_reader *r) {
  treadle_status status = TREADLE_OK;
  size_t next = 0;
  r->of_chunk = treadle_arena_alloc_array(&r->dist->arena, r->chunk_count, sizeof *r->of_chunk);
  if (!r->of_chunk) {
    status = treadle_dist_no_memory(r->what);
    goto out;
  }
  for (int32_t i = 0; i < r->dist->count; i++) {
    const treadle_dist_tensor *tensor = &r->dist->tensors[i];
    for (int32_t c = 0; c < tensor->chunk_count; c++) {
      const char *text = place_text(r, tensor->key, tensor->chunks[c].offset, tensor->ndim);
      int64_t place = text ? treadle_hash_map_get(&r->places, text, -1) : -1;
      if (!text) {
        status = treadle_dist_no_memory(r->what);
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

treadle_status treadle_dist_read_metadata(treadle_dist_reader *r, const void *image, size_t bytes) {
  treadle_value *top = NULL;
  treadle_status status;
  TRY(treadle_pickle_read(r->what, image, bytes, &r->dist->arena, &top));
  const treadle_pickle_items *metadata = attributes(top, "Metadata");
  const treadle_pickle_items *tensors =
      treadle_value_pairs(treadle_pairs_get(metadata, "state_dict_metadata"));
  const treadle_pickle_items *places = treadle_value_pairs(treadle_pairs_get(metadata, "storage_data"));
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

/* Megatron's torch_dist checkpoints: global tensors, whatever the ranks that wrote them.
 *
 * A global tensor is what a single rank would have: so the layout is megatron on one rank, and a storage tensor has the
 * key of its name, with these differences (megatron/core/dist_checkpointing, the sharded_state_dict of each module):
 * layers that are all alike have one key, `decoder.layers.` without the number, and a first axis that counts layers;
 * experts have one key, `experts.experts.`, with an axis of experts; what linear attention fuses stands part by part,
 * in_proj under `KEY.query`, `KEY.key` and so on, conv1d likewise, each part whole. The vocabulary is padded as the
 * writer wanted. */
#include "convert/dist_keys.h"
#include "convert/source_layout.h"

#include "base/dtype.h"
#include "base/hash_map.h"
#include "base/text.h"
#include "io/file.h"
#include "io/torch_dist.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_SPLITS = 6 };

typedef struct
    dist_part { /* a global tensor, or the slice of it that a storage tensor is, at rows `row` and on */
  const treadle_dist_tensor *tensor;
  int64_t lead[2]; /* layer and expert, as far as the tensor has such axes */
  int leads;
  int64_t row;
} dist_part;

typedef struct dist_storage {
  dist_part parts[MAX_SPLITS];
  int count;
} dist_storage;

typedef struct dist_state {
  treadle_torch_dist *dist;
  treadle_hash_map keys;
  bool *used; /* by tensor */
  dist_storage *storages;
} dist_state;

static treadle_status no_memory(const char *path) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tensors", path);
}

/* ---- Keys -------------------------------------------------------------------------------------- */

static treadle_dist_tensor *find_key(const dist_state *state, const char *key) {
  int64_t at = treadle_hash_map_get(&state->keys, key, -1);
  if (at < 0) return NULL;
  state->used[at] = true;
  return &state->dist->tensors[at];
}

/* The tensor of a key, or those of its parts. */
static int find_parts(const dist_state *state, const char *key, const treadle_dist_tensor **found) {
  static const char *const splits[] = {"query", "key", "value", "z", "beta", "alpha"};
  char longer[320];
  int count = 0;
  if ((found[0] = find_key(state, key))) return 1;
  for (int i = 0; i < MAX_SPLITS; i++) {
    snprintf(longer, sizeof longer, "%s.%s", key, splits[i]);
    const treadle_dist_tensor *tensor = find_key(state, longer);
    if (tensor) found[count++] = tensor;
  }
  return count;
}

/* ---- Matching ---------------------------------------------------------------------------------- */

static treadle_status check_shape(const char *folder, const treadle_storage_info *info,
                                  const dist_storage *storage) {
  const dist_part *first = &storage->parts[0];
  int64_t rows = 0;
  bool same = true,
       vocabulary = strstr(info->name, "word_embeddings") || strstr(info->name, "output_layer");
  for (int p = 0; p < storage->count; p++) {
    const dist_part *part = &storage->parts[p];
    same &= part->tensor->ndim == info->ndim + part->leads;
    for (int d = 1; same && d < info->ndim; d++)
      same = part->tensor->shape[part->leads + d] == info->shape[d];
    for (int l = 0; same && l < part->leads; l++) same = part->lead[l] < part->tensor->shape[l];
    if (same && info->ndim) rows += part->tensor->shape[part->leads];
  }
  if (same && storage->count > 1 && rows != info->shape[0])
    return treadle_fail(TREADLE_REFUSED,
                        "%s: %s and %s have %" PRId64 " rows together, and the model says %" PRId64
                        " for %s: parts of it are missing or of another shape",
                        folder, first->tensor->key, treadle_text_of_count(storage->count - 1, "other"),
                        rows, info->shape[0], info->name);
  if (!same || (info->ndim && rows != info->shape[0] && !vocabulary)) {
    treadle_builder found = {0}, wanted = {0};
    for (int d = 0; d < first->tensor->ndim; d++)
      treadle_builder_add(&found, "%s%" PRId64, d ? ", " : "", first->tensor->shape[d]);
    for (int d = 0; d < info->ndim; d++)
      treadle_builder_add(&wanted, "%s%" PRId64, d ? ", " : "", info->shape[d]);
    treadle_status status = treadle_fail(
        TREADLE_REFUSED,
        "%s: %s is [%s], and the model says [%s] for %s, after %d leading axes of layers and experts",
        folder, first->tensor->key, found.text ? found.text : "", wanted.text ? wanted.text : "",
        info->name, first->leads);
    treadle_builder_release(&found);
    treadle_builder_release(&wanted);
    return status;
  }
  if (first->tensor->dtype != info->dtype)
    return treadle_fail(
        TREADLE_REFUSED, "%s: %s is of type %s, and the layout says %s; dtype=%s in it changes that",
        folder, first->tensor->key, first->tensor->dtype_text, treadle_dtype_safetensors(info->dtype),
        first->tensor->dtype ? treadle_dtype_name(first->tensor->dtype) : "...");
  return TREADLE_OK;
}

static treadle_status match_storage(treadle_source *source, const char *folder, int32_t number) {
  dist_state *state = source->state;
  dist_storage *storage = &state->storages[number];
  const treadle_dist_tensor *found[MAX_SPLITS];
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_status status;
  char key[300];
  dist_part part = {0};
  TRY(treadle_layout_storage(source->layout, 0, number, &info));
  snprintf(key, sizeof key, "%s", info.name);
  int64_t expert = treadle_dist_take_expert(key, sizeof key);
  storage->count = find_parts(state, key, found);
  if (storage->count == 0) {
    int64_t layer = treadle_dist_take_layer(key);
    if (layer >= 0) part.lead[part.leads++] = layer;
    storage->count = find_parts(state, key, found);
  }
  if (expert >= 0) part.lead[part.leads++] = expert;
  if (storage->count == 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has no key for %s, neither with the layer's number nor as %s",
                     folder, info.name, key));
  for (int p = 0; p < storage->count; p++) {
    part.tensor = found[p];
    storage->parts[p] = part;
    if (found[p]->ndim > part.leads) part.row += found[p]->shape[part.leads];
  }
  TRY(check_shape(folder, &info, storage));
out:
  return status;
}

/* Tensors that look like the model's and are none of it. */
static treadle_status check_left_over(const treadle_source *source, const char *folder) {
  static const char *const starts[] = {"embedding.", "decoder.", "output_layer.", "mtp."};
  const dist_state *state = source->state;
  for (int32_t i = 0; i < state->dist->count; i++)
    for (size_t s = 0; !state->used[i] && s < sizeof starts / sizeof *starts; s++)
      if (treadle_text_starts(state->dist->tensors[i].key, starts[s]))
        return treadle_fail(TREADLE_REFUSED, "%s: %s is not a tensor of the model", folder,
                            state->dist->tensors[i].key);
  return TREADLE_OK;
}

static treadle_status expect_sums(treadle_source *source) {
  const dist_state *state = source->state;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < state->dist->count; i++) {
    const treadle_dist_tensor *tensor = &state->dist->tensors[i];
    for (int32_t c = 0; state->used[i] && c < tensor->chunk_count; c++)
      TRY(treadle_entry_sums_add(&source->sums, &tensor->chunks[c].storage, tensor->chunks[c].path,
                                 tensor->key));
  }
out:
  return status;
}

static treadle_status dist_open(treadle_source *source, const char *folder, const char *layout_text) {
  treadle_status status;
  const char *options = strchr(layout_text, ':');
  const char *text = treadle_arena_format(&source->arena, "megatron%s", options ? options : "");
  dist_state *state = treadle_arena_alloc(&source->arena, sizeof *state);
  if (!text || !state) return no_memory(folder);
  source->state = state;
  TRY(treadle_source_folder(source, folder, ".metadata", &folder));
  TRY(treadle_layout_create(source->model, text, 1, NULL, &source->layout));
  const char *metadata = treadle_arena_format(&source->arena, "%s/.metadata", folder);
  if (!metadata) TRY(no_memory(folder));
  if (treadle_file_exists(metadata)) TRY(treadle_inputs_add(source->inputs, metadata, NULL));
  TRY(treadle_torch_dist_open(folder, "_extra_state", &state->dist));
  int32_t count = treadle_layout_storage_count(source->layout, 0);
  source->files =
      treadle_arena_alloc_array(&source->arena, (size_t)state->dist->file_count + 1, sizeof *source->files);
  state->storages = treadle_arena_alloc_array(&source->arena, (size_t)count, sizeof *state->storages);
  state->used = treadle_arena_alloc_array(&source->arena, (size_t)state->dist->count, sizeof *state->used);
  if (!source->files || !state->storages || !state->used) TRY(no_memory(folder));
  for (source->file_count = 0; source->file_count < state->dist->file_count; source->file_count++) {
    const void *image;
    source->files[source->file_count] = treadle_torch_dist_file(state->dist, source->file_count, &image);
  }
  source->skipped = state->dist->skipped;
  for (int32_t i = 0; i < state->dist->count; i++)
    TRY(treadle_hash_map_put(&state->keys, state->dist->tensors[i].key, i));
  for (int32_t n = 0; n < count; n++) TRY(match_storage(source, folder, n));
  TRY(check_left_over(source, folder));
  TRY(expect_sums(source));
out:
  return status;
}

/* ---- The questions ----------------------------------------------------------------------------- */

static bool holds(const treadle_dist_box *chunk, const dist_part *part) {
  for (int l = 0; l < part->leads; l++)
    if (part->lead[l] < chunk->offset[l] || part->lead[l] >= chunk->offset[l] + chunk->size[l])
      return false;
  return true;
}

static bool dist_chunk(const treadle_source *source, int64_t rank, int32_t number, int32_t n,
                       treadle_stored_shard *chunk_p) {
  const dist_state *state = source->state;
  const dist_storage *storage = &state->storages[number];
  (void)rank;
  for (int p = 0; p < storage->count; p++) {
    const dist_part *part = &storage->parts[p];
    const treadle_dist_tensor *tensor = part->tensor;
    for (int32_t c = 0; c < tensor->chunk_count; c++) {
      const treadle_dist_box *chunk = &tensor->chunks[c];
      if (!holds(chunk, part) || n-- > 0) continue;
      *chunk_p = (treadle_stored_shard){.data = chunk->data};
      for (int l = 0; l < part->leads; l++)
        chunk_p->data += (part->lead[l] - chunk->offset[l]) * chunk->strides[l] *
                         (int64_t)treadle_dtype_bytes(tensor->dtype);
      for (int d = part->leads; d < tensor->ndim; d++) {
        int to = d - part->leads;
        chunk_p->offset[to] = chunk->offset[d] + (to == 0 ? part->row : 0);
        chunk_p->size[to] = chunk->size[d];
        chunk_p->stride[to] = chunk->strides[d];
      }
      return true;
    }
  }
  return false;
}

static treadle_status dist_places(treadle_source *source, int32_t tensor, const treadle_box *box,
                                  treadle_file_boxes *places) {
  return treadle_layout_places(source, dist_chunk, tensor, box, places);
}

static const void *dist_image(const treadle_source *source, int32_t file) {
  const dist_state *state = source->state;
  const void *image;
  (void)treadle_torch_dist_file(state->dist, file, &image);
  return image;
}

static void dist_close(treadle_source *source) {
  dist_state *state = source->state;
  if (!state) return;
  treadle_torch_dist_close(state->dist);
  treadle_hash_map_release(&state->keys);
}

const treadle_source_type treadle_source_dist = {"torch_dist", dist_open,  dist_places,
                                                 NULL,         dist_image, dist_close};

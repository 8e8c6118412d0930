/* Placements: what a name means. Names of files are entries of the model: one box of one canonical tensor. Names of modules, where
 * these differ, are those of the layout fsdp2, which shards transformers' modules: on one rank its pieces say what
 * each storage tensor is made of. */
#include "flat/placements_parts.h"

#include "base/dtype.h"
#include "base/text.h"
#include "family/read.h"

#include <inttypes.h>
#include <string.h>

/* Notes a part; refused when it gives its canonical tensor another dtype than before. */
static treadle_status push_part(treadle_placements_builder *b, treadle_placed *placed,
                                const treadle_placed_part *part) {
  treadle_dtype *known = &b->made->dtypes[part->tensor];
  if (*known && *known != placed->dtype)
    REFUSE("placements: %s is given in %s, and another one has %s in %s", placed->tensor,
           treadle_dtype_name(placed->dtype), b->layout->model->tensors[part->tensor].name,
           treadle_dtype_name(*known));
  *known = placed->dtype;
  placed->part_count++;
  return treadle_array_push(&b->parts, *part);
}

static treadle_status set_dtype(treadle_placements_builder *b, int32_t number, treadle_dtype own) {
  treadle_placed *placed = &b->made->placed[number];
  treadle_dtype given = b->tensors[number].dtype;
  placed->dtype = given ? given : own;
  if (placed->dtype == TREADLE_FP8_E4M3)
    REFUSE("placements: %s is given in fp8; placements hold values", placed->tensor);
  if ((placed->dtype == TREADLE_INT32) != (own == TREADLE_INT32))
    REFUSE("placements: %s is of type %s, and given in %s", placed->tensor, treadle_dtype_name(own),
           treadle_dtype_name(given));
  return TREADLE_OK;
}

/* ---- Names of files ---- */

/* Dimensions are those of the Hugging Face tensor; a stacked tensor has one more in front, whose axis is the expert. */
static treadle_status resolve_entry(treadle_placements_builder *b, int32_t number,
                                    const treadle_entry *entry) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &b->layout->model->tensors[entry->tensor];
  treadle_placed *placed = &b->made->placed[number];
  treadle_placed_part part = {
      .placed = number, .tensor = entry->tensor, .like = -1, .box = treadle_box_whole(tensor)};
  int skip = tensor->by_expert;
  if (tensor->scale_of >= 0)
    REFUSE("placements: %s has scales of fp8 blocks; placements hold values, without scales",
           placed->tensor);
  TRY(set_dtype(b, number, treadle_layout_dtype(b->layout, tensor)));
  if (skip) {
    part.box.start[0] = entry->expert;
    part.box.size[0] = 1;
  }
  placed->ndim = tensor->ndim - skip;
  for (int d = 0; d < placed->ndim; d++) placed->shape[d] = tensor->shape[d + skip];
  memset(part.dim, -1, sizeof part.dim);
  for (int a = tensor->naxes - 1; a >= skip; a--) {
    int d = part.dim[a] = (int8_t)(tensor->axis_dim[a] - skip);
    bool inner = a + 1 < tensor->naxes && part.dim[a + 1] == d;
    part.weight[a] = inner ? part.weight[a + 1] * tensor->axis[a + 1] : 1;
  }
  TRY(push_part(b, placed, &part));
out:
  return status;
}

/* ---- Names of modules ---- */

static treadle_status list_modules(treadle_placements_builder *b) {
  treadle_status status = TREADLE_OK;
  char name[sizeof(((treadle_storage_info *)NULL)->name)];
  int32_t count;
  if (b->modules) return TREADLE_OK;
  TRY(treadle_layout_create(b->layout->model, "fsdp2", 1, NULL, &b->modules));
  const treadle_storage *storages = treadle_layout_storages(b->modules, 0, &count);
  TRY(treadle_hash_map_reserve(&b->by_module, (size_t)count));
  for (int32_t s = 0; s < count; s++) {
    b->modules->ops->storage_name(b->modules, 0, &storages[s], 0, name, sizeof name);
    const char *kept = treadle_arena_copy_text(&b->made->arena, name);
    TRY(kept ? treadle_hash_map_put(&b->by_module, kept, s) : treadle_placements_no_memory());
  }
out:
  return status;
}

/* Which dimension an axis with this distance, in elements, steps along: the slowest one whose own distance is not longer. */
static void set_axis(const treadle_placed *placed, int axis, int64_t stride, treadle_placed_part *part) {
  int64_t step = 1;
  for (int d = placed->ndim - 1; d >= 0; d--) {
    if (placed->shape[d] > 1 && stride >= step) {
      part->dim[axis] = (int8_t)d;
      part->weight[axis] = stride / step;
    }
    step *= placed->shape[d];
  }
}

static treadle_status resolve_module(treadle_placements_builder *b, int32_t number, int32_t s) {
  treadle_status status = TREADLE_OK;
  treadle_placed *placed = &b->made->placed[number];
  int32_t count;
  const treadle_storage *storage = &treadle_layout_storages(b->modules, 0, &count)[s];
  int64_t size = (int64_t)treadle_dtype_bytes(storage->dtype);
  treadle_pieces pieces = {0};
  TRY(set_dtype(b, number, storage->dtype));
  placed->ndim = storage->ndim;
  for (int d = 0; d < placed->ndim; d++) placed->shape[d] = storage->shape[d];
  TRY(treadle_layout_pieces_in(b->modules, 0, s, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    treadle_placed_part part = {.placed = number, .tensor = piece->tensor, .like = -1, .box = piece->box};
    int64_t at = (piece->offset - storage->offset) / size;
    if (piece->tensor < 0 || piece->add != 0)
      TRY(treadle_fail(TREADLE_REFUSED, "placements: %s is not a plain part of the model's tensors",
                       placed->tensor));
    for (int d = placed->ndim - 1; d >= 0; d--) {
      part.base[d] = at % placed->shape[d];
      at /= placed->shape[d];
    }
    memset(part.dim, -1, sizeof part.dim);
    for (int a = 0; a < TREADLE_MAX_AXES; a++)
      if (part.box.size[a] > 1) set_axis(placed, a, piece->stride[a] / size, &part);
    TRY(push_part(b, placed, &part));
  }
out:
  treadle_array_release(&pieces);
  return status;
}

/* ---- All names ---- */

static treadle_status refuse_name(const treadle_placements_builder *b, const char *name) {
  const treadle_model *model = b->layout->model;
  treadle_nearest nearest = treadle_nearest_to(name);
  char module[sizeof(((treadle_storage_info *)NULL)->name)], best[sizeof module];
  int32_t count;
  for (int32_t i = 0; i < model->entry_count; i++) treadle_nearest_try(&nearest, model->entries[i].name);
  for (int32_t i = 0; i < model->tied_count; i++) treadle_nearest_try(&nearest, model->tied[i].name);
  const treadle_storage *storages = treadle_layout_storages(b->modules, 0, &count);
  for (int32_t s = 0; s < count; s++) {
    b->modules->ops->storage_name(b->modules, 0, &storages[s], 0, module, sizeof module);
    treadle_nearest_try(&nearest, module);
    if (nearest.best != module) continue;
    memcpy(best, module, sizeof best);
    nearest.best = best;
  }
  REFUSE("placements: the model has no tensor '%s' (nearest: %s)", name, nearest.best);
}

/* Is that the shape that was given, if one was? */
static bool fits(const treadle_placed_tensor *given, int ndim, const int64_t *shape) {
  if (given->ndim == 0) return true;
  return given->ndim == ndim && memcmp(given->shape, shape, (size_t)ndim * sizeof *shape) == 0;
}

static treadle_status refuse_shape(const treadle_placed_tensor *given, int ndim, const int64_t *shape) {
  treadle_builder text = {0};
  treadle_status status;
  for (int d = 0; d < ndim; d++) treadle_builder_add(&text, "%s%" PRId64, d ? ", " : "", shape[d]);
  treadle_builder_add(&text, "], and is given as [");
  for (int d = 0; d < given->ndim; d++)
    treadle_builder_add(&text, "%s%" PRId64, d ? ", " : "", given->shape[d]);
  status = treadle_fail(TREADLE_REFUSED, "placements: %s has the shape [%s]", given->tensor,
                        text.failed ? "" : text.text);
  treadle_builder_release(&text);
  return status;
}

/* Do modules stack what the file has under this name in another way? */
static bool is_restacked(const treadle_model *model, const treadle_tensor *tensor) {
  const treadle_family *family = model->family;
  for (int32_t i = 0; i < family->packed.count; i++)
    if (strcmp(family->packed.rules[i].name, family->patterns[tensor->pattern].name) == 0) return true;
  return false;
}

/* Most names are in both, and mean the same: then the file's will do. Of what is restacked, shapes may be equal; whoever gives one
 * has a module. */
treadle_status treadle_placements_resolve(treadle_placements_builder *b, int32_t number) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = b->layout->model;
  const treadle_placed_tensor *given = &b->tensors[number];
  treadle_placed *placed = &b->made->placed[number];
  const treadle_tensor *tensor = NULL;
  int64_t found = treadle_hash_map_get(&model->by_name, placed->tensor, -1), module;
  int32_t count;
  placed->first_part = (int32_t)b->parts.count;
  if (given->ndim < 0 || given->ndim > TREADLE_MAX_DIMS)
    REFUSE("placements: %s is given with %d dimensions; 1 to %d will do", placed->tensor, (int)given->ndim,
           TREADLE_MAX_DIMS);
  if (found >= 0) tensor = &model->tensors[model->entries[found].tensor];
  bool is_file = tensor && fits(given, tensor->ndim - tensor->by_expert, tensor->shape + tensor->by_expert);
  if (is_file && !(given->ndim > 0 && is_restacked(model, tensor)))
    return resolve_entry(b, number, &model->entries[found]);
  TRY(list_modules(b));
  const treadle_storage *storages = treadle_layout_storages(b->modules, 0, &count);
  module = treadle_hash_map_get(&b->by_module, placed->tensor, -1);
  if (module >= 0 && fits(given, storages[module].ndim, storages[module].shape))
    return resolve_module(b, number, (int32_t)module);
  if (is_file) return resolve_entry(b, number, &model->entries[found]);
  if (tensor)
    return refuse_shape(given, tensor->ndim - tensor->by_expert, tensor->shape + tensor->by_expert);
  if (module >= 0) return refuse_shape(given, storages[module].ndim, storages[module].shape);
  TRY(refuse_name(b, placed->tensor));
out:
  return status;
}

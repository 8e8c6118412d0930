/* The family's `packed` rules and a checkpoint: which of them its files follow, and where the parts lie.
 *
 * A rule may have the name of a canonical tensor, stacked otherwise (Qwen3-VL: transposed). Then the shape decides, and
 * where it fits both the canonical form is meant. */
#include "model/match.h"

#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 320 };

/* A rule, resolved for this model. */
typedef struct packed_rule {
  const treadle_rule *rule;
  treadle_part_shape parts[TREADLE_MAX_PARTS];
  int ndim;
  int64_t shape[1 + TREADLE_MAX_DIMS]; /* of the stored tensor */
} packed_rule;

static void format_name(const treadle_model *model, const packed_rule *packed, int32_t layer, char *name) {
  treadle_name_format(&packed->rule->full_name, layer, model->layers, layer, -1, name, NAME_BYTES);
}

/* Are all parts tensors of this model, in this layer? */
static bool has_parts(const treadle_model *model, const treadle_rule *rule, int32_t layer) {
  for (int p = 0; p < rule->nparts; p++) {
    int32_t tensor = treadle_model_find(model, rule->parts[p].pattern, layer);
    if (tensor < 0 || model->tensors[tensor].pattern != rule->parts[p].pattern) return false;
  }
  return true;
}

/* Does the checkpoint have the stored tensor of the rule? */
static bool has_stacked(const treadle_match *match, const packed_rule *packed, int32_t layer) {
  char name[NAME_BYTES];
  format_name(match->model, packed, layer, name);
  int32_t at = treadle_names_find(&match->names, name);
  if (at < 0) return false;
  int64_t entry = treadle_hash_map_get(&match->model->by_name, name, -1);
  if (entry < 0) return true;
  const treadle_stored *stored = &match->checkpoint->tensors[at];
  const treadle_tensor *tensor = &match->model->tensors[match->model->entries[entry].tensor];
  size_t bytes = (size_t)packed->ndim * sizeof *packed->shape;
  return stored->ndim == packed->ndim && memcmp(stored->shape, packed->shape, bytes) == 0 &&
         (tensor->ndim != packed->ndim || memcmp(stored->shape, tensor->shape, bytes) != 0);
}

/* Does it have any of the parts single? */
static bool has_single(const treadle_match *match, const packed_rule *packed, int32_t layer) {
  const treadle_model *model = match->model;
  for (int p = 0; p < packed->rule->nparts; p++) {
    int32_t index = treadle_model_find(model, packed->rule->parts[p].pattern, layer);
    const treadle_tensor *tensor = &model->tensors[index];
    int64_t count = tensor->by_expert ? tensor->shape[0] : 1;
    for (int64_t e = 0; e < count; e++)
      if (treadle_names_find(&match->names, model->entries[tensor->first_entry + e].name) >= 0) return true;
  }
  return false;
}

/* One layer of a rule whose form is the stacked one. */
static treadle_status take_layer(treadle_match *match, const packed_rule *packed, int32_t layer) {
  const treadle_model *model = match->model;
  const treadle_rule *rule = packed->rule;
  treadle_status status = TREADLE_OK;
  char name[NAME_BYTES];
  int64_t rows = 0;
  format_name(model, packed, layer, name);
  const treadle_stored *stored = treadle_match_take(match, name);
  for (int p = 0; p < rule->nparts; p++)
    match->stacked[treadle_model_find(model, rule->parts[p].pattern, layer)] = true;
  if (!stored) {
    treadle_match_missing(match, "%s", name);
    return TREADLE_OK;
  }
  match->files->stacked_count++;
  if (!treadle_match_shape(match, name, stored, packed->ndim, packed->shape)) return TREADLE_OK;
  for (int p = 0; p < rule->nparts; p++) {
    const treadle_part_shape *part = &packed->parts[p];
    int32_t tensor = treadle_model_find(model, part->pattern, layer);
    treadle_stored_box place =
        treadle_part_place(part, &model->tensors[tensor], rows, stored, packed->shape);
    TRY(treadle_match_place(match, tensor, &place));
    rows += part->shape[0];
  }
out:
  return status;
}

/* Layers [low, high), or -1 for what is outside of layers, have one form. */
static treadle_status match_layers(treadle_match *match, const packed_rule *packed, int32_t low,
                                   int32_t high) {
  treadle_status status = TREADLE_OK;
  int32_t stacked = 0, single = 0;
  for (int32_t layer = low; layer < high; layer++) {
    if (!has_parts(match->model, packed->rule, layer)) continue;
    bool is_stacked = has_stacked(match, packed, layer);
    stacked += is_stacked;
    single += !is_stacked && has_single(match, packed, layer);
  }
  if (!stacked || stacked < single) return TREADLE_OK;
  for (int32_t layer = low; layer < high; layer++)
    if (has_parts(match->model, packed->rule, layer)) TRY(take_layer(match, packed, layer));
out:
  return status;
}

/* Resolves a rule; *present_p false: the model has not all of its parts. */
static treadle_status resolve(const treadle_model *model, const treadle_rule *rule, packed_rule *packed,
                              bool *present_p) {
  treadle_status status = TREADLE_OK;
  *packed = (packed_rule){.rule = rule};
  *present_p = true;
  for (int p = 0; p < rule->nparts; p++)
    *present_p = *present_p && model->first_tensor[rule->parts[p].pattern] >= 0;
  if (!*present_p) return TREADLE_OK;
  for (int p = 0; p < rule->nparts; p++) TRY(treadle_model_part(model, rule->parts[p], &packed->parts[p]));
  packed->ndim = treadle_rule_stored_shape(packed->parts, rule->nparts, model->experts, packed->shape);
out:
  return status;
}

treadle_status treadle_match_stacked(treadle_match *match) {
  const treadle_model *model = match->model;
  const treadle_engine_rules *rules = &model->family->packed;
  treadle_status status = TREADLE_OK;
  for (int32_t r = 0; r < rules->count; r++) {
    packed_rule packed;
    bool present;
    TRY(resolve(model, &rules->rules[r], &packed, &present));
    if (!present) continue;
    if (packed.rule->full_name.in_layer) {
      TRY(match_layers(match, &packed, 0, model->layers));
      TRY(match_layers(match, &packed, model->layers, model->layers + model->mtp_layers));
    } else {
      TRY(match_layers(match, &packed, -1, 0));
    }
  }
out:
  return status;
}

/* ---- The other way round ----------------------------------------------------------------------- */

typedef TREADLE_ARRAY(treadle_stored) stored_array;

static treadle_status list_tensor(stored_array *list, treadle_arena *arena, const char *name,
                                  treadle_dtype dtype, int ndim, const int64_t *shape) {
  treadle_status status;
  treadle_stored stored = {.name = treadle_arena_copy_text(arena, name),
                           .dtype = dtype,
                           .dtype_text = treadle_dtype_safetensors(dtype),
                           .ndim = ndim,
                           .elems = 1};
  if (!stored.name) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a name");
  for (int d = 0; d < ndim; d++) {
    stored.shape[d] = shape[d];
    stored.elems *= shape[d];
  }
  stored.bytes = (size_t)stored.elems * treadle_dtype_bytes(dtype);
  TRY(treadle_array_push(list, stored));
out:
  return status;
}

/* The stacked tensors of a rule, in all layers. */
static treadle_status list_rule(const treadle_model *model, const packed_rule *packed, treadle_arena *arena,
                                bool *stacked, stored_array *list) {
  treadle_status status = TREADLE_OK;
  bool in_layer = packed->rule->full_name.in_layer;
  for (int32_t layer = in_layer ? 0 : -1; layer < (in_layer ? model->layers + model->mtp_layers : 0);
       layer++) {
    char name[NAME_BYTES];
    if (!has_parts(model, packed->rule, layer)) continue;
    int32_t first = treadle_model_find(model, packed->rule->parts[0].pattern, layer);
    format_name(model, packed, layer, name);
    TRY(list_tensor(list, arena, name, model->tensors[first].dtype, packed->ndim, packed->shape));
    for (int p = 0; p < packed->rule->nparts; p++)
      stacked[treadle_model_find(model, packed->rule->parts[p].pattern, layer)] = true;
  }
out:
  return status;
}

treadle_status treadle_files_stacked(const treadle_model *model, treadle_arena *arena,
                                     treadle_stored **tensors_p, int32_t *count_p) {
  treadle_status status = TREADLE_OK;
  stored_array list = {0};
  const treadle_engine_rules *rules = &model->family->packed;
  bool *stacked = treadle_arena_alloc_array(arena, (size_t)model->tensor_count, sizeof *stacked);
  if (!stacked) goto no_memory;
  for (int32_t r = 0; r < rules->count; r++) {
    packed_rule packed;
    bool present;
    TRY(resolve(model, &rules->rules[r], &packed, &present));
    if (present) TRY(list_rule(model, &packed, arena, stacked, &list));
  }
  for (int32_t i = 0; i < model->entry_count; i++) {
    const treadle_tensor *tensor = &model->tensors[model->entries[i].tensor];
    if (stacked[model->entries[i].tensor] || tensor->scale_of >= 0) continue;
    TRY(list_tensor(&list, arena, model->entries[i].name, tensor->dtype, tensor->ndim - tensor->by_expert,
                    tensor->shape + tensor->by_expert));
  }
  *tensors_p = treadle_arena_alloc_array(arena, list.count, sizeof **tensors_p);
  if (!*tensors_p) goto no_memory;
  memcpy(*tensors_p, list.items, list.count * sizeof **tensors_p);
  *count_p = (int32_t)list.count;
out:
  treadle_array_release(&list);
  return status;
no_memory:
  status = treadle_fail(TREADLE_NO_MEMORY, "no memory for the tensors of %s", model->path);
  goto out;
}

/* From a config.json to the list of canonical tensors.
 *
 * Dims are evaluated once, in the family's order; then the axes of each kind, once, whatever the number of
 * layers; then tensors are laid down in model order, and for each its Hugging Face names. Every number is
 * bounded and every product checked: what comes out can be multiplied freely as long as bytes fit an int64. */
#include "base/checked.h"
#include "base/limits.h"
#include "model/config.h"
#include "model/making.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
  LEAST_BITS = 4,       /* of an element in any file: MXFP4 */
  CHEAP_NAMES = 1 << 14 /* which are made in no time, and then say what is missing */
};

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for a model"); }

/* ---- Kinds ------------------------------------------------------------------------------------- */

/* The size of an axis: an integer or a dim. */
static treadle_status measure_axis(treadle_model_making *b, const treadle_kind *kind, const char *axis,
                                   int64_t *size_p) {
  int32_t dim = treadle_model_find_dim(b->model, axis);
  treadle_status status;
  TRY(treadle_making_evaluate(b, "", kind->name, axis, size_p));
  bool boolean = dim >= 0 && b->dim_is_boolean[dim];
  if (*size_p < 1 || *size_p > TREADLE_MAX_SIZE || boolean)
    return treadle_fail(TREADLE_REFUSED,
                        "%s = %s is %" PRId64 "%s; %s of family %s needs a size from 1 to 2^40", axis,
                        dim < 0 ? axis : b->model->family->dim_texts[dim], *size_p,
                        boolean ? " (true or false)" : "", kind->name, b->model->family->name);
out:
  return status;
}

/* The first `count` axes of a tensor have too many elements. */
static treadle_status refuse_product(const treadle_model_making *b, const treadle_kind *kind,
                                     const treadle_tensor *tensor, int count) {
  char factors[160] = "";
  size_t used = 0;
  double product = 1;
  for (int i = 0; i < count; i++) {
    used += (size_t)snprintf(factors + used, sizeof factors - used, "%s%s = %" PRId64, i ? ", " : "",
                             kind->axis_text[i], tensor->axis[i]);
    if (used >= sizeof factors) used = sizeof factors - 1;
    product *= (double)tensor->axis[i];
  }
  return treadle_fail(TREADLE_REFUSED, "%s of family %s has %.4g elements (%s%s); at most 2^50 will do",
                      kind->name, b->model->family->name, product, factors,
                      count < kind->naxes ? ", and more" : "");
}

static treadle_status measure(treadle_model_making *b, const treadle_kind *kind, treadle_tensor *tensor) {
  treadle_status status = TREADLE_OK;
  tensor->ndim = kind->ndim;
  tensor->naxes = kind->naxes;
  tensor->elems = 1;
  tensor->dtype = kind->dtype ? kind->dtype : b->dtype;
  tensor->fixed_dtype = kind->dtype != TREADLE_DTYPE_NONE;
  tensor->by_expert = kind->full_name.by_expert;
  tensor->scale = tensor->scale_of = -1;
  for (int d = 0; d < kind->ndim; d++) tensor->shape[d] = 1;
  for (int i = 0; i < kind->naxes; i++) {
    TRY(measure_axis(b, kind, kind->axis_text[i], &tensor->axis[i]));
    tensor->axis_dim[i] = kind->axis_dim[i];
    tensor->axis_name[i] = kind->axis_text[i];
    if (!treadle_mul_fits(tensor->elems, tensor->axis[i], &tensor->elems) ||
        tensor->elems > TREADLE_MAX_ELEMS)
      return refuse_product(b, kind, tensor, i + 1);
    tensor->shape[kind->axis_dim[i]] *= tensor->axis[i];
  }
out:
  return status;
}

static bool same_shape(const treadle_tensor *a, const treadle_tensor *b) {
  return a->ndim == b->ndim && a->naxes == b->naxes && memcmp(a->axis, b->axis, sizeof a->axis) == 0 &&
         memcmp(a->axis_dim, b->axis_dim, sizeof a->axis_dim) == 0;
}

static treadle_status settle_scales(treadle_model_making *b, int32_t k) {
  const treadle_kind *kind = &b->model->family->kinds[k];
  const treadle_kind_state *original = &b->kinds[kind->scale_of];
  treadle_kind_state *state = &b->kinds[k];
  state->own = original->own && b->model->block[0] > 0;
  state->by_layer = original->by_layer;
  if (!state->own) return TREADLE_OK;
  treadle_scales_measure(b->model, kind, &original->tensor, &state->tensor);
  int64_t columns = original->tensor.shape[original->tensor.ndim - 1];
  if (state->tensor.elems > TREADLE_MAX_BLOCKS || columns > TREADLE_MAX_COLUMNS)
    return treadle_fail(TREADLE_REFUSED,
                        "%s of family %s has %" PRId64 " fp8 blocks and %" PRId64
                        " columns; at most %d and %d will do",
                        kind->name, b->model->family->name, state->tensor.elems, columns,
                        TREADLE_MAX_BLOCKS, TREADLE_MAX_COLUMNS);
  return TREADLE_OK;
}

static treadle_status settle_kind(treadle_model_making *b, int32_t k) {
  const treadle_kind *kind = &b->model->family->kinds[k];
  treadle_kind_state *state = &b->kinds[k];
  int64_t holds = 1, tied = 0;
  treadle_status status;
  if (kind->scale_of >= 0) return settle_scales(b, k);
  state->by_layer = kind->when && kind->in_layer && treadle_expr_names(kind->when, "l");
  if (kind->when && !state->by_layer)
    TRY(treadle_making_evaluate(b, "when of ", kind->name, kind->when, &holds));
  for (b->layer = 0; state->by_layer && b->layer < b->model->layers + b->model->mtp_layers; b->layer++) {
    TRY(treadle_making_evaluate(b, "when of ", kind->name, kind->when, &holds));
    if (holds) break;
  }
  b->layer = -1;
  if (!holds) return TREADLE_OK;
  TRY(measure(b, kind, &state->tensor));
  if (kind->same_as >= 0)
    TRY(treadle_making_evaluate(b, "same_when of ", kind->name, kind->same_when, &tied));
  state->own = !tied;
  state->alias = tied;
  if (!tied) return TREADLE_OK;
out:
  b->layer = -1;
  return status;
}

/* ---- Tensors ----------------------------------------------------------------------------------- */

static const char *format_name(treadle_model *model, int32_t kind, int32_t layer, int64_t expert) {
  char text[320];
  treadle_name_format(&model->family->kinds[kind].full_name, layer, model->layers, layer, expert, text,
                      sizeof text);
  return treadle_arena_copy_text(&model->arena, text);
}

static treadle_status name_once(treadle_model *model, const char *name, int32_t entry) {
  if (!name) return no_memory();
  if (treadle_map_get(&model->by_name, name, -1) >= 0)
    return treadle_fail(TREADLE_REFUSED, "two tensors of family %s are named %s", model->family->name,
                        name);
  return treadle_map_put(&model->by_name, name, entry);
}

static int32_t *tensor_slot(treadle_model *model, int32_t kind, int32_t layer) {
  return &model->tensor_at[(int64_t)kind * (model->layers + model->mtp_layers + 1) + layer + 1];
}

static treadle_status add_entries(treadle_model *model, treadle_tensor *tensor, int32_t index) {
  int64_t count = tensor->by_expert ? tensor->shape[0] : 1;
  treadle_status status = TREADLE_OK;
  tensor->first_entry = model->entry_count;
  for (int64_t e = 0; e < count; e++) {
    treadle_entry *entry = &model->entries[model->entry_count];
    entry->tensor = index;
    entry->expert = tensor->by_expert ? (int32_t)e : -1;
    entry->name = tensor->by_expert ? format_name(model, tensor->kind, tensor->layer, e) : tensor->name;
    TRY(name_once(model, entry->name, model->entry_count));
    model->entry_count++;
  }
out:
  return status;
}

static treadle_status add_tensor(treadle_model_making *b, int32_t kind, int32_t layer) {
  treadle_model *model = b->model;
  int32_t index = model->tensor_count++;
  treadle_tensor *tensor = &model->tensors[index];
  *tensor = b->kinds[kind].tensor;
  tensor->name = format_name(model, kind, layer, -1);
  if (!tensor->name) return no_memory();
  tensor->kind = kind;
  tensor->layer = layer;
  if (model->first_tensor[kind] < 0) model->first_tensor[kind] = index;
  *tensor_slot(model, kind, layer) = index;
  int32_t scale_of = model->family->kinds[kind].scale_of;
  if (scale_of >= 0) { /* kinds of scales stand behind all others */
    tensor->scale_of = treadle_model_find(model, scale_of, layer);
    model->tensors[tensor->scale_of].scale = index;
  }
  return add_entries(model, tensor, index);
}

/* The kind that a copy stands for in the end. */
static int32_t original_of(const treadle_model_making *b, int32_t kind) {
  while (b->kinds[kind].alias) kind = b->model->family->kinds[kind].same_as;
  return kind;
}

/* A copy and its original have the same shape, and the model has the original. */
static treadle_status check_alias(const treadle_model_making *b, int32_t k) {
  const treadle_family *family = b->model->family;
  int32_t at = original_of(b, k);
  const treadle_kind_state *original = &b->kinds[at];
  if (original->own && same_shape(&b->kinds[k].tensor, &original->tensor)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s of family %s is a copy of %s, which %s", family->kinds[k].name,
                      family->name, family->kinds[at].name,
                      original->own ? "has another shape" : "this model does not have");
}

static treadle_status add_alias(treadle_model_making *b, int32_t kind, int32_t layer) {
  treadle_model *model = b->model;
  treadle_alias *alias = &model->aliases[model->alias_count++];
  const treadle_kind *k = &model->family->kinds[kind];
  alias->name = format_name(model, kind, layer, -1);
  int32_t original = original_of(b, kind);
  alias->tensor = treadle_model_find(model, original, model->family->kinds[original].in_layer ? layer : -1);
  if (alias->tensor < 0 || model->tensors[alias->tensor].by_expert)
    return treadle_fail(TREADLE_REFUSED,
                        "%s of family %s is a copy of %s, which this model does not have there", k->name,
                        model->family->name, model->family->kinds[original].name);
  if (model->first_tensor[kind] < 0) model->first_tensor[kind] = alias->tensor;
  *tensor_slot(model, kind, layer) = alias->tensor;
  return name_once(model, alias->name, model->tensors[alias->tensor].first_entry);
}

/* Does the kind stand in this layer? */
static treadle_status is_in_layer(treadle_model_making *b, int32_t kind, int32_t layer, bool *is_p) {
  const treadle_kind *k = &b->model->family->kinds[kind];
  int64_t holds = 1;
  treadle_status status = TREADLE_OK;
  b->layer = layer;
  if (b->kinds[kind].by_layer) TRY(treadle_making_evaluate(b, "when of ", k->name, k->when, &holds));
  *is_p = holds && (k->scale_of < 0 || !treadle_scales_left_out(b->model, k, layer));
out:
  b->layer = -1;
  return status;
}

/* Adds one kind outside of layers, or every kind inside, layer by layer. */
static treadle_status add_kinds(treadle_model_making *b, int32_t kind, bool aliases) {
  const treadle_family *family = b->model->family;
  treadle_status (*add)(treadle_model_making *, int32_t, int32_t) = aliases ? add_alias : add_tensor;
  treadle_status status = TREADLE_OK;
  if (!family->kinds[kind].in_layer) return add(b, kind, -1);
  for (int32_t layer = 0; layer < b->model->layers + b->model->mtp_layers; layer++)
    for (int32_t k = kind; k < family->kind_count; k++) {
      bool is = family->kinds[k].in_layer && (aliases ? b->kinds[k].alias : b->kinds[k].own);
      if (is) TRY(is_in_layer(b, k, layer, &is));
      if (is) TRY(add(b, k, layer));
    }
out:
  return status;
}

/* All tensors, or all aliases, in model order. */
static treadle_status add_all(treadle_model_making *b, bool aliases) {
  const treadle_family *family = b->model->family;
  treadle_status status = TREADLE_OK;
  bool layers_done = false;
  for (int32_t k = 0; k < family->kind_count; k++) {
    bool in_layer = family->kinds[k].in_layer;
    if (!(aliases ? b->kinds[k].alias : b->kinds[k].own) || (in_layer && layers_done)) continue;
    TRY(add_kinds(b, k, aliases));
    layers_done = layers_done || in_layer;
  }
out:
  return status;
}

/* Files that cannot hold the elements are not those of the model, whatever names it would have. MTP layers may be missing. */
static treadle_status check_files(const treadle_model_making *b) {
  const treadle_model *model = b->model;
  const treadle_family *family = model->family;
  size_t most = model->file_bytes > SIZE_MAX / 16 ? SIZE_MAX : model->file_bytes * 8 / LEAST_BITS,
         elems = 0;
  for (int32_t k = 0; model->file_bytes && k < family->kind_count; k++) {
    const treadle_tensor *tensor = &b->kinds[k].tensor;
    size_t times = family->kinds[k].in_layer ? (size_t)model->layers : 1, all;
    if (b->kinds[k].by_layer) times = model->mtp_layers == 0; /* in one layer at least, maybe of these */
    if (!b->kinds[k].own || family->kinds[k].scale_of >= 0 || family->kinds[k].full_name.mtp) continue;
    if (__builtin_mul_overflow((size_t)tensor->elems, times, &all) ||
        __builtin_add_overflow(elems, all, &elems) || elems > most)
      return treadle_fail(TREADLE_REFUSED,
                          "with %s of %" PRId64
                          " elements the model has more than files of %zu bytes can hold",
                          family->kinds[k].name, tensor->elems, model->file_bytes);
  }
  return TREADLE_OK;
}

/* Room for tensors, their entries and aliases. */
static treadle_status make_room(treadle_model_making *b) {
  treadle_model *model = b->model;
  const treadle_family *family = model->family;
  int64_t tensors = 0, entries = 0, aliases = 0, layers = model->layers + model->mtp_layers;
  for (int32_t k = 0; k < family->kind_count; k++) {
    int64_t count = family->kinds[k].in_layer ? layers : 1;
    tensors += b->kinds[k].own ? count : 0;
    aliases += b->kinds[k].alias ? count : 0;
    if (b->kinds[k].own)
      entries += b->kinds[k].tensor.by_expert ? count * b->kinds[k].tensor.shape[0] : count;
    if (tensors > TREADLE_MAX_TENSORS)
      return treadle_fail(TREADLE_REFUSED,
                          "family %s gives %" PRId64 " tensors for %" PRId64 " layers; at most %d will do",
                          family->name, tensors, layers, TREADLE_MAX_TENSORS);
    if (entries + aliases > TREADLE_MAX_NAMES)
      return treadle_fail(TREADLE_REFUSED,
                          "family %s gives %" PRId64 " names of tensors for %" PRId64 " layers and %" PRId64
                          " experts; at most %d will do",
                          family->name, entries + aliases, layers, model->experts, TREADLE_MAX_NAMES);
  }
  if (entries > CHEAP_NAMES && check_files(b)) return TREADLE_REFUSED;
  int64_t slots = family->kind_count * (layers + 1);
  model->tensors = treadle_arena_alloc_array(&model->arena, (size_t)tensors, sizeof *model->tensors);
  model->entries = treadle_arena_alloc_array(&model->arena, (size_t)entries, sizeof *model->entries);
  model->aliases = treadle_arena_alloc_array(&model->arena, (size_t)aliases, sizeof *model->aliases);
  model->tensor_at = treadle_arena_alloc_array(&model->arena, (size_t)slots, sizeof *model->tensor_at);
  if (!model->tensors || !model->entries || !model->aliases || !model->tensor_at) return no_memory();
  for (int64_t i = 0; i < slots; i++) model->tensor_at[i] = -1;
  return treadle_map_reserve(&model->by_name, (size_t)(entries + aliases));
}

static treadle_status add_everything(treadle_model_making *b) {
  treadle_model *model = b->model;
  const treadle_family *family = model->family;
  size_t count = (size_t)family->kind_count;
  treadle_status status = TREADLE_OK;
  b->kinds = treadle_arena_alloc_array(&model->arena, count, sizeof *b->kinds);
  model->first_tensor = treadle_arena_alloc_array(&model->arena, count, sizeof *model->first_tensor);
  if (!b->kinds || !model->first_tensor) return no_memory();
  for (int32_t k = 0; k < family->kind_count; k++) {
    TRY(settle_kind(b, k));
    model->first_tensor[k] = -1;
  }
  for (int32_t k = 0; k < family->kind_count; k++)
    if (b->kinds[k].alias) TRY(check_alias(b, k));
  TRY(make_room(b));
  TRY(add_all(b, false));
  TRY(add_all(b, true));
out:
  return status;
}

/* ---- The model --------------------------------------------------------------------------------- */

treadle_status treadle_model_fill(treadle_model *model) {
  treadle_model_making b = {.model = model, .layer = -1};
  const json_t *inner = treadle_model_inner_config(model);
  treadle_status status;
  TRY(treadle_config_dtype(model->config, inner, &b.dtype));
  TRY(treadle_making_dims(&b));
  TRY(treadle_making_layers(&b));
  TRY(treadle_making_require(&b));
  TRY(treadle_making_experts(&b));
  TRY(treadle_model_read_blocks(model));
  TRY(add_everything(&b));
  TRY(treadle_model_sum(model));
out:
  return status;
}

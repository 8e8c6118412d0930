/* From a config.json to the list of canonical tensors.
 *
 * Dims are evaluated once, in the family's order; then the axes of each pattern, once, whatever the number of
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

/* ---- Patterns ------------------------------------------------------------------------------------- */

/* The size of an axis: an integer or a dim. */
static treadle_status measure_axis(treadle_model_making *b, const treadle_pattern *pattern,
                                   const char *axis, int64_t *size_p) {
  int32_t dim = treadle_model_find_dim(b->model, axis);
  treadle_status status;
  TRY(treadle_making_evaluate(b, "", pattern->name, axis, size_p));
  bool boolean = dim >= 0 && b->dim_is_boolean[dim];
  if (*size_p < 1 || *size_p > TREADLE_MAX_SIZE || boolean)
    return treadle_fail(TREADLE_REFUSED,
                        "%s = %s is %" PRId64 "%s; %s of family %s needs a size from 1 to 2^40", axis,
                        dim < 0 ? axis : b->model->family->dim_texts[dim], *size_p,
                        boolean ? " (true or false)" : "", pattern->name, b->model->family->name);
out:
  return status;
}

/* The first `count` axes of a tensor have too many elements. */
static treadle_status refuse_product(const treadle_model_making *b, const treadle_pattern *pattern,
                                     const treadle_tensor *tensor, int count) {
  char factors[160] = "";
  size_t used = 0;
  double product = 1;
  for (int i = 0; i < count; i++) {
    used += (size_t)snprintf(factors + used, sizeof factors - used, "%s%s = %" PRId64, i ? ", " : "",
                             pattern->axis_text[i], tensor->axis[i]);
    if (used >= sizeof factors) used = sizeof factors - 1;
    product *= (double)tensor->axis[i];
  }
  return treadle_fail(TREADLE_REFUSED, "%s of family %s has %.4g elements (%s%s); at most 2^50 will do",
                      pattern->name, b->model->family->name, product, factors,
                      count < pattern->naxes ? ", and more" : "");
}

static treadle_status measure(treadle_model_making *b, const treadle_pattern *pattern,
                              treadle_tensor *tensor) {
  treadle_status status = TREADLE_OK;
  tensor->ndim = pattern->ndim;
  tensor->naxes = pattern->naxes;
  tensor->elems = 1;
  tensor->dtype = pattern->dtype ? pattern->dtype : b->dtype;
  tensor->fixed_dtype = pattern->dtype != TREADLE_DTYPE_NONE;
  tensor->by_expert = pattern->full_name.by_expert;
  tensor->scale = tensor->scale_of = -1;
  for (int d = 0; d < pattern->ndim; d++) tensor->shape[d] = 1;
  for (int i = 0; i < pattern->naxes; i++) {
    TRY(measure_axis(b, pattern, pattern->axis_text[i], &tensor->axis[i]));
    tensor->axis_dim[i] = pattern->axis_dim[i];
    tensor->axis_name[i] = pattern->axis_text[i];
    if (!treadle_mul_fits(tensor->elems, tensor->axis[i], &tensor->elems) ||
        tensor->elems > TREADLE_MAX_ELEMS)
      return refuse_product(b, pattern, tensor, i + 1);
    tensor->shape[pattern->axis_dim[i]] *= tensor->axis[i];
  }
out:
  return status;
}

static bool same_shape(const treadle_tensor *a, const treadle_tensor *b) {
  return a->ndim == b->ndim && a->naxes == b->naxes && memcmp(a->axis, b->axis, sizeof a->axis) == 0 &&
         memcmp(a->axis_dim, b->axis_dim, sizeof a->axis_dim) == 0;
}

static treadle_status settle_scales(treadle_model_making *b, int32_t k) {
  const treadle_pattern *pattern = &b->model->family->patterns[k];
  const treadle_pattern_state *original = &b->patterns[pattern->scale_of];
  treadle_pattern_state *state = &b->patterns[k];
  state->own = original->own && b->model->block[0] > 0;
  state->by_layer = original->by_layer;
  if (!state->own) return TREADLE_OK;
  treadle_scales_measure(b->model, pattern, &original->tensor, &state->tensor);
  int64_t columns = original->tensor.shape[original->tensor.ndim - 1];
  if (state->tensor.elems > TREADLE_MAX_BLOCKS || columns > TREADLE_MAX_COLUMNS)
    return treadle_fail(TREADLE_REFUSED,
                        "%s of family %s has %" PRId64 " fp8 blocks and %" PRId64
                        " columns; at most %d and %d will do",
                        pattern->name, b->model->family->name, state->tensor.elems, columns,
                        TREADLE_MAX_BLOCKS, TREADLE_MAX_COLUMNS);
  return TREADLE_OK;
}

static treadle_status settle_pattern(treadle_model_making *b, int32_t k) {
  const treadle_pattern *pattern = &b->model->family->patterns[k];
  treadle_pattern_state *state = &b->patterns[k];
  int64_t holds = 1, tied = 0;
  treadle_status status;
  if (pattern->scale_of >= 0) return settle_scales(b, k);
  state->by_layer = pattern->when && pattern->in_layer && treadle_expr_names(pattern->when, "l");
  if (pattern->when && !state->by_layer)
    TRY(treadle_making_evaluate(b, "when of ", pattern->name, pattern->when, &holds));
  for (b->layer = 0; state->by_layer && b->layer < b->model->layers + b->model->mtp_layers; b->layer++) {
    TRY(treadle_making_evaluate(b, "when of ", pattern->name, pattern->when, &holds));
    if (holds) break;
  }
  b->layer = -1;
  if (!holds) return TREADLE_OK;
  TRY(measure(b, pattern, &state->tensor));
  if (pattern->same_as >= 0)
    TRY(treadle_making_evaluate(b, "same_when of ", pattern->name, pattern->same_when, &tied));
  state->own = !tied;
  state->tied = tied;
  if (!tied) return TREADLE_OK;
out:
  b->layer = -1;
  return status;
}

/* ---- Tensors ----------------------------------------------------------------------------------- */

static const char *format_name(treadle_model *model, int32_t pattern, int32_t layer, int64_t expert) {
  char text[320];
  treadle_name_format(&model->family->patterns[pattern].full_name, layer, model->layers, layer, expert,
                      text, sizeof text);
  return treadle_arena_copy_text(&model->arena, text);
}

static treadle_status name_once(treadle_model *model, const char *name, int32_t entry) {
  if (!name) return no_memory();
  if (treadle_hash_map_get(&model->by_name, name, -1) >= 0)
    return treadle_fail(TREADLE_REFUSED, "two tensors of family %s are named %s", model->family->name,
                        name);
  return treadle_hash_map_put(&model->by_name, name, entry);
}

static int32_t *tensor_slot(treadle_model *model, int32_t pattern, int32_t layer) {
  return &model->tensor_at[(int64_t)pattern * (model->layers + model->mtp_layers + 1) + layer + 1];
}

static treadle_status add_entries(treadle_model *model, treadle_tensor *tensor, int32_t index) {
  int64_t count = tensor->by_expert ? tensor->shape[0] : 1;
  treadle_status status = TREADLE_OK;
  tensor->first_entry = model->entry_count;
  for (int64_t e = 0; e < count; e++) {
    treadle_entry *entry = &model->entries[model->entry_count];
    entry->tensor = index;
    entry->expert = tensor->by_expert ? (int32_t)e : -1;
    entry->name = tensor->by_expert ? format_name(model, tensor->pattern, tensor->layer, e) : tensor->name;
    TRY(name_once(model, entry->name, model->entry_count));
    model->entry_count++;
  }
out:
  return status;
}

static treadle_status add_tensor(treadle_model_making *b, int32_t pattern, int32_t layer) {
  treadle_model *model = b->model;
  int32_t index = model->tensor_count++;
  treadle_tensor *tensor = &model->tensors[index];
  *tensor = b->patterns[pattern].tensor;
  tensor->name = format_name(model, pattern, layer, -1);
  if (!tensor->name) return no_memory();
  tensor->pattern = pattern;
  tensor->layer = layer;
  if (model->first_tensor[pattern] < 0) model->first_tensor[pattern] = index;
  *tensor_slot(model, pattern, layer) = index;
  int32_t scale_of = model->family->patterns[pattern].scale_of;
  if (scale_of >= 0) { /* patterns of scales stand behind all others */
    tensor->scale_of = treadle_model_find(model, scale_of, layer);
    model->tensors[tensor->scale_of].scale = index;
  }
  return add_entries(model, tensor, index);
}

/* The pattern that a copy stands for in the end. */
static int32_t original_of(const treadle_model_making *b, int32_t pattern) {
  while (b->patterns[pattern].tied) pattern = b->model->family->patterns[pattern].same_as;
  return pattern;
}

/* A copy and its original have the same shape, and the model has the original. */
static treadle_status check_tied(const treadle_model_making *b, int32_t k) {
  const treadle_family *family = b->model->family;
  int32_t at = original_of(b, k);
  const treadle_pattern_state *original = &b->patterns[at];
  if (original->own && same_shape(&b->patterns[k].tensor, &original->tensor)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s of family %s is a copy of %s, which %s",
                      family->patterns[k].name, family->name, family->patterns[at].name,
                      original->own ? "has another shape" : "this model does not have");
}

static treadle_status add_tied(treadle_model_making *b, int32_t pattern, int32_t layer) {
  treadle_model *model = b->model;
  treadle_tied *tied = &model->tied[model->tied_count++];
  const treadle_pattern *k = &model->family->patterns[pattern];
  tied->name = format_name(model, pattern, layer, -1);
  int32_t original = original_of(b, pattern);
  tied->tensor =
      treadle_model_find(model, original, model->family->patterns[original].in_layer ? layer : -1);
  if (tied->tensor < 0 || model->tensors[tied->tensor].by_expert)
    return treadle_fail(TREADLE_REFUSED,
                        "%s of family %s is a copy of %s, which this model does not have there", k->name,
                        model->family->name, model->family->patterns[original].name);
  if (model->first_tensor[pattern] < 0) model->first_tensor[pattern] = tied->tensor;
  *tensor_slot(model, pattern, layer) = tied->tensor;
  return name_once(model, tied->name, model->tensors[tied->tensor].first_entry);
}

/* Does the pattern stand in this layer? */
static treadle_status is_in_layer(treadle_model_making *b, int32_t pattern, int32_t layer, bool *is_p) {
  const treadle_pattern *k = &b->model->family->patterns[pattern];
  int64_t holds = 1;
  treadle_status status = TREADLE_OK;
  b->layer = layer;
  if (b->patterns[pattern].by_layer) TRY(treadle_making_evaluate(b, "when of ", k->name, k->when, &holds));
  bool left_out = false;
  if (holds && k->scale_of >= 0) {
    const treadle_tensor *of = &b->patterns[k->scale_of].tensor;
    TRY(treadle_scales_left_out(b->model, k, layer, of->by_expert ? of->shape[0] : 0, &left_out));
  }
  *is_p = holds && !left_out;
out:
  b->layer = -1;
  return status;
}

/* Adds one pattern outside of layers, or every pattern inside, layer by layer. */
static treadle_status add_patterns(treadle_model_making *b, int32_t pattern, bool tied) {
  const treadle_family *family = b->model->family;
  treadle_status (*add)(treadle_model_making *, int32_t, int32_t) = tied ? add_tied : add_tensor;
  treadle_status status = TREADLE_OK;
  if (!family->patterns[pattern].in_layer) return add(b, pattern, -1);
  for (int32_t layer = 0; layer < b->model->layers + b->model->mtp_layers; layer++)
    for (int32_t k = pattern; k < family->pattern_count; k++) {
      bool is = family->patterns[k].in_layer && (tied ? b->patterns[k].tied : b->patterns[k].own);
      if (is) TRY(is_in_layer(b, k, layer, &is));
      if (is) TRY(add(b, k, layer));
    }
out:
  return status;
}

/* All tensors, or all aliases, in model order. */
static treadle_status add_all(treadle_model_making *b, bool tied) {
  const treadle_family *family = b->model->family;
  treadle_status status = TREADLE_OK;
  bool layers_done = false;
  for (int32_t k = 0; k < family->pattern_count; k++) {
    bool in_layer = family->patterns[k].in_layer;
    if (!(tied ? b->patterns[k].tied : b->patterns[k].own) || (in_layer && layers_done)) continue;
    TRY(add_patterns(b, k, tied));
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
  for (int32_t k = 0; model->file_bytes && k < family->pattern_count; k++) {
    const treadle_tensor *tensor = &b->patterns[k].tensor;
    size_t times = family->patterns[k].in_layer ? (size_t)model->layers : 1, all;
    if (b->patterns[k].by_layer) times = model->mtp_layers == 0; /* in one layer at least, maybe of these */
    if (!b->patterns[k].own || family->patterns[k].scale_of >= 0 || family->patterns[k].full_name.mtp)
      continue;
    if (__builtin_mul_overflow((size_t)tensor->elems, times, &all) ||
        __builtin_add_overflow(elems, all, &elems) || elems > most)
      return treadle_fail(TREADLE_REFUSED,
                          "with %s of %" PRId64
                          " elements the model has more than files of %zu bytes can hold",
                          family->patterns[k].name, tensor->elems, model->file_bytes);
  }
  return TREADLE_OK;
}

/* Room for tensors, their entries and aliases. */
static treadle_status make_room(treadle_model_making *b) {
  treadle_model *model = b->model;
  const treadle_family *family = model->family;
  int64_t tensors = 0, entries = 0, tied = 0, layers = model->layers + model->mtp_layers;
  for (int32_t k = 0; k < family->pattern_count; k++) {
    int64_t count = family->patterns[k].in_layer ? layers : 1;
    tensors += b->patterns[k].own ? count : 0;
    tied += b->patterns[k].tied ? count : 0;
    if (b->patterns[k].own)
      entries += b->patterns[k].tensor.by_expert ? count * b->patterns[k].tensor.shape[0] : count;
    if (tensors > TREADLE_MAX_TENSORS)
      return treadle_fail(TREADLE_REFUSED,
                          "family %s gives %" PRId64 " tensors for %" PRId64 " layers; at most %d will do",
                          family->name, tensors, layers, TREADLE_MAX_TENSORS);
    if (entries + tied > TREADLE_MAX_NAMES)
      return treadle_fail(TREADLE_REFUSED,
                          "family %s gives %" PRId64 " names of tensors for %" PRId64 " layers and %" PRId64
                          " experts; at most %d will do",
                          family->name, entries + tied, layers, model->experts, TREADLE_MAX_NAMES);
  }
  if (entries > CHEAP_NAMES && check_files(b)) return TREADLE_REFUSED;
  int64_t slots = family->pattern_count * (layers + 1);
  model->tensors = treadle_arena_alloc_array(&model->arena, (size_t)tensors, sizeof *model->tensors);
  model->entries = treadle_arena_alloc_array(&model->arena, (size_t)entries, sizeof *model->entries);
  model->tied = treadle_arena_alloc_array(&model->arena, (size_t)tied, sizeof *model->tied);
  model->tensor_at = treadle_arena_alloc_array(&model->arena, (size_t)slots, sizeof *model->tensor_at);
  if (!model->tensors || !model->entries || !model->tied || !model->tensor_at) return no_memory();
  for (int64_t i = 0; i < slots; i++) model->tensor_at[i] = -1;
  return treadle_hash_map_reserve(&model->by_name, (size_t)(entries + tied));
}

static treadle_status add_everything(treadle_model_making *b) {
  treadle_model *model = b->model;
  const treadle_family *family = model->family;
  size_t count = (size_t)family->pattern_count;
  treadle_status status = TREADLE_OK;
  b->patterns = treadle_arena_alloc_array(&model->arena, count, sizeof *b->patterns);
  model->first_tensor = treadle_arena_alloc_array(&model->arena, count, sizeof *model->first_tensor);
  if (!b->patterns || !model->first_tensor) return no_memory();
  for (int32_t k = 0; k < family->pattern_count; k++) {
    TRY(settle_pattern(b, k));
    model->first_tensor[k] = -1;
  }
  for (int32_t k = 0; k < family->pattern_count; k++)
    if (b->patterns[k].tied) TRY(check_tied(b, k));
  TRY(make_room(b));
  TRY(add_all(b, false));
  TRY(add_all(b, true));
out:
  return status;
}

/* ---- The model --------------------------------------------------------------------------------- */

static treadle_status note_dtypes(treadle_model *model, const json_t *inner) {
  const char *taken, *other, *name;
  treadle_config_dtypes_differ(model->config, inner, &taken, &other, &name);
  if (!other) return TREADLE_OK;
  return treadle_model_note(model, "%s is %.32s beside a dtype of %.32s, which is taken", name, other,
                            taken);
}

treadle_status treadle_model_fill(treadle_model *model) {
  treadle_model_making b = {.model = model, .layer = -1};
  const json_t *inner = treadle_model_inner_config(model);
  treadle_status status;
  TRY(treadle_config_check_positive(model->config));
  TRY(treadle_config_check_positive(inner));
  TRY(treadle_config_dtype(model->config, inner, &b.dtype));
  TRY(note_dtypes(model, inner));
  TRY(treadle_making_dims(&b));
  TRY(treadle_making_layers(&b));
  TRY(treadle_making_require(&b));
  TRY(treadle_making_experts(&b));
  TRY(treadle_model_check_head(model));
  TRY(treadle_model_read_quantisation(model));
  TRY(add_everything(&b));
  TRY(treadle_model_sum(model));
out:
  return status;
}

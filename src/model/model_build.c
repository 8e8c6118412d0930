/* From a config.json to the list of canonical tensors.
 *
 * Dims are evaluated once, in the family's order; then the axes of each kind, once, whatever the number of
 * layers; then tensors are laid down in model order, so that tensor = first_tensor[kind] + layer *
 * layer_tensors. Every number is bounded and every product checked: what comes out can be multiplied
 * freely as long as bytes fit an int64. */
#include "model/build.h"
#include "model/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 100000 };

typedef struct kind_state {
  bool own;              /* the model has tensors of it */
  bool alias;            /* the model has copies of another kind's by its name */
  treadle_tensor tensor; /* all but name, layer */
} kind_state;

typedef struct build {
  treadle_model *model;
  kind_state *kinds;
  bool *dim_is_boolean;
  bool saw_boolean; /* by the last evaluation */
  treadle_dtype dtype;
} build;

static treadle_status no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a model");
}

/* ---- Values ------------------------------------------------------------------------------------ */

static int32_t find_dim(const treadle_model *model, const char *name) {
  for (int32_t i = 0; i < model->dim_known; i++)
    if (strcmp(model->family->dim_names[i], name) == 0) return i;
  return -1;
}

static treadle_status look_up(const treadle_model *model, const char *name, int64_t *value_p,
                              bool *found_p) {
  int32_t dim = find_dim(model, name);
  if (dim < 0) return treadle_config_number(model->config, name, value_p, found_p);
  *value_p = model->dim_values[dim];
  *found_p = true;
  return TREADLE_OK;
}

treadle_status treadle_model_lookup(void *context, const char *name, int64_t *value_p, bool *found_p) {
  const treadle_model *model = context;
  treadle_status status = look_up(model, name, value_p, found_p);
  return status == TREADLE_OK ? status : treadle_fail_in(status, "%s: ", model->path);
}

static treadle_status look_up_in_build(void *context, const char *name, int64_t *value_p, bool *found_p) {
  build *b = context;
  if (find_dim(b->model, name) < 0 && treadle_config_is_boolean(b->model->config, name))
    b->saw_boolean = true;
  return look_up(b->model, name, value_p, found_p);
}

/* " (nh = num_attention_heads = 10, ng = ...)": the dims in an expression, for messages. */
typedef struct explanation {
  const treadle_model *model;
  char text[400];
  size_t length;
} explanation;

static treadle_status explain_name(void *context, const char *name) {
  explanation *e = context;
  int32_t dim = find_dim(e->model, name);
  if (dim < 0) return TREADLE_OK;
  int length =
      snprintf(e->text + e->length, sizeof e->text - e->length, "%s%s = %s = %" PRId64,
               e->length ? ", " : " (", name, e->model->family->dim_texts[dim], e->model->dim_values[dim]);
  if (length > 0 && (size_t)length + 1 < sizeof e->text - e->length) e->length += (size_t)length;
  return TREADLE_OK;
}

/* Evaluates an expression that `role` and `name` describe: "dim", "hd". */
static treadle_status evaluate(build *b, const char *role, const char *name, const char *text,
                               int64_t *value_p) {
  explanation e = {.model = b->model};
  char what[800];
  treadle_status status;
  TRY(treadle_expr_check(role, text, explain_name, &e));
  e.text[e.length] = 0;
  snprintf(what, sizeof what, "%s%s of family %s%s%s", role, name, b->model->family->name, e.text,
           e.length ? ")" : "");
  b->saw_boolean = false;
  TRY(treadle_expr_evaluate(what, text, look_up_in_build, b, value_p));
out:
  return status;
}

static treadle_status evaluate_dims(build *b) {
  treadle_model *model = b->model;
  const treadle_family *family = model->family;
  treadle_status status = TREADLE_OK;
  size_t count = (size_t)family->dim_count;
  model->dim_values = treadle_arena_alloc_array(&model->arena, count, sizeof *model->dim_values);
  b->dim_is_boolean = treadle_arena_alloc_array(&model->arena, count, sizeof *b->dim_is_boolean);
  if (!model->dim_values || !b->dim_is_boolean) return no_memory();
  for (int32_t i = 0; i < family->dim_count; i++) {
    TRY(evaluate(b, "dim ", family->dim_names[i], family->dim_texts[i], &model->dim_values[i]));
    b->dim_is_boolean[i] = b->saw_boolean;
    model->dim_known = i + 1;
  }
out:
  return status;
}

static treadle_status evaluate_layers(build *b) {
  treadle_model *model = b->model;
  const char *text = model->family->layers;
  int64_t layers;
  treadle_status status;
  TRY(evaluate(b, "layers", "", text, &layers));
  int32_t dim = find_dim(model, text);
  if (dim >= 0) text = model->family->dim_texts[dim];
  if (layers < 1 || layers > MAX_LAYERS || b->saw_boolean || (dim >= 0 && b->dim_is_boolean[dim]))
    return treadle_fail(TREADLE_REFUSED, "%s is %" PRId64 ", not a number of layers from 1 to %d", text,
                        layers, MAX_LAYERS);
  model->layers = (int32_t)layers;
out:
  return status;
}

/* ---- Kinds ------------------------------------------------------------------------------------- */

/* The size of an axis: an integer or a dim. */
static treadle_status measure_axis(build *b, const treadle_kind *kind, const char *axis, int64_t *size_p) {
  int32_t dim = find_dim(b->model, axis);
  treadle_status status;
  TRY(evaluate(b, "", kind->name, axis, size_p));
  bool boolean = dim >= 0 && b->dim_is_boolean[dim];
  if (*size_p < 1 || *size_p > TREADLE_MAX_SIZE || boolean)
    return treadle_fail(TREADLE_REFUSED,
                        "%s = %s is %" PRId64 "%s; %s of family %s needs a size from 1 to 2^40", axis,
                        dim < 0 ? axis : b->model->family->dim_texts[dim], *size_p,
                        boolean ? " (true or false)" : "", kind->name, b->model->family->name);
out:
  return status;
}

static treadle_status measure(build *b, const treadle_kind *kind, treadle_tensor *tensor) {
  treadle_status status = TREADLE_OK;
  tensor->ndim = kind->ndim;
  tensor->naxes = kind->naxes;
  tensor->elems = 1;
  tensor->dtype = b->dtype;
  for (int d = 0; d < kind->ndim; d++) tensor->shape[d] = 1;
  for (int i = 0; i < kind->naxes; i++) {
    TRY(measure_axis(b, kind, kind->axis_text[i], &tensor->axis[i]));
    tensor->axis_dim[i] = kind->axis_dim[i];
    tensor->axis_name[i] = kind->axis_text[i];
    if (__builtin_mul_overflow(tensor->elems, tensor->axis[i], &tensor->elems))
      return treadle_fail(TREADLE_REFUSED, "%s of family %s has more than 2^63 - 1 elements", kind->name,
                          b->model->family->name);
    tensor->shape[kind->axis_dim[i]] *= tensor->axis[i];
  }
out:
  return status;
}

static bool same_shape(const treadle_tensor *a, const treadle_tensor *b) {
  return a->ndim == b->ndim && a->naxes == b->naxes && memcmp(a->axis, b->axis, sizeof a->axis) == 0 &&
         memcmp(a->axis_dim, b->axis_dim, sizeof a->axis_dim) == 0;
}

static treadle_status settle_kind(build *b, int32_t k) {
  const treadle_kind *kind = &b->model->family->kinds[k];
  kind_state *state = &b->kinds[k];
  int64_t holds = 1, tied = 0;
  treadle_status status;
  if (kind->when) TRY(evaluate(b, "when of ", kind->name, kind->when, &holds));
  if (!holds) return TREADLE_OK;
  TRY(measure(b, kind, &state->tensor));
  if (kind->same_as >= 0) TRY(evaluate(b, "same_when of ", kind->name, kind->same_when, &tied));
  state->own = !tied;
  state->alias = tied;
  if (!tied) return TREADLE_OK;
  const kind_state *original = &b->kinds[kind->same_as];
  if (!original->own || !same_shape(&state->tensor, &original->tensor))
    return treadle_fail(TREADLE_REFUSED, "%s of family %s is a copy of %s, which %s", kind->name,
                        b->model->family->name, b->model->family->kinds[kind->same_as].name,
                        original->own ? "has another shape" : "this model does not have");
out:
  return status;
}

/* ---- Tensors ----------------------------------------------------------------------------------- */

static const char *name_in_layer(treadle_arena *arena, const char *name, int32_t layer) {
  const char *mark = strstr(name, "{l}");
  if (!mark) return treadle_arena_copy_text(arena, name);
  return treadle_arena_format(arena, "%.*s%d%s", (int)(mark - name), name, layer, mark + 3);
}

static treadle_status name_once(treadle_model *model, const char *name, int32_t tensor) {
  if (!name) return no_memory();
  if (treadle_map_get(&model->by_name, name, -1) >= 0)
    return treadle_fail(TREADLE_REFUSED, "two tensors of family %s are named %s", model->family->name,
                        name);
  return treadle_map_put(&model->by_name, name, tensor);
}

static treadle_status add_tensor(build *b, int32_t kind, int32_t layer) {
  treadle_model *model = b->model;
  treadle_tensor *tensor = &model->tensors[model->tensor_count];
  *tensor = b->kinds[kind].tensor;
  tensor->name = name_in_layer(&model->arena, model->family->kinds[kind].name, layer);
  tensor->kind = kind;
  tensor->layer = layer;
  if (layer <= 0) model->first_tensor[kind] = model->tensor_count;
  return name_once(model, tensor->name, model->tensor_count++);
}

static treadle_status add_alias(build *b, int32_t kind, int32_t layer) {
  treadle_model *model = b->model;
  treadle_alias *alias = &model->aliases[model->alias_count++];
  alias->name = name_in_layer(&model->arena, model->family->kinds[kind].name, layer);
  alias->tensor = treadle_model_find(model, kind, layer);
  return name_once(model, alias->name, alias->tensor);
}

/* Adds one kind outside of layers, or every kind inside, layer by layer. */
static treadle_status add_kinds(build *b, int32_t kind, bool aliases) {
  const treadle_family *family = b->model->family;
  treadle_status (*add)(build *, int32_t, int32_t) = aliases ? add_alias : add_tensor;
  treadle_status status = TREADLE_OK;
  if (!family->kinds[kind].in_layer) return add(b, kind, -1);
  for (int32_t layer = 0; layer < b->model->layers; layer++)
    for (int32_t k = kind; k < family->kind_count; k++)
      if (family->kinds[k].in_layer && (aliases ? b->kinds[k].alias : b->kinds[k].own))
        TRY(add(b, k, layer));
out:
  return status;
}

/* All tensors, or all aliases, in model order. */
static treadle_status add_all(build *b, bool aliases) {
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

/* Room for tensors and aliases, and where each kind begins. */
static treadle_status make_room(build *b) {
  treadle_model *model = b->model;
  int64_t tensors = 0, aliases = 0;
  for (int32_t k = 0; k < model->family->kind_count; k++) {
    bool in_layer = model->family->kinds[k].in_layer;
    int64_t count = in_layer ? model->layers : 1;
    tensors += b->kinds[k].own ? count : 0;
    aliases += b->kinds[k].alias ? count : 0;
    model->layer_tensors += in_layer && b->kinds[k].own;
  }
  if (tensors + aliases > INT32_MAX)
    return treadle_fail(TREADLE_REFUSED, "family %s gives %" PRId64 " tensors, more than 2^31 - 1",
                        model->family->name, tensors + aliases);
  model->tensors = treadle_arena_alloc_array(&model->arena, (size_t)tensors, sizeof *model->tensors);
  model->aliases = treadle_arena_alloc_array(&model->arena, (size_t)aliases, sizeof *model->aliases);
  return model->tensors && model->aliases ? TREADLE_OK : no_memory();
}

static treadle_status add_everything(build *b) {
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
  TRY(make_room(b));
  TRY(add_all(b, false));
  for (int32_t k = 0; k < family->kind_count; k++)
    if (b->kinds[k].alias) model->first_tensor[k] = model->first_tensor[family->kinds[k].same_as];
  TRY(add_all(b, true));
out:
  return status;
}

/* ---- The model --------------------------------------------------------------------------------- */

treadle_status treadle_model_fill(treadle_model *model) {
  build b = {.model = model};
  treadle_status status;
  TRY(treadle_config_dtype(model->config, &b.dtype));
  TRY(evaluate_dims(&b));
  TRY(evaluate_layers(&b));
  TRY(add_everything(&b));
  TRY(treadle_model_sum(model));
out:
  return status;
}

/* Which matrices of a model have adapters, and the model of the adapters' tensors. */
#include "adapter/adapter.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters"); }

/* ---- Targets ----------------------------------------------------------------------------------------------- */

static const char weight_end[] = ".weight";

/* The module of a matrix: "q_proj" of "model.layers.0.self_attn.q_proj.weight". NULL: the tensor is not a module's weight. */
static const char *module_of(const treadle_tensor *t, size_t *length_p) {
  const size_t length = strlen(t->name), end = sizeof weight_end - 1;
  const char *first;
  if (length <= end || strcmp(t->name + length - end, weight_end) != 0) return NULL;
  first = t->name + length - end;
  while (first > t->name && first[-1] != '.') first--;
  *length_p = (size_t)(t->name + length - end - first);
  return first;
}

static bool is_name(const char *name, size_t length, const char *other) {
  return strlen(other) == length && memcmp(name, other, length) == 0;
}

static const char head_name[] = "lm_head", all_name[] = "all-linear";

static bool is_head(const treadle_tensor *t, const char *module, size_t length) {
  return t->layer < 0 && is_name(module, length, head_name);
}

/* The head; or a matrix of a layer that is neither a router, nor the gate of a shared expert, nor of single experts, nor scales. */
static bool can_have_one(const treadle_model *model, const treadle_tensor *t) {
  static const char *const routers[] = {"gate", "router", "shared_expert_gate"};
  size_t length;
  const char *module = module_of(t, &length);
  if (!module || t->layer >= model->layers || t->ndim != 2 || t->by_expert || t->scale_of >= 0)
    return false;
  if (t->layer < 0) return is_head(t, module, length);
  for (size_t i = 0; i < sizeof routers / sizeof *routers; i++)
    if (is_name(module, length, routers[i])) return false;
  return true;
}

/* The name at *at of a list with commas, without spaces around; *at moves behind it. */
static const char *next_name(const char **at, size_t *length_p) {
  const char *first = *at + strspn(*at, " ,"), *end = first + strcspn(first, ",");
  *at = end;
  while (end > first && end[-1] == ' ') end--;
  *length_p = (size_t)(end - first);
  return *length_p ? first : NULL;
}

static bool is_listed(const char *modules, const char *name, size_t length) {
  const char *one;
  size_t one_length;
  while ((one = next_name(&modules, &one_length)))
    if (one_length == length && memcmp(one, name, length) == 0) return true;
  return false;
}

static bool is_all(const char *modules) {
  return !modules || is_listed(modules, all_name, sizeof all_name - 1);
}

static bool is_target(const treadle_adapter_spec *spec, const treadle_model *model,
                      const treadle_tensor *t) {
  size_t length;
  const char *module = can_have_one(model, t) ? module_of(t, &length) : NULL;
  if (!module) return false;
  if (is_all(spec->modules) && !is_head(t, module, length)) return true;
  return spec->modules && is_listed(spec->modules, module, length);
}

/* Why a model has no head of its own: it is another matrix's other name, or it gives scores. */
static treadle_status check_head(const treadle_model *model, const char *name, size_t length) {
  if (!is_name(name, length, head_name)) return TREADLE_OK;
  const int64_t entry = treadle_hash_map_get(&model->by_name, "lm_head.weight", -1);
  if (model->head.kind == TREADLE_HEAD_SCORE)
    REFUSE("%s: the model has a score head in place of %s, and adapters are of language models",
           model->path, head_name);
  if (entry < 0) return TREADLE_OK;
  REFUSE("%s: %s is tied to %s (tie_word_embeddings), and an adapter of it would change both; leave it out "
         "of target_modules",
         model->path, head_name, model->tensors[model->entries[entry].tensor].name);
}

/* The names that can stand in a list, as far as there is room for them: "q_proj, o_proj, .." */
static void write_names(const treadle_model *model, char *to, size_t room) {
  size_t at = 0, length;
  to[0] = 0;
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const char *module =
        can_have_one(model, &model->tensors[t]) ? module_of(&model->tensors[t], &length) : NULL;
    if (!module || is_listed(to, module, length)) continue;
    if (at + length + sizeof ", .." >= room) {
      snprintf(to + at, room - at, ", ..");
      return;
    }
    at += (size_t)snprintf(to + at, room - at, "%s%.*s", at ? ", " : "", (int)length, module);
  }
}

/* Every name of the list is one of the model. */
static treadle_status check_names(const treadle_model *model, const char *modules) {
  const char *name;
  char names[400];
  size_t length, module_length;
  treadle_status status = TREADLE_OK;
  if (modules && !modules[strspn(modules, " ,")])
    REFUSE("%s: no matrix is named that is to have an adapter; all-linear stands for all of them",
           model->path);
  while (modules && (name = next_name(&modules, &length))) {
    bool found = is_name(name, length, all_name);
    for (int32_t t = 0; t < model->tensor_count && !found; t++) {
      const treadle_tensor *tensor = &model->tensors[t];
      const char *module = can_have_one(model, tensor) ? module_of(tensor, &module_length) : NULL;
      found = module && module_length == length && memcmp(module, name, length) == 0;
    }
    if (found) continue;
    TRY(check_head(model, name, length));
    write_names(model, names, sizeof names);
    REFUSE("%s: no matrix that can have an adapter is named '%.*s'; those that can are %s", model->path,
           (int)(length < 100 ? length : 100), name, names);
  }
out:
  return status;
}

static treadle_status add_module(treadle_adapter *a, const treadle_tensor *t) {
  size_t length;
  const char *module = module_of(t, &length);
  char *copy;
  for (int32_t i = 0; i < a->module_count; i++)
    if (is_name(module, length, a->modules[i])) return TREADLE_OK;
  copy = treadle_arena_alloc(&a->arena, length + 1);
  if (!copy) return no_memory();
  memcpy(copy, module, length);
  a->modules[a->module_count++] = copy;
  return TREADLE_OK;
}

static treadle_status find_targets(treadle_adapter *a, const treadle_adapter_spec *spec) {
  const treadle_model *base = a->base;
  const size_t tensors = (size_t)base->tensor_count;
  treadle_status status;
  TRY(check_names(base, spec->modules));
  a->matrices = treadle_arena_alloc_array(&a->arena, tensors, sizeof *a->matrices);
  a->of_tensor = treadle_arena_alloc_array(&a->arena, tensors, sizeof *a->of_tensor);
  a->modules = treadle_arena_alloc_array(&a->arena, tensors, sizeof *a->modules);
  if (!a->matrices || !a->of_tensor || !a->modules) return no_memory();
  for (int32_t t = 0; t < base->tensor_count; t++) {
    const treadle_tensor *tensor = &base->tensors[t];
    a->of_tensor[t] = -1;
    if (!is_target(spec, base, tensor)) continue;
    a->of_tensor[t] = a->count;
    treadle_adapter_matrix *m = &a->matrices[a->count++];
    *m = (treadle_adapter_matrix){.tensor = t, .rows = tensor->shape[0], .columns = tensor->shape[1]};
    m->at_a = a->elems;
    m->at_b = m->at_a + a->rank * m->columns;
    a->elems = m->at_b + a->rank * m->rows;
    TRY(add_module(a, tensor));
  }
  if (!a->count)
    status =
        treadle_fail(TREADLE_REFUSED, "%s: the model has no matrix that can have an adapter", base->path);
out:
  return status;
}

/* ---- The model of their tensors ---------------------------------------------------------------------------- */

static treadle_status add_tensor(treadle_model *m, const treadle_tensor *base, const char *which,
                                 int64_t rows, int64_t columns) {
  const int32_t number = m->tensor_count;
  const int length = (int)(strlen(base->name) - (sizeof weight_end - 1));
  treadle_tensor *t = &m->tensors[number];
  *t = (treadle_tensor){.name = treadle_arena_format(&m->arena, "base_model.model.%.*s.lora_%s.weight",
                                                     length, base->name, which),
                        .pattern = base->pattern,
                        .layer = base->layer,
                        .ndim = 2,
                        .shape = {rows, columns},
                        .naxes = 2,
                        .axis = {rows, columns},
                        .axis_dim = {0, 1},
                        .axis_name = {"rows", "columns"},
                        .elems = rows * columns,
                        .dtype = TREADLE_FP32,
                        .fixed_dtype = true,
                        .first_entry = number,
                        .scale = -1,
                        .scale_of = -1};
  if (!t->name) return no_memory();
  m->entries[number] = (treadle_entry){.name = t->name, .tensor = number, .expert = -1};
  m->tensor_count = m->entry_count = number + 1;
  m->elems += t->elems;
  m->bytes += t->elems * (int64_t)sizeof(float);
  m->digest = treadle_hash_more(treadle_hash_text(t->name, m->digest), (uint64_t)rows);
  m->digest = treadle_hash_more(m->digest, (uint64_t)columns);
  return treadle_hash_map_put(&m->by_name, t->name, number);
}

static treadle_status make_model(treadle_adapter *a) {
  treadle_model *m = treadle_alloc(sizeof *m);
  treadle_status status = TREADLE_OK;
  if (!m) return no_memory();
  a->model = m;
  m->path = treadle_arena_format(&m->arena, "adapters of %s", a->base->path);
  m->family = a->base->family;
  m->layers = a->base->layers;
  m->tensors = treadle_arena_alloc_array(&m->arena, 2 * (size_t)a->count, sizeof *m->tensors);
  m->entries = treadle_arena_alloc_array(&m->arena, 2 * (size_t)a->count, sizeof *m->entries);
  if (!m->path || !m->tensors || !m->entries) return no_memory();
  for (int32_t i = 0; i < a->count; i++) {
    treadle_adapter_matrix *matrix = &a->matrices[i];
    const treadle_tensor *base = &a->base->tensors[matrix->tensor];
    matrix->a = m->tensor_count;
    TRY(add_tensor(m, base, "A", a->rank, matrix->columns));
    matrix->b = m->tensor_count;
    TRY(add_tensor(m, base, "B", matrix->rows, a->rank));
  }
out:
  return status;
}

/* ---- The whole ---------------------------------------------------------------------------------------------- */

static float scale_of(const treadle_adapter_spec *spec) {
  return (float)(spec->alpha / (double)spec->rank);
}

static treadle_status check_spec(const treadle_adapter_spec *spec) {
  if (spec->rank < 1 || spec->rank > TREADLE_ADAPTER_RANK_MOST)
    REFUSE("adapters of rank %lld: 1 to %d", (long long)spec->rank, TREADLE_ADAPTER_RANK_MOST);
  if (!(spec->alpha > 0) || !isfinite(spec->alpha))
    REFUSE("adapters with alpha %g: a number above 0", spec->alpha);
  if (!isnormal(scale_of(spec)))
    REFUSE("adapters with alpha %g and rank %lld: alpha / rank, %g, is beyond the numbers of fp32",
           spec->alpha, (long long)spec->rank, spec->alpha / (double)spec->rank);
  return TREADLE_OK;
}

treadle_status treadle_adapter_create(const treadle_model *base, const treadle_adapter_spec *spec,
                                      treadle_adapter **adapter_p) {
  treadle_adapter *a = NULL;
  treadle_status status;
  *adapter_p = NULL;
  TRY(check_spec(spec));
  a = treadle_alloc(sizeof *a);
  if (!a) return no_memory();
  a->base = base;
  a->rank = spec->rank;
  a->alpha = spec->alpha;
  a->scale = scale_of(spec);
  TRY(find_targets(a, spec));
  TRY(make_model(a));
  *adapter_p = a;
  a = NULL;
out:
  treadle_adapter_destroy(a);
  return status;
}

void treadle_adapter_destroy(treadle_adapter *adapter) {
  if (!adapter) return;
  treadle_model_close(adapter->model);
  treadle_arena_release(&adapter->arena);
  treadle_free(adapter);
}

/* Making a model: the values of dims and other expressions of its family, each bounded. */
#include "model/making.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 100000, MAX_EXPERTS = 1 << 20 };

static treadle_status look_up_in_build(void *context, const char *name, const int64_t *member,
                                       int64_t *value_p, bool *found_p) {
  treadle_model_making *b = context;
  if (!member && b->layer >= 0 && strcmp(name, "l") == 0) {
    *value_p = b->layer;
    *found_p = true;
    return TREADLE_OK;
  }
  if (!member && treadle_model_find_dim(b->model, name) < 0 && treadle_model_is_boolean(b->model, name))
    b->saw_boolean = true;
  return treadle_model_look_up(b->model, name, member, value_p, found_p);
}

/* " (nh = num_attention_heads = 10, ng = ...)": the dims in an expression, for messages. */
typedef struct explanation {
  const treadle_model *model;
  char text[400];
  size_t length;
} explanation;

static treadle_status explain_name(void *context, const char *name) {
  explanation *e = context;
  int32_t dim = treadle_model_find_dim(e->model, name);
  if (dim < 0) return TREADLE_OK;
  int length =
      snprintf(e->text + e->length, sizeof e->text - e->length, "%s%s = %s = %" PRId64,
               e->length ? ", " : " (", name, e->model->family->dim_texts[dim], e->model->dim_values[dim]);
  if (length > 0 && (size_t)length + 1 < sizeof e->text - e->length) e->length += (size_t)length;
  return TREADLE_OK;
}

/* Evaluates an expression that `role` and `name` describe: "dim", "hd". */
treadle_status treadle_making_evaluate(treadle_model_making *b, const char *role, const char *name,
                                       const char *text, int64_t *value_p) {
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

treadle_status treadle_making_dims(treadle_model_making *b) {
  treadle_model *model = b->model;
  const treadle_family *family = model->family;
  treadle_status status = TREADLE_OK;
  size_t count = (size_t)family->dim_count;
  model->dim_values = treadle_arena_alloc_array(&model->arena, count, sizeof *model->dim_values);
  b->dim_is_boolean = treadle_arena_alloc_array(&model->arena, count, sizeof *b->dim_is_boolean);
  if (!model->dim_values || !b->dim_is_boolean)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a model");
  for (int32_t i = 0; i < family->dim_count; i++) {
    TRY(treadle_making_evaluate(b, "dim ", family->dim_names[i], family->dim_texts[i],
                                &model->dim_values[i]));
    b->dim_is_boolean[i] = b->saw_boolean;
    model->dim_known = i + 1;
  }
out:
  return status;
}

treadle_status treadle_making_layers(treadle_model_making *b) {
  treadle_model *model = b->model;
  const char *text = model->family->layers;
  int64_t layers;
  treadle_status status;
  TRY(treadle_making_evaluate(b, "layers", "", text, &layers));
  int32_t dim = treadle_model_find_dim(model, text);
  if (dim >= 0) text = model->family->dim_texts[dim];
  if (model->family->mtp) {
    int64_t mtp;
    bool was_boolean = b->saw_boolean;
    TRY(treadle_making_evaluate(b, "mtp", "", model->family->mtp, &mtp));
    b->saw_boolean = was_boolean;
    if (mtp < 0 || mtp > MAX_LAYERS)
      return treadle_fail(TREADLE_REFUSED, "%s is %" PRId64 ", not a number of MTP layers from 0 to %d",
                          model->family->mtp, mtp, MAX_LAYERS);
    model->mtp_layers = model->without_mtp ? 0 : model->mtp_found ? model->mtp_found : (int32_t)mtp;
  }
  if (layers < 1 || layers > MAX_LAYERS || b->saw_boolean || (dim >= 0 && b->dim_is_boolean[dim]))
    return treadle_fail(TREADLE_REFUSED, "%s is %" PRId64 ", not a number of layers from 1 to %d", text,
                        layers, MAX_LAYERS);
  model->layers = (int32_t)layers;
out:
  return status;
}

treadle_status treadle_making_require(treadle_model_making *b) {
  const treadle_family *family = b->model->family;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < family->require_count; i++) {
    const treadle_requirement *need = &family->requirements[i];
    bool by_layer = treadle_expr_names(need->that, "l");
    int64_t holds = 1;
    for (int32_t layer = 0; holds && layer < (by_layer ? b->model->layers : 1); layer++) {
      b->layer = by_layer ? layer : -1;
      TRY(treadle_making_evaluate(b, "requires", "", need->that, &holds));
    }
    if (!holds && by_layer)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: layer %d", need->otherwise, (int)b->layer));
    if (!holds) TRY(treadle_fail(TREADLE_REFUSED, "%s (%s)", need->otherwise, need->that));
  }
out:
  b->layer = -1;
  return status;
}

treadle_status treadle_making_experts(treadle_model_making *b) {
  treadle_model *model = b->model;
  treadle_status status = TREADLE_OK;
  if (!model->family->experts) return TREADLE_OK;
  TRY(treadle_making_evaluate(b, "experts", "", model->family->experts, &model->experts));
  if (model->experts < 0 || model->experts > MAX_EXPERTS)
    return treadle_fail(TREADLE_REFUSED, "%s is %" PRId64 ", not a number of experts from 0 to %d",
                        model->family->experts, model->experts, MAX_EXPERTS);
out:
  return status;
}

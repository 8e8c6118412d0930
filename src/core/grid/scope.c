/* Grid layouts: what names mean in the conditions, traits and requirements of a family's engine section. */
#include "grid/grid.h"

#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct rule_scope {
  const treadle_layout *layout;
  const treadle_grid_spec *spec;
  int64_t layer; /* -1: none */
} rule_scope;

/* Sizes of the mesh come first, then the layer, then what the layout type says, and the model's names last:
 * so tp is always that of the layout. Only the model has names with a member. */
static treadle_status look_up(void *context, const char *name, const int64_t *member, int64_t *value_p,
                              bool *found_p) {
  const rule_scope *scope = context;
  const treadle_dim *dim = member ? NULL : treadle_mesh_find(&scope->spec->mesh, name);
  *found_p = true;
  if (dim) {
    *value_p = dim->size;
    return TREADLE_OK;
  }
  if (!member && scope->layer >= 0 && strcmp(name, "l") == 0) {
    *value_p = scope->layer;
    return TREADLE_OK;
  }
  for (int i = 0; !member && i < scope->spec->number_count; i++)
    if (strcmp(scope->spec->numbers[i].name, name) == 0) {
      *value_p = scope->spec->numbers[i].value;
      return TREADLE_OK;
    }
  return treadle_model_lookup(scope->layout->model, name, member, value_p, found_p);
}

void treadle_grid_number(treadle_grid_spec *spec, const char *name, int64_t value) {
  assert(spec->number_count < TREADLE_MAX_NUMBERS);
  spec->numbers[spec->number_count++] = (treadle_number){name, value};
}

treadle_status treadle_grid_evaluate(const treadle_layout *layout, const treadle_grid_spec *spec,
                                     const char *what, const char *text, int64_t layer, int64_t *value_p) {
  rule_scope scope = {layout, spec, layer};
  return treadle_expr_evaluate(what, text, look_up, &scope, value_p);
}

/* The names of a condition with their values, as far as they have one: " nh is 128, tp is 3". */
typedef struct named_values {
  rule_scope scope;
  treadle_builder text;
} named_values;

static treadle_status add_value(void *context, const char *name) {
  named_values *values = context;
  /* The space in front and the words behind keep `h` from being found in `nh`: each name is said once. */
  int64_t value = 0;
  bool found = false;
  char word[80];
  snprintf(word, sizeof word, " %s is ", name);
  if (values->text.text && strstr(values->text.text, word)) return TREADLE_OK;
  if (look_up(&values->scope, name, NULL, &value, &found) != TREADLE_OK || !found) return TREADLE_OK;
  treadle_builder_add(&values->text, "%s%s%" PRId64, values->text.length ? "," : "", word, value);
  return TREADLE_OK;
}

/* The message has the requirement's own words, its condition, and what the names in it are. */
static treadle_status refuse_requirement(const rule_scope *scope, const treadle_requirement *require) {
  named_values values = {.scope = *scope};
  (void)treadle_expr_check("requires", require->that, add_value, &values);
  treadle_status status =
      treadle_fail(TREADLE_REFUSED, "layout '%s': %s (%s;%s)", scope->layout->text, require->otherwise,
                   require->that, values.text.text ? values.text.text : "");
  treadle_builder_release(&values.text);
  return status;
}

treadle_status treadle_grid_require(const treadle_layout *layout, const treadle_grid_spec *spec,
                                    const treadle_engine_rules *engine) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < engine->require_count; i++) {
    const treadle_requirement *require = &engine->requirements[i];
    /* A requirement that names l is asked of each decoder layer, others once, without a layer. */
    bool by_layer = treadle_expr_names(require->that, "l");
    for (int64_t layer = by_layer ? 0 : -1; layer < (by_layer ? layout->model->layers : 0); layer++) {
      int64_t holds;
      TRY(treadle_grid_evaluate(layout, spec, "requires", require->that, layer, &holds));
      if (!holds) return refuse_requirement(&(rule_scope){layout, spec, layer}, require);
    }
  }
out:
  return status;
}

treadle_status treadle_grid_trait_at(const treadle_layout *layout, const treadle_grid_spec *spec,
                                     const treadle_engine_rules *engine, const char *name, int64_t layer,
                                     int64_t otherwise, int64_t *value_p) {
  *value_p = otherwise;
  for (int32_t i = 0; i < engine->trait_count; i++)
    if (strcmp(engine->traits[i].name, name) == 0)
      return treadle_grid_evaluate(layout, spec, name, engine->traits[i].value, layer, value_p);
  return TREADLE_OK;
}

treadle_status treadle_grid_trait(const treadle_layout *layout, const treadle_grid_spec *spec,
                                  const treadle_engine_rules *engine, const char *name, int64_t otherwise,
                                  int64_t *value_p) {
  return treadle_grid_trait_at(layout, spec, engine, name, -1, otherwise, value_p);
}

/* A config as the family's class of transformers completes it: fields under other names, then defaults of fields that the
 * file lacks. A field that is null is not lacking. Where the family looks into an object first (text_config), fields are
 * put there, unless the file has them outside. */
#include "model/build.h"
#include "model/config.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- Values of a family file -------------------------------------------------------------------- */

static json_t *scalar_of(const char *text) {
  int64_t number;
  char *end;
  if (strcmp(text, "null") == 0) return json_null();
  if (strcmp(text, "true") == 0) return json_true();
  if (strcmp(text, "false") == 0) return json_false();
  if (treadle_text_to_int64(text, &number)) return json_integer(number);
  double real = strtod(text, &end);
  return *text && !*end ? json_real(real) : json_string(text);
}

/* ---- Completing ---------------------------------------------------------------------------------- */

static bool is_there(const json_t *object, const char *name) {
  const json_t *field = json_object_get(object, name);
  return field && !json_is_null(field);
}

/* One field that has two names: the first is what the family asks for. */
static treadle_status take_other_name(json_t *object, const char *name, const char *other) {
  if (!is_there(object, other)) return TREADLE_OK;
  json_t *value = json_object_get(object, name), *instead = json_object_get(object, other);
  if (is_there(object, name) && !json_equal(value, instead))
    return treadle_fail(TREADLE_REFUSED, "%s and %s are two names of one field, and have different values",
                        name, other);
  return is_there(object, name) || json_object_set(object, name, instead) == 0
             ? TREADLE_OK
             : treadle_fail(TREADLE_NO_MEMORY, "no memory for a config");
}

/* Of a default that differs by model_type: that of the whole, or else of its language model; NULL: it has none. */
static const treadle_yaml *of_type(const json_t *config, const json_t *inner,
                                   const treadle_yaml *defaults) {
  const json_t *objects[] = {config, inner};
  const treadle_yaml *found = NULL;
  for (int i = 0; !found && i < 2; i++) {
    const char *type = json_string_value(json_object_get(objects[i], "model_type"));
    found = type ? treadle_yaml_get(defaults, type) : NULL;
  }
  return found && found->type == TREADLE_YAML_SCALAR ? found : NULL;
}

static treadle_status add_default(json_t *config, json_t *inner, const char *name,
                                  const treadle_yaml *node) {
  if (node->type == TREADLE_YAML_MAP) node = of_type(config, inner, node);
  if (!node) return TREADLE_OK;
  const json_t *field = json_object_get(inner, name);
  if (!field) field = json_object_get(config, name);
  bool lacks = !field || (json_is_null(field) &&
                          strcmp(name, "rope_theta") == 0); /* it is not a field of the classes */
  if (!lacks) return TREADLE_OK;
  return json_object_set_new(inner ? inner : config, name, scalar_of(node->text)) == 0
             ? TREADLE_OK
             : treadle_fail(TREADLE_NO_MEMORY, "no memory for a config");
}

/* The whole and its language model both say whether the head is tied. transformers goes by the first, engines by the second. */
static treadle_status check_tied(const json_t *config, const json_t *inner, const char *inner_name) {
  static const char key[] = "tie_word_embeddings";
  const json_t *outer = json_object_get(config, key), *own = json_object_get(inner, key);
  if (!json_is_boolean(outer) || !json_is_boolean(own) || json_equal(outer, own)) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "%s is %s, and %s.%s is %s; give both the value that the files have: true where they have no lm_head",
      key, json_is_true(outer) ? "true" : "false", inner_name, key, json_is_true(own) ? "true" : "false");
}

treadle_status treadle_config_complete(const treadle_family *family, const json_t *config,
                                       json_t **complete_p) {
  treadle_status status = TREADLE_OK;
  const treadle_yaml *names = family->field_names, *defaults = family->defaults;
  *complete_p = json_deep_copy(config);
  if (!*complete_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a config");
  json_t *inner = family->config ? json_object_get(*complete_p, family->config) : NULL;
  if (!json_is_object(inner)) inner = NULL;
  if (inner) TRY(check_tied(*complete_p, inner, family->config));
  for (size_t i = 0; names && i < names->count; i++) {
    TRY(take_other_name(*complete_p, names->keys[i], names->items[i]->text));
    if (inner) TRY(take_other_name(inner, names->keys[i], names->items[i]->text));
  }
  for (size_t i = 0; defaults && i < defaults->count; i++)
    TRY(add_default(*complete_p, inner, defaults->keys[i], defaults->items[i]));
out:
  if (status) json_decref(*complete_p), *complete_p = NULL;
  return status;
}

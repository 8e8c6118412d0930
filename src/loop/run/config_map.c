/* Keys whose value is a map, such as chat_template_kwargs: of the file, as a whole or a path of it, and of overrides, which go before the file name by
 * name. The value is kept as a JSON object, whose values have the types that PyYAML gives them. */
#include "run/config_given.h"

#include "base/real.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

static treadle_status to_json(const treadle_config_reader *reader, const char *where,
                              const treadle_yaml *node, json_t **json_p);

/* A text without quotes is what it looks like. */
static json_t *scalar(const char *text, bool is_plain) {
  char digits[TREADLE_YAML_NUMBER];
  const char *number = treadle_yaml_number(text, digits);
  int64_t whole;
  double real;
  bool truth;
  if (!is_plain) return json_string(text);
  if (treadle_yaml_is_null(text)) return json_null();
  if (treadle_yaml_truth(text, &truth)) return json_boolean(truth);
  if (number && treadle_text_to_int64(number, &whole)) return json_integer(whole);
  if (number && treadle_text_to_real(number, &real)) return json_real(real);
  return json_string(text);
}

static treadle_status list_or_map(const treadle_config_reader *reader, const char *where,
                                  const treadle_yaml *node, json_t **json_p) {
  const bool is_map = node->type == TREADLE_YAML_MAP;
  json_t *all = is_map ? json_object() : json_array(), *one = NULL;
  treadle_status status = all ? TREADLE_OK : treadle_given_no_memory(reader->config);
  for (size_t i = 0; !status && i < node->count; i++) {
    status = to_json(reader, where, node->items[i], &one);
    if (!status &&
        (is_map ? json_object_set_new(all, node->keys[i], one) : json_array_append_new(all, one)))
      status = treadle_given_no_memory(reader->config);
  }
  if (status) json_decref(all);
  *json_p = status ? NULL : all;
  return status;
}

static treadle_status to_json(const treadle_config_reader *reader, const char *where,
                              const treadle_yaml *node, json_t **json_p) {
  const char *text;
  treadle_status status;
  *json_p = NULL;
  if (node->type != TREADLE_YAML_SCALAR) return list_or_map(reader, where, node, json_p);
  TRY(treadle_train_expand(&reader->names, where, NULL, node->text, &text));
  *json_p = scalar(text, node->is_plain || text != node->text);
  if (!*json_p) status = treadle_given_no_memory(reader->config);
out:
  return status;
}

/* "a.b" of the map is what was given. */
static treadle_status set_at(const treadle_config_reader *reader, json_t *map, const char *rest,
                             json_t *value) {
  char name[256];
  for (const char *dot; (dot = strchr(rest, '.')); rest = dot + 1) {
    snprintf(name, sizeof name, "%.*s", (int)(dot - rest), rest);
    json_t *inner = json_object_get(map, name);
    if (!json_is_object(inner)) {
      if (json_object_set_new(map, name, json_object())) goto out;
      inner = json_object_get(map, name);
    }
    map = inner;
  }
  if (json_object_set(map, rest, value)) goto out;
  return TREADLE_OK;
out:
  return treadle_given_no_memory(reader->config);
}

/* What a value is on the command line. */
static treadle_status read_override(treadle_config_reader *reader, const treadle_given_value *given,
                                    const treadle_yaml **node_p) {
  static const treadle_yaml nothing = {.type = TREADLE_YAML_SCALAR, .text = "", .is_plain = true};
  *node_p = &nothing;
  if (!*given->text) return TREADLE_OK;
  return treadle_yaml_parse(treadle_given_head(reader, given), given->text, strlen(given->text),
                            &reader->config->arena, node_p);
}

treadle_status treadle_given_take_map(treadle_config_reader *reader, int key, const char *rest,
                                      const treadle_given_value *given) {
  treadle_train_source *source = &reader->config->sources[key];
  const treadle_yaml *node = given->node;
  json_t *value = NULL;
  treadle_status status = TREADLE_OK;
  char *text = NULL;
  if (!node) TRY(read_override(reader, given, &node));
  TRY(to_json(reader, treadle_given_head(reader, given), node, &value));
  if (!rest && json_is_null(value)) { /* as if nothing had said so */
    json_decref(reader->maps[key]);
    reader->maps[key] = NULL;
    *source = (treadle_train_source){.text = NULL};
    goto out;
  }
  if (!rest && json_is_object(value) && !json_object_size(value)) goto out;
  if (!rest && !json_is_object(value)) {
    status = treadle_fail(TREADLE_REFUSED, "%s must be a map, as {name: value}",
                          treadle_given_head(reader, given));
    goto out;
  }
  if (!reader->maps[key]) reader->maps[key] = json_object();
  if (!reader->maps[key]) TRY(treadle_given_no_memory(reader->config));
  if (rest)
    TRY(set_at(reader, reader->maps[key], rest, value));
  else if (json_object_update(reader->maps[key], value))
    TRY(treadle_given_no_memory(reader->config));
  text = json_dumps(reader->maps[key], treadle_train_keys[key].ordered ? 0 : JSON_SORT_KEYS);
  *source =
      (treadle_train_source){.from = given->node ? TREADLE_FROM_FILE : TREADLE_FROM_OVERRIDE,
                             .line = given->line,
                             .name = given->path,
                             .text = text ? treadle_arena_copy_text(&reader->config->arena, text) : NULL};
  if (!source->text) status = treadle_given_no_memory(reader->config);
out:
  free(text);
  json_decref(value);
  return status;
}

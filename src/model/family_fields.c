/* Fields and names of a family file: what every section of it is read with. */
#include "model/expr.h"
#include "model/family_read.h"

#include <string.h>

treadle_status treadle_family_no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a family");
}

/* ---- Fields ------------------------------------------------------------------------------------ */

treadle_status treadle_family_check_keys(const treadle_family_reader *reader, const treadle_yaml *node,
                                         const char *const *keys) {
  if (node->kind != TREADLE_YAML_MAP)
    return treadle_family_fail(reader, node, "a map of %s, ... is wanted here", keys[0]);
  for (size_t i = 0; i < node->count; i++) {
    treadle_nearest nearest = treadle_nearest_to(node->keys[i]);
    for (int k = 0; keys[k]; k++) treadle_nearest_try(&nearest, keys[k]);
    if (nearest.distance != 0)
      return treadle_family_fail(reader, node->items[i], "unknown key '%s'; the nearest is '%s'",
                                 node->keys[i], nearest.best);
  }
  return TREADLE_OK;
}

treadle_status treadle_family_text_of(const treadle_family_reader *reader, const treadle_yaml *node,
                                      const char *key, bool needed, const char **text_p) {
  const treadle_yaml *value = treadle_yaml_get(node, key);
  *text_p = NULL;
  if (!value && !needed) return TREADLE_OK;
  if (!value) return treadle_family_fail(reader, node, "%s is missing", key);
  if (value->kind != TREADLE_YAML_SCALAR || !*value->text)
    return treadle_family_fail(reader, value, "%s must be a text", key);
  *text_p = value->text;
  return TREADLE_OK;
}

const char *treadle_family_place(const treadle_family_reader *reader, const treadle_yaml *node) {
  return treadle_arena_format(reader->arena, "%s line %d", reader->path, node->line);
}

treadle_status treadle_family_condition(const treadle_family_reader *reader, const treadle_yaml *node,
                                        const char *key, const char **text_p) {
  treadle_status status;
  TRY(treadle_family_text_of(reader, node, key, false, text_p));
  if (!*text_p) return TREADLE_OK;
  const char *what = treadle_family_place(reader, node);
  if (!what) return treadle_family_no_memory();
  TRY(treadle_expr_check(what, *text_p, NULL, NULL));
out:
  return status;
}

treadle_status treadle_family_check_list(const treadle_family_reader *reader, const treadle_yaml *node,
                                         const treadle_yaml *list, const char *key) {
  if (!list) return treadle_family_fail(reader, node, "%s is missing", key);
  bool good = list->kind == TREADLE_YAML_LIST && list->count > 0;
  for (size_t i = 0; good && i < list->count; i++)
    good = list->items[i]->kind == TREADLE_YAML_SCALAR && *list->items[i]->text;
  if (!good) return treadle_family_fail(reader, list, "%s must be a list of at least one text", key);
  return TREADLE_OK;
}

/* ---- Names ------------------------------------------------------------------------------------- */

static bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

treadle_status treadle_family_expand(const treadle_family_reader *reader, const treadle_yaml *node,
                                     const char *text, const char **name_p, bool *in_layer_p) {
  enum { MAX_NAME = 200 };
  const char *prefix = "", *expansion = "";
  for (size_t i = 0; reader->prefixes && i < reader->prefixes->count; i++) {
    const char *key = reader->prefixes->keys[i];
    if (strlen(key) <= strlen(prefix) || !treadle_text_starts(text, key)) continue;
    prefix = key;
    expansion = reader->prefixes->items[i]->text;
  }
  const char *name = treadle_arena_format(reader->arena, "%s%s", expansion, text + strlen(prefix));
  if (!name) return treadle_family_no_memory();
  if (strlen(name) > MAX_NAME)
    return treadle_family_fail(reader, node, "a name is longer than %d characters", MAX_NAME);

  int layers = 0;
  for (const char *c = name; *c; c++) {
    if (treadle_text_starts(c, "{l}")) {
      layers++;
      c += 2;
    } else if (!is_name_char(*c)) {
      return treadle_family_fail(reader, node, "name %s: '%c' is no letter, digit, '.', '_', '-' or {l}",
                                 name, *c);
    }
  }
  if (layers > 1) return treadle_family_fail(reader, node, "name %s has {l} more than once", name);
  *in_layer_p = layers == 1;
  *name_p = name;
  return TREADLE_OK;
}

treadle_status treadle_family_kind(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const char *text, int32_t *kind_p) {
  const char *name;
  bool in_layer;
  treadle_status status;
  TRY(treadle_family_expand(reader, node, text, &name, &in_layer));
  *kind_p = (int32_t)treadle_map_get(&reader->kinds, name, -1);
  if (*kind_p >= 0) return TREADLE_OK;
  treadle_nearest nearest = treadle_nearest_to(name);
  for (int32_t i = 0; i < reader->family->kind_count; i++)
    treadle_nearest_try(&nearest, reader->family->kinds[i].name);
  return treadle_family_fail(reader, node, "no tensor is named %s; the nearest is %s", name, nearest.best);
out:
  return status;
}

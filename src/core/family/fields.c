/* Fields and names of a family file: what every section of it is read with. */
#include "base/dtype.h"
#include "family/expr.h"
#include "family/read.h"

#include <stdio.h>
#include <string.h>

treadle_status treadle_family_no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a family");
}

/* ---- Fields ------------------------------------------------------------------------------------ */

treadle_status treadle_family_check_keys(const treadle_family_reader *reader, const treadle_yaml *node,
                                         const char *const *keys) {
  if (node->type != TREADLE_YAML_MAP)
    return treadle_family_fail(reader, node, "a map of %s, ... is wanted here", keys[0]);
  for (size_t i = 0; i < node->count; i++) {
    int known = 0;
    while (keys[known] && strcmp(keys[known], node->keys[i]) != 0) known++;
    if (keys[known]) continue;
    treadle_nearest nearest = treadle_nearest_to(node->keys[i]);
    for (int k = 0; keys[k]; k++) treadle_nearest_try(&nearest, keys[k]);
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
  if (value->type != TREADLE_YAML_SCALAR || !*value->text)
    return treadle_family_fail(reader, value, "%s must be a text", key);
  *text_p = value->text;
  return TREADLE_OK;
}

const char *treadle_family_place(const treadle_family_reader *reader, const treadle_yaml *node) {
  return treadle_arena_format(reader->arena, "%s line %d", node->file, node->line);
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
  bool good = list->type == TREADLE_YAML_LIST && list->count > 0;
  for (size_t i = 0; good && i < list->count; i++)
    good = list->items[i]->type == TREADLE_YAML_SCALAR && *list->items[i]->text;
  if (!good) return treadle_family_fail(reader, list, "%s must be a list of at least one text", key);
  return TREADLE_OK;
}

size_t treadle_family_count_names(const treadle_yaml *node) {
  const treadle_yaml *name = treadle_yaml_get(node, "name");
  return name && name->type == TREADLE_YAML_LIST && name->count > 0 ? name->count : 1;
}

treadle_status treadle_family_texts_of(const treadle_family_reader *reader, const treadle_yaml *node,
                                       const char *key, int32_t *count_p, const char ***texts_p) {
  const treadle_yaml *list = treadle_yaml_get(node, key);
  treadle_status status;
  *count_p = 0;
  if (!list) return TREADLE_OK;
  TRY(treadle_family_check_list(reader, node, list, key));
  *texts_p = treadle_arena_alloc_array(reader->arena, list->count + 1, sizeof **texts_p);
  if (!*texts_p) return treadle_family_no_memory();
  for (size_t i = 0; i < list->count; i++) (*texts_p)[i] = list->items[i]->text;
  *count_p = (int32_t)list->count;
out:
  return status;
}

treadle_status treadle_family_flag(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const char *key, bool *flag_p) {
  const char *text;
  treadle_status status;
  TRY(treadle_family_text_of(reader, node, key, false, &text));
  *flag_p = text && strcmp(text, "true") == 0;
  if (text && !*flag_p && strcmp(text, "false") != 0)
    return treadle_family_fail(reader, node, "%s: '%s' is neither true nor false", key, text);
out:
  return status;
}

treadle_status treadle_family_dtype(const treadle_family_reader *reader, const treadle_yaml *node,
                                    treadle_dtype *dtype_p) {
  const char *text;
  treadle_status status;
  *dtype_p = TREADLE_DTYPE_NONE;
  TRY(treadle_family_text_of(reader, node, "dtype", false, &text));
  if (text && !treadle_dtype_parse(text, dtype_p))
    return treadle_family_fail(reader, node, "dtype: %s is none of fp32, bf16, fp16, int32", text);
out:
  return status;
}

/* ---- Names ------------------------------------------------------------------------------------- */

static bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

/* The longest prefix that begins `text`, "" when there is none, and what stands for it. */
static const char *find_prefix(const treadle_yaml *prefixes, const char *text, const char **prefix_p) {
  const char *expansion = "";
  *prefix_p = "";
  for (size_t i = 0; prefixes && i < prefixes->count; i++) {
    const char *key = prefixes->keys[i];
    if (strlen(key) <= strlen(*prefix_p) || !treadle_text_starts(text, key)) continue;
    *prefix_p = key;
    expansion = prefixes->items[i]->text;
  }
  return expansion;
}

/* Counts the marks of a name and refuses what is none. */
static treadle_status check_name(const treadle_family_reader *reader, const treadle_yaml *node,
                                 const char *name, bool mtp, treadle_name *marks) {
  enum { MAX_NAME = 200 };
  int layers = 0, experts = 0;
  if (strlen(name) > MAX_NAME)
    return treadle_family_fail(reader, node, "a name is longer than %d characters", MAX_NAME);
  for (const char *c = name; *c; c++) {
    if (treadle_text_starts(c, "{l}") || (mtp && treadle_text_starts(c, "{m}"))) {
      layers++;
      c += 2;
    } else if (*c == '*') {
      experts++;
    } else if (!is_name_char(*c)) {
      return treadle_family_fail(
          reader, node, "name %s: '%c' is not a letter, digit, '.', '_', '-', {l} or '*' for an expert",
          name, *c);
    }
  }
  if (layers > 1) return treadle_family_fail(reader, node, "name %s has {l} more than once", name);
  if (experts > 1) return treadle_family_fail(reader, node, "name %s has '*' more than once", name);
  marks->in_layer = layers == 1;
  marks->by_expert = experts == 1;
  return TREADLE_OK;
}

treadle_status treadle_family_expand(const treadle_family_reader *reader, const treadle_yaml *node,
                                     const char *text, treadle_name *name_p) {
  const char *prefix, *expansion = find_prefix(reader->prefixes, text, &prefix);
  treadle_status status;
  treadle_name mtp_marks;
  *name_p =
      (treadle_name){.text = treadle_arena_format(reader->arena, "%s%s", expansion, text + strlen(prefix))};
  if (!name_p->text) return treadle_family_no_memory();
  TRY(check_name(reader, node, name_p->text, false, name_p));
  expansion = find_prefix(reader->mtp_prefixes, text, &prefix);
  if (!*prefix) return TREADLE_OK;
  name_p->mtp = treadle_arena_format(reader->arena, "%s%s", expansion, text + strlen(prefix));
  if (!name_p->mtp) return treadle_family_no_memory();
  TRY(check_name(reader, node, name_p->mtp, true, &mtp_marks));
  if (!name_p->in_layer || mtp_marks.by_expert != name_p->by_expert)
    return treadle_family_fail(reader, node, "%s and %s, its name in MTP layers, have not the same marks",
                               name_p->text, name_p->mtp);
out:
  return status;
}

treadle_status treadle_family_expand_marked(const treadle_family_reader *reader, const treadle_yaml *node,
                                            const char *text, treadle_name *name_p, const char **key_p) {
  const char *mark = strchr(text, '@'), *plain = text;
  treadle_status status;
  if (mark) plain = treadle_arena_format(reader->arena, "%.*s", (int)(mark - text), text);
  if (!plain) return treadle_family_no_memory();
  if (mark && !treadle_expr_is_name(mark + 1))
    return treadle_family_fail(reader, node, "name %.200s: a word is wanted behind '@'", text);
  TRY(treadle_family_expand(reader, node, plain, name_p));
  *key_p = mark ? treadle_arena_format(reader->arena, "%s%s", name_p->text, mark) : name_p->text;
  if (!*key_p) return treadle_family_no_memory();
out:
  return status;
}

treadle_status treadle_family_part(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const char *text, treadle_part_name *part_p) {
  treadle_name name;
  const char *key;
  treadle_status status;
  TRY(treadle_family_expand_marked(reader, node, text, &name, &key));
  *part_p = (treadle_part_name){(int32_t)treadle_hash_map_get(&reader->patterns, key, -1),
                                (int32_t)treadle_hash_map_get(&reader->views, key, -1)};
  if (part_p->view >= 0) part_p->pattern = reader->family->views[part_p->view].pattern;
  if (part_p->pattern >= 0) return TREADLE_OK;
  treadle_nearest nearest = treadle_nearest_to(name.text);
  for (int32_t i = 0; i < reader->family->pattern_count; i++)
    treadle_nearest_try(&nearest, reader->family->patterns[i].name);
  for (int32_t i = 0; i < reader->family->view_count; i++)
    treadle_nearest_try(&nearest, reader->family->views[i].name);
  return treadle_family_fail(reader, node, "no tensor is named %s; the nearest is %s", key, nearest.best);
out:
  return status;
}

treadle_status treadle_family_pattern(const treadle_family_reader *reader, const treadle_yaml *node,
                                      const char *text, int32_t *pattern_p) {
  treadle_part_name part;
  treadle_status status;
  TRY(treadle_family_part(reader, node, text, &part));
  if (part.view >= 0)
    return treadle_family_fail(reader, node, "%s is a view, and a tensor is wanted here",
                               reader->family->views[part.view].name);
  *pattern_p = part.pattern;
out:
  return status;
}

/* The digits of a number as text, which end at `end`. Names are made by the ten thousand, and snprintf takes longer
 * than all the rest. */
static const char *digits_of(int64_t value, char *end) {
  char *at = end;
  do *--at = (char)('0' + value % 10);
  while (value /= 10);
  return at;
}

int treadle_name_format(const treadle_name *name, int32_t layer, int32_t decoder_layers, int64_t number,
                        int64_t expert, char *text, size_t capacity) {
  bool mtp = name->mtp && layer >= decoder_layers;
  size_t length = 0;
  char digits[24], *digits_end = digits + sizeof digits;
  for (const char *c = mtp ? name->mtp : name->text; *c; c++) {
    int64_t value = -1;
    const char *from = c, *end = c + 1;
    if (*c == '*') value = expert;
    if (*c == '{' && name->in_layer) { /* {l} or {m}: check_name allows no other */
      value = c[1] == 'l' ? number : layer - decoder_layers;
      if (value >= 0) c += 2;
    }
    if (value >= 0) from = digits_of(value, digits_end), end = digits_end;
    for (; from < end; from++, length++)
      if (length + 1 < capacity) text[length] = *from;
  }
  if (capacity) text[length < capacity ? length : capacity - 1] = 0;
  return (int)length;
}

/* Steps over a whole number; false where there is none of at most 9 digits. */
static bool step_over_number(const char **c_p, int64_t *value_p) {
  const char *c = *c_p;
  int64_t value = 0;
  while (*c >= '0' && *c <= '9' && c - *c_p < 9) value = value * 10 + *c++ - '0';
  if (c == *c_p || (**c_p == '0' && c - *c_p > 1)) return false;
  *c_p = c;
  *value_p = value;
  return true;
}

bool treadle_name_match(const treadle_name *name, bool mtp, const char *text, int64_t *layer_p,
                        bool *is_mtp_p) {
  int64_t expert;
  *layer_p = -1;
  *is_mtp_p = false;
  for (const char *c = mtp && name->mtp ? name->mtp : name->text; *c; c++) {
    if (*c == '{') { /* of {l} or {m}: no name has another */
      int64_t layer;
      if (!step_over_number(&text, &layer) || (*layer_p >= 0 && layer != *layer_p)) return false;
      *layer_p = layer;
      *is_mtp_p = c[1] == 'm';
      c += 2;
    } else if (*c == '*') {
      if (!step_over_number(&text, &expert)) return false;
    } else if (*c != *text++) {
      return false;
    }
  }
  return !*text;
}

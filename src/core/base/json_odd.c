/* Odd values: an object with two keys that no document can have, for they are no UTF-8. */
#include "base/json.h"

#include "base/alloc.h"
#include "base/real.h"
#include "base/text.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text_key[] = "\xff", line_key[] = "\xfe";

json_t *treadle_json_make_odd(const char *text, size_t count, int64_t line) {
  json_t *made = json_object();
  bool good = made && json_object_set_new_nocheck(made, text_key, json_stringn_nocheck(text, count)) == 0 &&
              json_object_set_new_nocheck(made, line_key, json_integer(line)) == 0;
  if (good) return made;
  json_decref(made);
  return NULL;
}

const char *treadle_json_odd(const json_t *value) {
  if (!json_is_object(value) || json_object_size(value) != 2) return NULL;
  return json_string_value(json_object_get(value, text_key));
}

bool treadle_json_is_object(const json_t *value) {
  return json_is_object(value) && !treadle_json_odd(value);
}

const char *treadle_json_note(const json_t *value) {
  enum { SHOWN = 60 };
  static _Thread_local char note[200];
  char shown[SHOWN];
  const char *text = treadle_json_odd(value);
  if (!text) return "";
  bool number = *text != '"', digits = number && strcspn(text, "NI") == strlen(text);
  const char *why = digits   ? ", beyond 64 bits"
                    : number ? ""
                             : ", which has \\u0000 or half of a surrogate pair";
  const char *rest = treadle_utf8_show(shown, sizeof shown, text);
  snprintf(note, sizeof note, " (line %lld: %s%s%s)",
           (long long)json_integer_value(json_object_get(value, line_key)), shown, *rest ? "..." : "", why);
  return note;
}

bool treadle_json_to_real(const json_t *value, double *real_p) {
  const char *text = treadle_json_odd(value);
  if (json_is_number(value))
    *real_p = json_number_value(value);
  else if (!text || *text == '"')
    return false;
  else if (strcmp(text, "NaN") == 0)
    *real_p = (double)NAN;
  else if (strchr(text, 'I'))
    *real_p = *text == '-' ? -(double)INFINITY : (double)INFINITY;
  else
    *real_p = treadle_real_parse(text);
  return true;
}

size_t treadle_json_key(const char *key, char *to) {
  size_t count = 0;
  while (*key) {
    bool zero = strncmp(key, TREADLE_JSON_ZERO, 2) == 0;
    to[count++] = zero ? 0 : *key;
    key += zero ? 2 : 1;
  }
  return count;
}

/* ---- Out --------------------------------------------------------------------------------------------------- */

static bool has_odd(json_t *value) {
  size_t i;
  json_t *item;
  if (treadle_json_odd(value)) return true;
  json_array_foreach(value, i, item) {
    if (has_odd(item)) return true;
  }
  for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at))
    if (strstr(json_object_iter_key(at), TREADLE_JSON_ZERO) || has_odd(json_object_iter_value(at)))
      return true;
  return false;
}

static void add_line(treadle_builder *to, size_t indent, int depth) {
  if (indent) treadle_builder_add(to, "\n%*s", (int)indent * depth, "");
}

static void add_scalar(treadle_builder *to, const json_t *value) {
  char *text = json_dumps(value, JSON_ENCODE_ANY);
  to->failed = to->failed || !text;
  if (text) treadle_builder_add_bytes(to, text, strlen(text));
  free(text);
}

static void add_key(treadle_builder *to, const char *key) {
  char *bytes = treadle_alloc(strlen(key) + 1);
  json_t *text = bytes ? json_stringn(bytes, treadle_json_key(key, bytes)) : NULL;
  to->failed = to->failed || !text;
  if (text) add_scalar(to, text);
  json_decref(text);
  treadle_free(bytes);
}

static void add_value(treadle_builder *to, json_t *value, size_t flags, int depth) {
  size_t indent = flags & JSON_MAX_INDENT, count = 0;
  const char *odd = treadle_json_odd(value), *between = indent || flags & JSON_COMPACT ? "," : ", ";
  size_t size = json_is_array(value) ? json_array_size(value) : json_object_size(value);
  if (odd) {
    treadle_builder_add_bytes(to, odd, strlen(odd));
    return;
  }
  if (!size || !(json_is_array(value) || json_is_object(value))) {
    add_scalar(to, value);
    return;
  }
  treadle_builder_add(to, json_is_array(value) ? "[" : "{");
  for (size_t i = 0; json_is_array(value) && i < size; i++) {
    if (i) treadle_builder_add(to, "%s", between);
    add_line(to, indent, depth + 1);
    add_value(to, json_array_get(value, i), flags, depth + 1);
  }
  for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
    if (count++) treadle_builder_add(to, "%s", between);
    add_line(to, indent, depth + 1);
    add_key(to, json_object_iter_key(at));
    treadle_builder_add(to, flags & JSON_COMPACT ? ":" : ": ");
    add_value(to, json_object_iter_value(at), flags, depth + 1);
  }
  add_line(to, indent, depth);
  treadle_builder_add(to, json_is_array(value) ? "]" : "}");
}

char *treadle_json_dump(json_t *value, size_t flags) {
  treadle_builder to = {0};
  if (!has_odd(value)) return json_dumps(value, flags | JSON_ENCODE_ANY);
  add_value(&to, value, flags, 0);
  if (!to.failed) return to.text;
  treadle_builder_release(&to);
  return NULL;
}

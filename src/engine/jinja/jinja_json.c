/* JSON in and out: what json.dumps writes, and values of a document of jansson's. */
#include "base/json.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_sort.h"
#include "jinja/jinja_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_writer writer;
typedef treadle_jinja_dump dump;

/* ---- Out ------------------------------------------------------------------------------------------ */

static treadle_status write_code(machine *m, writer *w, uint32_t code, bool ascii) {
  char text[16];
  const char *word = code == '"'    ? "\\\""
                     : code == '\\' ? "\\\\"
                     : code == '\n' ? "\\n"
                     : code == '\r' ? "\\r"
                     : code == '\t' ? "\\t"
                     : code == '\f' ? "\\f"
                     : code == '\b' ? "\\b"
                                    : text;
  if (word == text && (code < 0x20 || (ascii && code > 0x7e && code < 0x10000)))
    snprintf(text, sizeof text, "\\u%04" PRIx32, code);
  else if (word == text && ascii && code >= 0x10000)
    snprintf(text, sizeof text, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((code - 0x10000) >> 10),
             0xdc00 + (code & 0x3ff));
  else if (word == text)
    return treadle_jinja_write_code(m, w, code);
  return treadle_jinja_write_plain(m, w, word);
}

static treadle_status write_text(machine *m, writer *w, const treadle_jinja_text *text, bool ascii) {
  uint32_t code;
  PASS(treadle_jinja_scan(m, 4 * text->length));
  PASS(treadle_jinja_write_plain(m, w, "\""));
  for (size_t at = 0; at < text->length;) {
    at += treadle_utf8_decode(text->bytes + at, &code);
    PASS(write_code(m, w, code, ascii));
  }
  return treadle_jinja_write_plain(m, w, "\"");
}

static treadle_status write_scalar(machine *m, writer *w, const dump *how, value v) {
  switch (v.kind) {
  case JINJA_NONE: return treadle_jinja_write_plain(m, w, "null");
  case JINJA_BOOL: return treadle_jinja_write_plain(m, w, v.truth ? "true" : "false");
  case JINJA_INT:
  case JINJA_BIG: return treadle_jinja_write_whole(m, w, v, 10);
  case JINJA_FLOAT:
    if (isnan(v.real)) return treadle_jinja_write_plain(m, w, "NaN");
    if (isinf(v.real)) return treadle_jinja_write_plain(m, w, v.real < 0 ? "-Infinity" : "Infinity");
    return treadle_jinja_write_float(m, w, v.real);
  case JINJA_TEXT: return write_text(m, w, v.text, how->ascii);
  default: REFUSE("a value of type %s cannot be written as JSON", treadle_jinja_type(v));
  }
}

static treadle_status write_line(machine *m, writer *w, const dump *how, int depth) {
  if (!how->lines) return TREADLE_OK;
  PASS(treadle_jinja_write_plain(m, w, "\n"));
  for (int i = 0; i < depth; i++) PASS(treadle_jinja_write(m, w, how->indent->bytes, how->indent->length));
  return TREADLE_OK;
}

static treadle_status write_any(machine *m, writer *w, const dump *how, value v, int depth);

static treadle_status write_list(machine *m, writer *w, const dump *how, value v, int depth) {
  if (v.list->count == 0) return treadle_jinja_write_plain(m, w, "[]");
  PASS(treadle_jinja_write_plain(m, w, "["));
  for (size_t i = 0; i < v.list->count; i++) {
    if (i) PASS(treadle_jinja_write(m, w, how->item->bytes, how->item->length));
    PASS(write_line(m, w, how, depth + 1));
    PASS(write_any(m, w, how, v.list->items[i], depth + 1));
  }
  PASS(write_line(m, w, how, depth));
  return treadle_jinja_write_plain(m, w, "]");
}

/* Keys that are no texts are written as texts: numbers, true, false, null. */
static treadle_status write_key(machine *m, writer *w, const dump *how, value key) {
  if (key.kind == JINJA_TEXT) return write_text(m, w, key.text, how->ascii);
  if (key.kind != JINJA_NONE && !treadle_jinja_is_number(key))
    REFUSE("a key of type %s cannot be written as JSON", treadle_jinja_type(key));
  PASS(treadle_jinja_write_plain(m, w, "\""));
  PASS(write_scalar(m, w, how, key));
  return treadle_jinja_write_plain(m, w, "\"");
}

static treadle_status write_dict(machine *m, writer *w, const dump *how, value v, int depth) {
  const treadle_jinja_dict *dict = v.dict;
  size_t *places = NULL;
  if (dict->count == 0) return treadle_jinja_write_plain(m, w, "{}");
  if (how->sorted) PASS(treadle_jinja_sort(m, dict->keys, dict->count, false, &places));
  PASS(treadle_jinja_write_plain(m, w, "{"));
  for (size_t i = 0; i < dict->count; i++) {
    size_t place = places ? places[i] : i;
    if (i) PASS(treadle_jinja_write(m, w, how->item->bytes, how->item->length));
    PASS(write_line(m, w, how, depth + 1));
    PASS(write_key(m, w, how, dict->keys[place]));
    PASS(treadle_jinja_write(m, w, how->key->bytes, how->key->length));
    PASS(write_any(m, w, how, dict->values[place], depth + 1));
  }
  PASS(write_line(m, w, how, depth));
  return treadle_jinja_write_plain(m, w, "}");
}

static treadle_status write_any(machine *m, writer *w, const dump *how, value v, int depth) {
  bool list = v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
  PASS(treadle_jinja_step(m, 1));
  if (!list && v.kind != JINJA_DICT) return write_scalar(m, w, how, v);
  PASS(treadle_jinja_enter(m));
  treadle_status status = list ? write_list(m, w, how, v, depth) : write_dict(m, w, how, v, depth);
  m->depth--;
  return status;
}

treadle_status treadle_jinja_dump_json(machine *m, writer *w, const dump *how, value v) {
  return write_any(m, w, how, v, 0);
}

/* ---- In ------------------------------------------------------------------------------------------- */

static treadle_status list_of_json(machine *m, json_t *json, value *value_p) {
  size_t count = json_array_size(json);
  value *items;
  PASS(treadle_jinja_alloc(m, count, sizeof *items, &items));
  for (size_t i = 0; i < count; i++) PASS(treadle_jinja_of_json(m, json_array_get(json, i), &items[i]));
  return treadle_jinja_list_of(m, JINJA_LIST, items, count, value_p);
}

static treadle_status dict_of_json(machine *m, json_t *json, value *value_p) {
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_dict_make(m, json_object_size(json), &dict));
  for (void *at = json_object_iter(json); at; at = json_object_iter_next(json, at)) {
    const char *name = json_object_iter_key(at);
    size_t length = strlen(name);
    value key, item;
    if (strstr(name, TREADLE_JSON_ZERO)) {
      char *bytes;
      PASS(treadle_jinja_alloc(m, length, 1, &bytes));
      length = treadle_json_key(name, bytes);
      name = bytes;
    }
    PASS(treadle_jinja_share(m, name, length, &key));
    PASS(treadle_jinja_of_json(m, json_object_iter_value(at), &item));
    PASS(treadle_jinja_dict_put(m, dict, key, item));
  }
  *value_p = (value){.kind = JINJA_DICT, .dict = dict};
  return TREADLE_OK;
}

/* As Python reads it: digits are an int of any length, others a float. */
static treadle_status odd_of_json(machine *m, const json_t *json, value *value_p) {
  const char *text = treadle_json_odd(json);
  bool negative = *text == '-';
  const char *digits = text + negative;
  double real;
  if (strspn(digits, "0123456789") != strlen(digits)) {
    if (!treadle_json_to_real(json, &real)) REFUSE("a text cannot be rendered%s", treadle_json_note(json));
    *value_p = treadle_jinja_float(real);
    return TREADLE_OK;
  }
  PASS(treadle_jinja_of_digits(m, digits, strlen(digits), 10, value_p));
  return negative ? treadle_jinja_negate(m, *value_p, value_p) : TREADLE_OK;
}

static treadle_status value_of_json(machine *m, json_t *json, value *value_p) {
  if (treadle_json_odd(json)) return odd_of_json(m, json, value_p);
  switch (json_typeof(json)) {
  case JSON_OBJECT: return dict_of_json(m, json, value_p);
  case JSON_ARRAY: return list_of_json(m, json, value_p);
  case JSON_STRING:
    return treadle_jinja_share(m, json_string_value(json), json_string_length(json), value_p);
  case JSON_INTEGER: *value_p = treadle_jinja_int(json_integer_value(json)); return TREADLE_OK;
  case JSON_REAL: *value_p = treadle_jinja_float(json_real_value(json)); return TREADLE_OK;
  case JSON_NULL: *value_p = treadle_jinja_none(); return TREADLE_OK;
  default: *value_p = treadle_jinja_bool(json_is_true(json)); return TREADLE_OK;
  }
}

treadle_status treadle_jinja_of_json(machine *m, json_t *json, value *value_p) {
  PASS(treadle_jinja_enter(m));
  treadle_status status = value_of_json(m, json, value_p);
  m->depth--;
  return status;
}

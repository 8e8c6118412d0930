/* str() and repr() of values. What Python prints with a memory address is refused. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_writer writer;

static treadle_status plain(machine *m, writer *w, const char *text) {
  return treadle_jinja_write_plain(m, w, text);
}

/* ---- Texts ---------------------------------------------------------------------------------------- */

static treadle_status write_escaped(machine *m, writer *w, uint32_t code) {
  char text[16];
  const char *format = code < 0x100 ? "\\x%02" PRIx32 : code < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32;
  const char *word = code == '\n' ? "\\n" : code == '\r' ? "\\r" : code == '\t' ? "\\t" : NULL;
  PASS(treadle_jinja_step(m, 2));
  if (!word) snprintf(text, sizeof text, format, code);
  return plain(m, w, word ? word : text);
}

static treadle_status represent_text(machine *m, writer *w, const treadle_jinja_text *text) {
  PASS(treadle_jinja_look(m, text));
  bool single = memchr(text->bytes, '\'', text->length) != NULL;
  char quote = single && !memchr(text->bytes, '"', text->length) ? '"' : '\'';
  uint32_t code;
  if (text->safe) PASS(plain(m, w, "Markup("));
  PASS(treadle_jinja_write(m, w, &quote, 1));
  for (size_t at = 0, next; at < text->length; at = next) {
    next = at + treadle_utf8_decode(text->bytes + at, &code);
    if (code == (uint32_t)quote || code == '\\') PASS(plain(m, w, "\\"));
    if (treadle_jinja_is(JINJA_IS_PRINTABLE, code))
      PASS(treadle_jinja_write(m, w, text->bytes + at, next - at));
    else
      PASS(write_escaped(m, w, code));
  }
  PASS(treadle_jinja_write(m, w, &quote, 1));
  return text->safe ? plain(m, w, ")") : TREADLE_OK;
}

/* ---- What holds others ---------------------------------------------------------------------------- */

static treadle_status represent_list(machine *m, writer *w, value v) {
  bool tuple = v.kind == JINJA_TUPLE;
  PASS(plain(m, w, tuple ? "(" : "["));
  for (size_t i = 0; i < v.list->count; i++) {
    if (i) PASS(plain(m, w, ", "));
    PASS(treadle_jinja_represent(m, w, v.list->items[i]));
  }
  return plain(m, w, !tuple ? "]" : v.list->count == 1 ? ",)" : ")");
}

static treadle_status represent_dict(machine *m, writer *w, const treadle_jinja_dict *dict) {
  PASS(plain(m, w, "{"));
  for (size_t i = 0; i < dict->count; i++) {
    if (i) PASS(plain(m, w, ", "));
    PASS(treadle_jinja_represent(m, w, dict->keys[i]));
    PASS(plain(m, w, ": "));
    PASS(treadle_jinja_represent(m, w, dict->values[i]));
  }
  return plain(m, w, "}");
}

/* dict_keys(['a']) */
static treadle_status represent_view(machine *m, writer *w, value v) {
  const value *items;
  size_t count;
  value list;
  PASS(treadle_jinja_items(m, v, &items, &count));
  PASS(treadle_jinja_list_of(m, JINJA_LIST, items, count, &list));
  PASS(plain(m, w, treadle_jinja_type(v)));
  PASS(plain(m, w, "("));
  PASS(represent_list(m, w, list));
  return plain(m, w, ")");
}

static treadle_status represent_range(machine *m, writer *w, const treadle_jinja_range *range) {
  char text[96];
  if (range->step == 1)
    snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", range->start, range->stop);
  else
    snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", range->start, range->stop,
             range->step);
  return plain(m, w, text);
}

static treadle_status represent_other(machine *m, writer *w, value v) {
  char text[64];
  int64_t length;
  switch (v.kind) {
  case JINJA_KEYS:
  case JINJA_VALUES:
  case JINJA_ITEMS: return represent_view(m, w, v);
  case JINJA_RANGE: return represent_range(m, w, v.range);
  case JINJA_NAMESPACE:
    PASS(plain(m, w, "<Namespace "));
    PASS(represent_dict(m, w, v.names));
    return plain(m, w, ">");
  case JINJA_LOOP:
    PASS(treadle_jinja_loop_length(m, v.loop, &length));
    snprintf(text, sizeof text, "<LoopContext %" PRId64 "/%" PRId64 ">",
             treadle_jinja_loop_index(v.loop) + 1, length);
    return plain(m, w, text);
  case JINJA_MACRO:
    PASS(plain(m, w, "<Macro "));
    if (v.macro->name.kind == JINJA_TEXT)
      PASS(represent_text(m, w, v.macro->name.text));
    else
      PASS(plain(m, w, "anonymous"));
    return plain(m, w, ">");
  case JINJA_ITERATOR: REFUSE("an iterator cannot be printed: the filter list makes a list of it");
  default: return treadle_jinja_unfit(v, "printed: is it to be called?");
  }
}

static treadle_status represent(machine *m, writer *w, value v) {
  switch (v.kind) {
  case JINJA_UNDEFINED: return plain(m, w, "Undefined");
  case JINJA_NONE: return plain(m, w, "None");
  case JINJA_BOOL: return plain(m, w, v.truth ? "True" : "False");
  case JINJA_INT:
  case JINJA_BIG: return treadle_jinja_write_whole(m, w, v, 10);
  case JINJA_FLOAT: return treadle_jinja_write_float(m, w, v.real);
  case JINJA_TEXT: return represent_text(m, w, v.text);
  case JINJA_LIST:
  case JINJA_TUPLE: return represent_list(m, w, v);
  case JINJA_DICT: return represent_dict(m, w, v.dict);
  default: return represent_other(m, w, v);
  }
}

treadle_status treadle_jinja_represent(machine *m, writer *w, value v) {
  PASS(treadle_jinja_step(m, 1));
  PASS(treadle_jinja_enter(m));
  treadle_status status = represent(m, w, v);
  m->depth--;
  return status;
}

treadle_status treadle_jinja_print(machine *m, writer *w, value v) {
  if (v.kind == JINJA_UNDEFINED) return TREADLE_OK;
  if (v.kind == JINJA_TEXT) return treadle_jinja_write(m, w, v.text->bytes, v.text->length);
  return treadle_jinja_represent(m, w, v);
}

treadle_status treadle_jinja_to_text(machine *m, value v, const treadle_jinja_text **text_p) {
  writer w = {0};
  value text = v;
  if (v.kind != JINJA_TEXT) {
    PASS(treadle_jinja_print(m, &w, v));
    PASS(treadle_jinja_written(m, &w, &text));
  }
  *text_p = text.text;
  return TREADLE_OK;
}

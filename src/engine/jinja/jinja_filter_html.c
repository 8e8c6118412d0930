/* Filters for HTML and addresses. */
#include "jinja/jinja_filters.h"
#include "jinja/jinja_text.h"

#include <stdio.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;
typedef treadle_jinja_writer writer;

static treadle_status escaped(machine *m, const treadle_jinja_text *text, value *result_p) {
  writer w = {0};
  PASS(treadle_jinja_escape(m, &w, text));
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, true, result_p);
}

static treadle_status escape(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  *result_p = treadle_jinja_of_text(text);
  return text->safe ? TREADLE_OK : escaped(m, text, result_p);
}

static treadle_status force_escape(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  return escaped(m, text, result_p);
}

static treadle_status safe(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  return treadle_jinja_mark(m, text, true, result_p);
}

/* ---- urlencode ------------------------------------------------------------------------------------------ */

/* Bytes that are no letters, digits or -._~ become %XX; a / stays in a path, a space is + in a query. */
static treadle_status quote(machine *m, writer *w, value v, bool query) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, v, &text));
  PASS(treadle_jinja_step(m, text->length)); /* each byte may be printed */
  for (size_t i = 0; i < text->length; i++) {
    unsigned char c = (unsigned char)text->bytes[i];
    char code[8] = {(char)c, 0};
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 (c && strchr("-._~", c)) || (c == '/' && !query);
    if (!plain) snprintf(code, sizeof code, query && c == ' ' ? "+" : "%%%02X", c);
    PASS(treadle_jinja_write_plain(m, w, code));
  }
  return TREADLE_OK;
}

static treadle_status encode(machine *m, call *c, value *result_p) {
  writer w = {0};
  const value *items, *pair;
  size_t count, two;
  value over = c->self;
  if (over.kind == JINJA_TEXT || !treadle_jinja_is_iterable(over)) {
    PASS(quote(m, &w, over, false));
    return treadle_jinja_written(m, &w, result_p);
  }
  if (over.kind == JINJA_DICT) over.kind = JINJA_ITEMS;
  PASS(treadle_jinja_items(m, over, &items, &count));
  for (size_t i = 0; i < count; i++) {
    PASS(treadle_jinja_items(m, items[i], &pair, &two));
    if (two != 2) REFUSE("urlencode takes pairs of a name and a value");
    if (i) PASS(treadle_jinja_write_plain(m, &w, "&"));
    PASS(quote(m, &w, pair[0], true));
    PASS(treadle_jinja_write_plain(m, &w, "="));
    PASS(quote(m, &w, pair[1], true));
  }
  return treadle_jinja_written(m, &w, result_p);
}

/* ---- xmlattr --------------------------------------------------------------------------------------------- */

static treadle_status write_escaped(machine *m, writer *w, value v) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, v, &text));
  return text->safe ? treadle_jinja_write(m, w, text->bytes, text->length)
                    : treadle_jinja_escape(m, w, text);
}

static treadle_status attributes(machine *m, call *c, value *result_p) {
  writer w = {0};
  if (c->self.kind != JINJA_DICT) return treadle_jinja_unfit(c->self, "read as attributes");
  const treadle_jinja_dict *dict = c->self.dict;
  for (size_t i = 0; i < dict->count; i++) {
    PASS(treadle_jinja_step(m, 1));
    if (dict->values[i].kind == JINJA_NONE || dict->values[i].kind == JINJA_UNDEFINED) continue;
    const treadle_jinja_text *name;
    PASS(treadle_jinja_text_argument(dict->keys[i], "d", &name));
    PASS(treadle_jinja_scan(m, 4 * name->length));
    for (size_t j = 0; j < name->length; j++)
      if (name->bytes[j] && strchr(" \t\n\r\f\v/>=", name->bytes[j]))
        REFUSE("a name of an attribute has '%c'", name->bytes[j]);
    if (w.length || treadle_jinja_flag(c->bound[0], true)) PASS(treadle_jinja_write_plain(m, &w, " "));
    PASS(write_escaped(m, &w, dict->keys[i]));
    PASS(treadle_jinja_write_plain(m, &w, "=\""));
    PASS(write_escaped(m, &w, dict->values[i]));
    PASS(treadle_jinja_write_plain(m, &w, "\""));
  }
  return treadle_jinja_written(m, &w, result_p);
}

const treadle_jinja_row treadle_jinja_html_filters[] = {{"e", escape, ""},
                                                        {"escape", escape, ""},
                                                        {"forceescape", force_escape, ""},
                                                        {"safe", safe, ""},
                                                        {"striptags", NULL, "*"},
                                                        {"urlencode", encode, ""},
                                                        {"xmlattr", attributes, "autospace?"},
                                                        {NULL, NULL, NULL}};

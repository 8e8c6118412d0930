/* Calls: finding the function, giving its arguments their places. */
#include "base/text.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include "jinja/jinja_number.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;
typedef treadle_jinja_row row;

const row *treadle_jinja_row_of(const row *table, const char *name) {
  for (; table->name; table++)
    if (strcmp(table->name, name) == 0) return table;
  return NULL;
}

const value *treadle_jinja_named(const call *c, const char *name) {
  for (size_t i = 0; i < c->named_count; i++)
    if (treadle_jinja_equals(c->names[i].text, name)) return &c->named[i];
  return NULL;
}

/* The i-th name of "old new count?": its bytes and whether it is optional; 0 behind the last. */
static int name_at(const char *takes, size_t i, const char **name_p, bool *optional_p) {
  for (;; i--) {
    takes += strspn(takes, " /");
    size_t length = strcspn(takes, " ");
    if (length == 0) return 0;
    *name_p = takes;
    *optional_p = takes[length - 1] == '?';
    if (i == 0) return (int)(length - *optional_p);
    takes += length;
  }
}

static bool is_name(const treadle_jinja_text *text, const char *name, int length) {
  return text->length == (size_t)length && memcmp(text->bytes, name, text->length) == 0;
}

/* Puts the named arguments to their places. */
static treadle_status bind_named(const row *r, call *c, size_t places) {
  const char *name;
  bool optional;
  for (size_t i = 0; i < c->named_count; i++) {
    const treadle_jinja_text *given = c->names[i].text;
    size_t place = 0;
    int length;
    while ((length = name_at(r->takes, place, &name, &optional)) && !is_name(given, name, length)) place++;
    if (!length || *r->takes == '/')
      REFUSE("'%s' takes no argument '%.*s'", r->name, (int)(given->length < 60 ? given->length : 60),
             given->bytes);
    if (place < places && c->bound[place].kind != JINJA_ABSENT)
      REFUSE("'%s' is given its argument '%.*s' twice", r->name, length, name);
    c->bound[place] = c->named[i];
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_run(machine *m, const row *r, call *c, value *result_p) {
  const char *name;
  bool optional;
  int length;
  if (!r->run) REFUSE("'%s' is not supported", r->name);
  if (*r->takes == '*') return r->run(m, c, result_p);
  memset(c->bound, 0, sizeof c->bound);
  size_t places = 0;
  while (name_at(r->takes, places, &name, &optional)) places++;
  if (c->count > places)
    REFUSE("'%s' takes not more than %s, and has %zu", r->name,
           treadle_text_of_count((int64_t)places, "argument"), c->count);
  if (c->count) memcpy(c->bound, c->items, c->count * sizeof *c->bound);
  PASS(bind_named(r, c, places));
  for (size_t i = 0; i < places; i++) {
    length = name_at(r->takes, i, &name, &optional);
    if (!optional && c->bound[i].kind == JINJA_ABSENT)
      REFUSE("'%s' lacks its argument '%.*s'", r->name, length, name);
  }
  return r->run(m, c, result_p);
}

bool treadle_jinja_is_callable(value v) {
  return v.kind == JINJA_FUNCTION || v.kind == JINJA_METHOD || v.kind == JINJA_MACRO ||
         v.kind == JINJA_LOOP || v.kind == JINJA_JOINER || v.kind == JINJA_UNDEFINED;
}

static treadle_status call_joiner(machine *m, treadle_jinja_joiner *joiner, const call *c,
                                  value *result_p) {
  if (c->count || c->named_count) REFUSE("a joiner takes no argument");
  if (joiner->used) {
    *result_p = joiner->separator;
    return TREADLE_OK;
  }
  joiner->used = true;
  return treadle_jinja_plain(m, "", result_p);
}

treadle_status treadle_jinja_call_value(machine *m, value callee, call *c, value *result_p) {
  switch (callee.kind) {
  case JINJA_FUNCTION: return treadle_jinja_run(m, callee.function, c, result_p);
  case JINJA_METHOD:
    c->self = callee.method->self;
    return treadle_jinja_run(m, callee.method->row, c, result_p);
  case JINJA_MACRO: return treadle_jinja_macro_call(m, callee.macro, c, result_p);
  case JINJA_JOINER: return call_joiner(m, callee.joiner, c, result_p);
  case JINJA_LOOP:
    if (c->count != 1 || c->named_count) REFUSE("a loop is called with one argument");
    return treadle_jinja_loop_call(m, callee.loop, c->items[0], result_p);
  default: return treadle_jinja_unfit(callee, "called");
  }
}

/* ---- Arguments ---------------------------------------------------------------------------------------- */

bool treadle_jinja_flag(value v, bool otherwise) {
  return v.kind == JINJA_ABSENT ? otherwise : treadle_jinja_is_true(v);
}

treadle_status treadle_jinja_whole_argument(value v, const char *what, int64_t otherwise,
                                            int64_t *number_p) {
  *number_p = otherwise;
  if (v.kind == JINJA_ABSENT || treadle_jinja_to_index(v, number_p)) return TREADLE_OK;
  PASS(treadle_jinja_defined(v));
  REFUSE("the argument '%s' is an int, not a value of type %s", what, treadle_jinja_type(v));
}

treadle_status treadle_jinja_text_argument(value v, const char *what, const treadle_jinja_text **text_p) {
  if (v.kind == JINJA_TEXT) {
    *text_p = v.text;
    return TREADLE_OK;
  }
  PASS(treadle_jinja_defined(v));
  REFUSE("the argument '%s' is a str, not a value of type %s", what, treadle_jinja_type(v));
}

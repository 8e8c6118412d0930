/* Macros. caller, kwargs and varargs are variables of a macro whose body speaks of them; another one refuses what it cannot
 * take. */
#include "base/text.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_scope scope;
typedef treadle_jinja_tree tree;
typedef treadle_jinja_call call;
typedef treadle_jinja_macro macro;

treadle_status treadle_jinja_macro_make(machine *m, scope *s, const tree *t, value *macro_p) {
  macro *made;
  PASS(treadle_jinja_alloc(m, 1, sizeof *made, &made));
  *made = (macro){treadle_jinja_none(), t, s};
  if (t->name) PASS(treadle_jinja_plain(m, t->name, &made->name));
  *macro_p = (value){.kind = JINJA_MACRO, .macro = made};
  return TREADLE_OK;
}

/* The name of the macro for messages. */
static const char *called(const macro *o) { return o->tree->name ? o->tree->name : "caller"; }

static bool has_parameter(const tree *t, const char *name) {
  for (size_t i = 0; i < t->name_count; i++)
    if (strcmp(t->names[i], name) == 0) return true;
  return false;
}

/* A parameter gets its argument, its default, or is undefined. Defaults see the parameters before them. */
static treadle_status set_parameter(machine *m, scope *s, const macro *o, size_t i, const value *given) {
  const tree *t = o->tree;
  value v;
  size_t first = t->name_count - t->list.count; /* parameter with a default */
  if (given)
    v = *given;
  else if (i >= first)
    PASS(treadle_jinja_eval(m, s, t->list.items[i - first], &v));
  else {
    const char *reason =
        treadle_arena_format(&m->arena, "the parameter '%.60s' was not given", t->names[i]);
    if (!reason) return treadle_fail(TREADLE_NO_MEMORY, "no memory to render a template");
    PASS(treadle_jinja_undefined_since(m, reason, &v));
  }
  return treadle_jinja_scope_set(m, s, t->names[i], v);
}

/* Arguments by name that no parameter takes: those of kwargs. The caller is none of them. */
static treadle_status rest_of_named(machine *m, const macro *o, const call *c, bool *taken, value *rest_p) {
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_dict_make(m, 0, &dict));
  for (size_t i = 0; i < c->named_count; i++) {
    const treadle_jinja_text *name = c->names[i].text;
    if (taken[i]) continue;
    if (!o->tree->takes_named)
      REFUSE("the macro '%.60s' takes no argument '%.*s'", called(o),
             (int)(name->length < 60 ? name->length : 60), name->bytes);
    PASS(treadle_jinja_dict_put(m, dict, c->names[i], c->named[i]));
  }
  *rest_p = (value){.kind = JINJA_DICT, .dict = dict};
  return TREADLE_OK;
}

/* kwargs, varargs and caller. Names are interned by the parser; these are compared with the tree's. */
static treadle_status set_special(machine *m, scope *s, const macro *o, const call *c, bool *taken) {
  const tree *t = o->tree;
  value v;
  if (t->takes_caller && !has_parameter(t, "caller")) {
    PASS(treadle_jinja_undefined_since(m, "no caller is given", &v));
    for (size_t i = 0; i < c->named_count; i++) {
      if (taken[i] || !treadle_jinja_equals(c->names[i].text, "caller")) continue;
      taken[i] = true;
      if (c->named[i].kind != JINJA_NONE) v = c->named[i];
    }
    PASS(treadle_jinja_scope_set(m, s, m->template->caller, v));
  }
  PASS(rest_of_named(m, o, c, taken, &v));
  if (t->takes_named) PASS(treadle_jinja_scope_set(m, s, m->template->kwargs, v));
  size_t used = c->count < t->name_count ? c->count : t->name_count;
  if (!t->takes_more && c->count > used)
    REFUSE("the macro '%.60s' takes not more than %s, and has %zu", called(o),
           treadle_text_of_count((int64_t)t->name_count, "argument"), c->count);
  if (!t->takes_more) return TREADLE_OK;
  PASS(treadle_jinja_list_of(m, JINJA_TUPLE, c->items + used, c->count - used, &v));
  return treadle_jinja_scope_set(m, s, m->template->varargs, v);
}

/* Which argument is a parameter's; NULL: none. */
static const value *argument_of(const macro *o, const call *c, size_t i, bool *taken) {
  if (i < c->count) return &c->items[i];
  for (size_t j = 0; j < c->named_count; j++) {
    if (!treadle_jinja_equals(c->names[j].text, o->tree->names[i])) continue;
    taken[j] = true;
    return &c->named[j];
  }
  return NULL;
}

treadle_status treadle_jinja_macro_call(machine *m, const macro *o, const call *c, value *result_p) {
  scope *s;
  bool *taken;
  const value **given;
  treadle_jinja_flow flow;
  size_t count = o->tree->name_count;
  PASS(treadle_jinja_scope_make(m, o->scope, &s));
  PASS(treadle_jinja_alloc(m, c->named_count, sizeof *taken, &taken));
  PASS(treadle_jinja_alloc(m, count, sizeof *given, &given));
  for (size_t i = 0; i < count; i++) given[i] = argument_of(o, c, i, taken);
  PASS(set_special(m, s, o, c, taken));
  for (size_t i = 0; i < count; i++) PASS(set_parameter(m, s, o, i, given[i]));
  return treadle_jinja_capture(m, s, o->tree->body, &flow, result_p);
}

treadle_status treadle_jinja_macro_attribute(machine *m, const macro *o, const char *name, bool *got_p,
                                             value *value_p) {
  const tree *t = o->tree;
  value *items;
  *got_p = true;
  if (strcmp(name, "name") == 0)
    *value_p = o->name;
  else if (strcmp(name, "catch_kwargs") == 0)
    *value_p = treadle_jinja_bool(t->takes_named);
  else if (strcmp(name, "catch_varargs") == 0)
    *value_p = treadle_jinja_bool(t->takes_more);
  else if (strcmp(name, "caller") == 0)
    *value_p = treadle_jinja_bool(t->takes_caller);
  else if (strcmp(name, "explicit_caller") == 0)
    *value_p = treadle_jinja_bool(has_parameter(t, "caller"));
  else if (strcmp(name, "arguments") == 0) {
    PASS(treadle_jinja_alloc(m, t->name_count, sizeof *items, &items));
    for (size_t i = 0; i < t->name_count; i++) PASS(treadle_jinja_plain(m, t->names[i], &items[i]));
    return treadle_jinja_list_of(m, JINJA_TUPLE, items, t->name_count, value_p);
  } else
    *got_p = false;
  return TREADLE_OK;
}

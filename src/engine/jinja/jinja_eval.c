/* Expressions: one function for each form. The innermost expression that fails leaves its line in the machine. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_scope scope;
typedef treadle_jinja_tree tree;
typedef treadle_jinja_call call;

/* ---- Literals and names ------------------------------------------------------------------------------ */

static treadle_status eval_const(machine *m, scope *s, const tree *t, value *value_p) {
  (void)m;
  (void)s;
  *value_p = t->constant;
  return TREADLE_OK;
}

static treadle_status eval_name(machine *m, scope *s, const tree *t, value *value_p) {
  return treadle_jinja_scope_get(m, s, t->name, value_p);
}

static treadle_status eval_all(machine *m, scope *s, const treadle_jinja_trees *trees, value **values_p) {
  PASS(treadle_jinja_alloc(m, trees->count, sizeof **values_p, values_p));
  for (size_t i = 0; i < trees->count; i++)
    PASS(treadle_jinja_eval(m, s, trees->items[i], &(*values_p)[i]));
  return TREADLE_OK;
}

static treadle_status eval_list(machine *m, scope *s, const tree *t, value *value_p) {
  value *items;
  PASS(eval_all(m, s, &t->list, &items));
  return treadle_jinja_list_of(m, t->form == JINJA_MAKE_TUPLE ? JINJA_TUPLE : JINJA_LIST, items,
                               t->list.count, value_p);
}

static treadle_status eval_dict(machine *m, scope *s, const tree *t, value *value_p) {
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_dict_make(m, t->list.count, &dict));
  for (size_t i = 0; i < t->list.count; i++) {
    value key, item;
    PASS(treadle_jinja_eval(m, s, t->list.items[i], &key));
    PASS(treadle_jinja_eval(m, s, t->more.items[i], &item));
    PASS(treadle_jinja_dict_put(m, dict, key, item));
  }
  *value_p = (value){.kind = JINJA_DICT, .dict = dict};
  return TREADLE_OK;
}

/* ---- Attributes, elements, slices ---------------------------------------------------------------------- */

static treadle_status eval_attribute(machine *m, scope *s, const tree *t, value *value_p) {
  value of;
  PASS(treadle_jinja_eval(m, s, t->of, &of));
  return treadle_jinja_attribute(m, of, t->name, value_p);
}

static treadle_status eval_element(machine *m, scope *s, const tree *t, value *value_p) {
  value of, key, bounds[3];
  PASS(treadle_jinja_eval(m, s, t->of, &of));
  if (t->by->form != JINJA_SLICE) {
    PASS(treadle_jinja_eval(m, s, t->by, &key));
    return treadle_jinja_element(m, of, key, value_p);
  }
  const tree *parts[] = {t->by->of, t->by->by, t->by->other};
  for (int i = 0; i < 3; i++) {
    bounds[i] = treadle_jinja_none();
    if (parts[i]) PASS(treadle_jinja_eval(m, s, parts[i], &bounds[i]));
  }
  return treadle_jinja_slice(m, of, bounds, value_p);
}

static treadle_status eval_slice(machine *m, scope *s, const tree *t, value *value_p) {
  (void)m, (void)s, (void)t, (void)value_p;
  REFUSE("a slice beside other indices is not supported");
}

/* ---- Operators ------------------------------------------------------------------------------------------ */

static treadle_status eval_not(machine *m, scope *s, const tree *t, value *value_p) {
  value of;
  PASS(treadle_jinja_eval(m, s, t->of, &of));
  *value_p = treadle_jinja_bool(!treadle_jinja_is_true(of));
  return TREADLE_OK;
}

static treadle_status eval_sign(machine *m, scope *s, const tree *t, value *value_p) {
  value of;
  PASS(treadle_jinja_eval(m, s, t->of, &of));
  if (!treadle_jinja_is_number(of)) return treadle_jinja_unfit(of, "given a sign");
  if (t->form == JINJA_MINUS) return treadle_jinja_negate(m, of, value_p);
  *value_p = of.kind == JINJA_BOOL ? treadle_jinja_int(of.truth) : of;
  return TREADLE_OK;
}

static treadle_status eval_operate(machine *m, scope *s, const tree *t, value *value_p) {
  value left, right;
  char op = t->name[1] ? (t->name[0] == '*' ? '^' : '|') : t->name[0];
  PASS(treadle_jinja_eval(m, s, t->of, &left));
  PASS(treadle_jinja_eval(m, s, t->by, &right));
  return treadle_jinja_operate(m, op, left, right, value_p);
}

static treadle_status eval_logic(machine *m, scope *s, const tree *t, value *value_p) {
  PASS(treadle_jinja_eval(m, s, t->of, value_p));
  if (treadle_jinja_is_true(*value_p) == (t->form == JINJA_OR)) return TREADLE_OK;
  return treadle_jinja_eval(m, s, t->by, value_p);
}

static treadle_status eval_choose(machine *m, scope *s, const tree *t, value *value_p) {
  value of;
  PASS(treadle_jinja_eval(m, s, t->of, &of));
  if (treadle_jinja_is_true(of)) return treadle_jinja_eval(m, s, t->by, value_p);
  if (t->other) return treadle_jinja_eval(m, s, t->other, value_p);
  return treadle_jinja_undefined_since(m, "an 'if' without 'else' gave no value", value_p);
}

/* a < b < c is a < b and b < c. */
static treadle_status eval_compare(machine *m, scope *s, const tree *t, value *value_p) {
  value left, right;
  bool holds = true;
  PASS(treadle_jinja_eval(m, s, t->of, &left));
  for (size_t i = 0; holds && i < t->list.count; i++, left = right) {
    const char *op = t->names[i];
    PASS(treadle_jinja_eval(m, s, t->list.items[i], &right));
    if (*op == 'i' || *op == 'n') {
      PASS(treadle_jinja_contains(m, right, left, &holds));
      if (*op == 'n') holds = !holds;
    } else
      PASS(treadle_jinja_compare(m, op, left, right, &holds));
  }
  *value_p = treadle_jinja_bool(holds);
  return TREADLE_OK;
}

static treadle_status eval_join(machine *m, scope *s, const tree *t, value *value_p) {
  treadle_jinja_writer w = {0};
  value *items;
  PASS(eval_all(m, s, &t->list, &items));
  for (size_t i = 0; i < t->list.count; i++) PASS(treadle_jinja_print(m, &w, items[i]));
  return treadle_jinja_written(m, &w, value_p);
}

/* ---- Calls ---------------------------------------------------------------------------------------------- */

/* Adds what * and ** give. */
static treadle_status add_starred(machine *m, scope *s, const tree *t, call *c) {
  value more;
  if (t->by) {
    const value *items;
    size_t count;
    PASS(treadle_jinja_eval(m, s, t->by, &more));
    PASS(treadle_jinja_items(m, more, &items, &count));
    value *all;
    PASS(treadle_jinja_alloc(m, c->count + count, sizeof *all, &all));
    if (c->count) memcpy(all, c->items, c->count * sizeof *all);
    if (count) memcpy(all + c->count, items, count * sizeof *all);
    c->items = all;
    c->count += count;
  }
  if (!t->other) return TREADLE_OK;
  PASS(treadle_jinja_eval(m, s, t->other, &more));
  if (more.kind != JINJA_DICT) return treadle_jinja_unfit(more, "given as **: a dict is wanted");
  value *names, *named;
  size_t count = c->named_count + more.dict->count;
  PASS(treadle_jinja_alloc(m, count + 1, sizeof *names, &names)); /* one more: a caller */
  PASS(treadle_jinja_alloc(m, count + 1, sizeof *named, &named));
  if (c->named_count) memcpy(names, c->names, c->named_count * sizeof *names);
  if (c->named_count) memcpy(named, c->named, c->named_count * sizeof *named);
  c->names = names;
  c->named = named;
  for (size_t i = 0; i < more.dict->count; i++) {
    if (more.dict->keys[i].kind != JINJA_TEXT) REFUSE("a key of ** is not a str");
    for (size_t j = 0; j < c->named_count; j++) {
      bool same;
      PASS(treadle_jinja_equal(m, names[j], more.dict->keys[i], &same));
      if (same) REFUSE("an argument of ** is given by name too");
    }
    names[c->named_count] = more.dict->keys[i];
    named[c->named_count++] = more.dict->values[i];
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_eval_arguments(machine *m, scope *s, const tree *t, call *c) {
  value *items;
  *c = (call){.count = t->list.count, .named_count = t->more.count};
  PASS(eval_all(m, s, &t->list, &items));
  c->items = items;
  PASS(treadle_jinja_alloc(m, t->more.count + 1, sizeof *c->names, &c->names));
  PASS(treadle_jinja_alloc(m, t->more.count + 1, sizeof *c->named, &c->named));
  for (size_t i = 0; i < t->more.count; i++) {
    PASS(treadle_jinja_plain(m, t->names[i], &c->names[i]));
    PASS(treadle_jinja_eval(m, s, t->more.items[i], &c->named[i]));
  }
  return t->by || t->other ? add_starred(m, s, t, c) : TREADLE_OK;
}

static treadle_status eval_call(machine *m, scope *s, const tree *t, value *value_p) {
  value callee;
  call *c;
  PASS(treadle_jinja_eval(m, s, t->of, &callee));
  PASS(treadle_jinja_alloc(m, 1, sizeof *c, &c));
  PASS(treadle_jinja_eval_arguments(m, s, t, c));
  return treadle_jinja_call_value(m, callee, c, value_p);
}

/* A filter without a value is that of a block, which has put the value into `s` under no name. */
static treadle_status eval_filter_or_test(machine *m, scope *s, const tree *t, value *value_p) {
  value self;
  call *c;
  if (t->of)
    PASS(treadle_jinja_eval(m, s, t->of, &self));
  else
    PASS(treadle_jinja_scope_get(m, s, NULL, &self));
  PASS(treadle_jinja_alloc(m, 1, sizeof *c, &c));
  PASS(treadle_jinja_eval_arguments(m, s, t, c));
  c->self = self;
  if (!t->row) REFUSE("there is no %s named '%s'", t->form == JINJA_TEST ? "test" : "filter", t->name);
  return treadle_jinja_run(m, t->row, c, value_p);
}

/* ---- All ------------------------------------------------------------------------------------------------ */

treadle_status treadle_jinja_eval(machine *m, scope *s, const tree *t, value *value_p) {
  static treadle_status (*const evals[JINJA_FORMS])(machine *, scope *, const tree *, value *) = {
      [JINJA_CONST] = eval_const,
      [JINJA_NAME] = eval_name,
      [JINJA_MAKE_TUPLE] = eval_list,
      [JINJA_MAKE_LIST] = eval_list,
      [JINJA_MAKE_DICT] = eval_dict,
      [JINJA_ATTRIBUTE] = eval_attribute,
      [JINJA_ELEMENT] = eval_element,
      [JINJA_SLICE] = eval_slice,
      [JINJA_CALL] = eval_call,
      [JINJA_FILTER] = eval_filter_or_test,
      [JINJA_TEST] = eval_filter_or_test,
      [JINJA_NOT] = eval_not,
      [JINJA_MINUS] = eval_sign,
      [JINJA_PLUS] = eval_sign,
      [JINJA_OPERATE] = eval_operate,
      [JINJA_AND] = eval_logic,
      [JINJA_OR] = eval_logic,
      [JINJA_CHOOSE] = eval_choose,
      [JINJA_COMPARE] = eval_compare,
      [JINJA_JOIN] = eval_join,
  };
  PASS(treadle_jinja_step(m, 1));
  PASS(treadle_jinja_enter(m));
  treadle_status status = evals[t->form](m, s, t, value_p);
  if (status != TREADLE_OK && !m->line) m->line = t->line;
  m->depth--;
  return status;
}

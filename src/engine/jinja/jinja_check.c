/* What Jinja finds when it compiles a parsed template. A filter or test that does not exist is an error at once, but one inside of an
 * if (the statement or the expression) only when it runs: templates ask first whether there is one. A loop or another body
 * with a scope of its own inside of that if is strict again. */
#include "jinja/jinja_run.h"

#include <string.h>

typedef treadle_jinja_machine machine;
typedef treadle_jinja_tree tree;

/* A block's name stands in a template once. */
typedef struct block {
  const char *name;
  struct block *next;
} block;

/* Where a tree stands. */
typedef struct place {
  bool soft;                 /* in an if */
  bool in_loop;              /* break and continue mean something */
  bool loop_name;            /* a loop is around it: its name cannot be set */
  tree *macro;               /* that is around it, NULL: none */
  const struct place *outer; /* the place of that macro */
  struct block **blocks;     /* of the template so far */
} place;

static treadle_status check(machine *m, tree *t, place at);

static treadle_status fail(machine *m, const tree *t, const char *what, const char *name) {
  m->line = t->line;
  REFUSE("%s%s%.60s%s", what, name ? " '" : "", name ? name : "", name ? "'" : "");
}

static treadle_status check_all(machine *m, const treadle_jinja_trees *trees, const place *at) {
  for (size_t i = 0; i < trees->count; i++) PASS(check(m, trees->items[i], *at));
  return TREADLE_OK;
}

static treadle_status check_target(machine *m, const tree *t, const place *at) {
  if (t->form == JINJA_NAME && at->loop_name && strcmp(t->name, "loop") == 0)
    return fail(m, t, "inside of a loop the variable 'loop' cannot be set", NULL);
  for (size_t i = 0; t->form == JINJA_MAKE_TUPLE && i < t->list.count; i++)
    PASS(check_target(m, t->list.items[i], at));
  return TREADLE_OK;
}

static treadle_status check_name(machine *m, tree *t, place at) {
  (void)m;
  for (const place *around = &at; around && around->macro; around = around->outer) {
    tree *macro = around->macro;
    bool parameter = false;
    for (size_t j = 0; j < macro->name_count; j++) parameter = parameter || macro->names[j] == t->name;
    if (strcmp(t->name, "caller") == 0) macro->takes_caller = true;
    if (strcmp(t->name, "kwargs") == 0 && !parameter) macro->takes_named = true;
    if (strcmp(t->name, "varargs") == 0 && !parameter) macro->takes_more = true;
  }
  return TREADLE_OK;
}

/* An argument is given by name once. */
static treadle_status check_names(machine *m, const tree *t) {
  for (size_t i = 0; i < t->name_count; i++)
    for (size_t j = 0; j < i; j++)
      if (t->names[i] == t->names[j]) return fail(m, t, "an argument is given twice:", t->names[i]);
  return TREADLE_OK;
}

static treadle_status check_parts(machine *m, tree *t, place at) {
  PASS(check_names(m, t));
  if (t->of) PASS(check(m, t->of, at));
  if (t->by) PASS(check(m, t->by, at));
  if (t->other) PASS(check(m, t->other, at));
  PASS(check_all(m, &t->list, &at));
  PASS(check_all(m, &t->more, &at));
  return check_all(m, &t->body, &at);
}

static treadle_status check_filter_or_test(machine *m, tree *t, place at) {
  bool test = t->form == JINJA_TEST;
  t->row = test ? treadle_jinja_test(t->name) : treadle_jinja_filter(t->name);
  if (!t->row && !at.soft)
    return fail(m, t, test ? "there is no test named" : "there is no filter named", t->name);
  return check_parts(m, t, at);
}

static treadle_status check_soft(machine *m, tree *t, place at) {
  at.soft = true;
  return check_parts(m, t, at);
}

static treadle_status check_set(machine *m, tree *t, place at) {
  PASS(check_target(m, t->of, &at));
  place inner = at;
  inner.soft = false;
  if (t->form == JINJA_SET_BLOCK) PASS(check_all(m, &t->body, &inner));
  return t->by ? check(m, t->by, t->form == JINJA_SET_BLOCK ? inner : at) : TREADLE_OK;
}

static treadle_status check_for(machine *m, tree *t, place at) {
  place inner = at;
  inner.soft = false;
  if (t->other) PASS(check(m, t->other, inner));
  inner.loop_name = true;
  PASS(check_target(m, t->of, &inner));
  place ended = inner;
  ended.in_loop = at.in_loop && !t->recursive;
  inner.in_loop = true;
  PASS(check(m, t->by, at));
  PASS(check_all(m, &t->body, &inner));
  return check_all(m, &t->more, &ended);
}

static treadle_status add_block(machine *m, const tree *t, block **blocks) {
  block *one;
  for (one = *blocks; one; one = one->next)
    if (one->name == t->name) return fail(m, t, "there are two blocks named", t->name);
  PASS(treadle_jinja_alloc(m, 1, sizeof *one, &one));
  *one = (block){t->name, *blocks};
  *blocks = one;
  return TREADLE_OK;
}

static treadle_status check_scoped(machine *m, tree *t, place at) {
  if (t->form == JINJA_BLOCK) {
    PASS(add_block(m, t, at.blocks));
    at.in_loop = false;
  }
  place outer = at;
  at.soft = false;
  for (size_t i = 0; t->form == JINJA_WITH && i < t->list.count; i++)
    PASS(check_target(m, t->list.items[i], &at));
  PASS(check_all(m, &t->more, &outer));
  PASS(check_all(m, &t->body, &at));
  return t->of ? check(m, t->of, at) : TREADLE_OK;
}

/* The bodies of macros, calls and generations are functions. */
static treadle_status check_macro(machine *m, tree *t, place at) {
  place inner = at;
  inner.soft = false;
  inner.in_loop = false;
  inner.macro = t;
  inner.outer = &at;
  for (size_t i = 0; at.loop_name && i < t->name_count; i++)
    if (strcmp(t->names[i], "loop") == 0)
      return fail(m, t, "inside of a loop no parameter is named 'loop'", NULL);
  PASS(check_all(m, &t->body, &inner));
  inner.macro = at.macro;
  inner.outer = at.outer;
  PASS(check_all(m, &t->list, &inner));
  size_t first = t->name_count - t->list.count;
  for (size_t i = 0; t->takes_caller && i < first; i++)
    if (strcmp(t->names[i], "caller") == 0)
      return fail(m, t, "a parameter 'caller' has a default, or is left out", NULL);
  return t->of ? check(m, t->of, at) : TREADLE_OK;
}

static treadle_status check_jump(machine *m, tree *t, place at) {
  if (at.in_loop) return TREADLE_OK;
  return fail(
      m, t, t->form == JINJA_BREAK ? "break stands outside of a loop" : "continue stands outside of a loop",
      NULL);
}

static treadle_status check(machine *m, tree *t, place at) {
  static treadle_status (*const checks[JINJA_FORMS])(machine *, tree *, place) = {
      [JINJA_NAME] = check_name,
      [JINJA_FILTER] = check_filter_or_test,
      [JINJA_TEST] = check_filter_or_test,
      [JINJA_CHOOSE] = check_soft,
      [JINJA_IF] = check_soft,
      [JINJA_SET] = check_set,
      [JINJA_SET_BLOCK] = check_set,
      [JINJA_FOR] = check_for,
      [JINJA_WITH] = check_scoped,
      [JINJA_FILTER_BLOCK] = check_scoped,
      [JINJA_BLOCK] = check_scoped,
      [JINJA_DEFINE] = check_macro,
      [JINJA_CALL_BLOCK] = check_macro,
      [JINJA_GENERATION] = check_macro,
      [JINJA_BREAK] = check_jump,
      [JINJA_CONTINUE] = check_jump,
  };
  PASS(treadle_jinja_step(m, 1));
  return checks[t->form] ? checks[t->form](m, t, at) : check_parts(m, t, at);
}

treadle_status treadle_jinja_check(machine *m, treadle_jinja_trees body) {
  block *blocks = NULL;
  place at = {.blocks = &blocks};
  return check_all(m, &body, &at);
}

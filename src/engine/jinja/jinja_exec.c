/* Statements. Output goes to the machine's writer; what captures a body puts another one in its place for a while. */
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_scope scope;
typedef treadle_jinja_tree tree;
typedef treadle_jinja_flow flow;

treadle_status treadle_jinja_capture(machine *m, scope *s, treadle_jinja_trees body, flow *flow_p,
                                     value *text_p) {
  treadle_jinja_writer w = {0}, *before = m->out;
  m->out = &w;
  treadle_status status = treadle_jinja_exec(m, s, body, flow_p);
  m->out = before;
  PASS(status);
  return treadle_jinja_written(m, &w, text_p);
}

static treadle_status exec_output(machine *m, scope *s, const tree *t, flow *flow_p) {
  (void)flow_p;
  for (size_t i = 0; i < t->list.count; i++) {
    value v;
    PASS(treadle_jinja_eval(m, s, t->list.items[i], &v));
    treadle_status status = treadle_jinja_print(m, m->out, v);
    if (status != TREADLE_OK && !m->line) m->line = t->list.items[i]->line;
    PASS(status);
  }
  return TREADLE_OK;
}

static treadle_status exec_set(machine *m, scope *s, const tree *t, flow *flow_p) {
  (void)flow_p;
  value v;
  PASS(treadle_jinja_eval(m, s, t->by, &v));
  return treadle_jinja_assign(m, s, t->of, v);
}

/* The text of a body in a scope of its own, through the filters of its block. The innermost filter has no value of its own: it takes
 * the variable without a name. */
static treadle_status filtered(machine *m, scope *s, const tree *t, const tree *filter, flow *flow_p,
                               value *text_p) {
  scope *inner;
  PASS(treadle_jinja_scope_make(m, s, &inner));
  PASS(treadle_jinja_capture(m, inner, t->body, flow_p, text_p));
  if (!filter || *flow_p != JINJA_FLOWS) return TREADLE_OK;
  PASS(treadle_jinja_scope_set(m, inner, NULL, *text_p));
  return treadle_jinja_eval(m, inner, filter, text_p);
}

static treadle_status exec_set_block(machine *m, scope *s, const tree *t, flow *flow_p) {
  value text;
  PASS(filtered(m, s, t, t->by, flow_p, &text));
  return *flow_p == JINJA_FLOWS ? treadle_jinja_assign(m, s, t->of, text) : TREADLE_OK;
}

static treadle_status exec_filter_block(machine *m, scope *s, const tree *t, flow *flow_p) {
  value text;
  PASS(filtered(m, s, t, t->of, flow_p, &text));
  return *flow_p == JINJA_FLOWS ? treadle_jinja_print(m, m->out, text) : TREADLE_OK;
}

static treadle_status exec_if(machine *m, scope *s, const tree *t, flow *flow_p) {
  for (size_t i = 0; i < t->list.count; i++) {
    const tree *branch = t->list.items[i];
    value v;
    PASS(treadle_jinja_eval(m, s, branch->of, &v));
    if (treadle_jinja_is_true(v)) return treadle_jinja_exec(m, s, branch->body, flow_p);
  }
  return treadle_jinja_exec(m, s, t->body, flow_p);
}

/* Values do not see the targets before them. */
static treadle_status exec_with(machine *m, scope *s, const tree *t, flow *flow_p) {
  scope *inner;
  PASS(treadle_jinja_scope_make(m, s, &inner));
  for (size_t i = 0; i < t->list.count; i++) {
    value v;
    PASS(treadle_jinja_eval(m, s, t->more.items[i], &v));
    PASS(treadle_jinja_assign(m, inner, t->list.items[i], v));
  }
  return treadle_jinja_exec(m, inner, t->body, flow_p);
}

static treadle_status exec_define(machine *m, scope *s, const tree *t, flow *flow_p) {
  (void)flow_p;
  value macro;
  PASS(treadle_jinja_macro_make(m, s, t, &macro));
  return treadle_jinja_scope_set(m, s, t->name, macro);
}

/* The body is a macro that the call gets as the argument `caller`. */
static treadle_status exec_call_block(machine *m, scope *s, const tree *t, flow *flow_p) {
  (void)flow_p;
  value macro, callee, result;
  treadle_jinja_call *c;
  PASS(treadle_jinja_macro_make(m, s, t, &macro));
  PASS(treadle_jinja_eval(m, s, t->of->of, &callee));
  PASS(treadle_jinja_alloc(m, 1, sizeof *c, &c));
  PASS(treadle_jinja_eval_arguments(m, s, t->of, c));
  PASS(treadle_jinja_plain(m, "caller", &c->names[c->named_count]));
  c->named[c->named_count++] = macro;
  PASS(treadle_jinja_call_value(m, callee, c, &result));
  return treadle_jinja_print(m, m->out, result);
}

/* Code points of the output so far. */
static size_t page_points(machine *m) {
  m->page_points += treadle_jinja_points(m->page->bytes + m->page_bytes, m->page->length - m->page_bytes);
  m->page_bytes = m->page->length;
  return m->page_points;
}

/* The range begins where the whole output stands now, also where the block's text goes to a variable first. */
static treadle_status exec_generation(machine *m, scope *s, const tree *t, flow *flow_p) {
  value text;
  PASS(filtered(m, s, t, NULL, flow_p, &text));
  size_t start = m->page->length ? page_points(m) : 0;
  treadle_jinja_span span = {start, start + text.text->points};
  PASS(treadle_array_push(&m->spans, span));
  return treadle_jinja_print(m, m->out, text);
}

/* A block sees the variables of the template, not those around it, unless it is scoped. */
static treadle_status exec_block(machine *m, scope *s, const tree *t, flow *flow_p) {
  scope *inner;
  if (t->required) REFUSE("the block '%s' is required, and no template fills it", t->name);
  PASS(treadle_jinja_scope_make(m, t->scoped ? s : m->root, &inner));
  return treadle_jinja_exec(m, inner, t->body, flow_p);
}

static treadle_status exec_jump(machine *m, scope *s, const tree *t, flow *flow_p) {
  (void)m;
  (void)s;
  *flow_p = t->form == JINJA_BREAK ? JINJA_BREAKS : JINJA_CONTINUES;
  return TREADLE_OK;
}

treadle_status treadle_jinja_exec(machine *m, scope *s, treadle_jinja_trees body, flow *flow_p) {
  static treadle_status (*const execs[JINJA_FORMS])(machine *, scope *, const tree *, flow *) = {
      [JINJA_OUTPUT] = exec_output,
      [JINJA_SET] = exec_set,
      [JINJA_SET_BLOCK] = exec_set_block,
      [JINJA_FOR] = treadle_jinja_exec_for,
      [JINJA_IF] = exec_if,
      [JINJA_WITH] = exec_with,
      [JINJA_DEFINE] = exec_define,
      [JINJA_CALL_BLOCK] = exec_call_block,
      [JINJA_FILTER_BLOCK] = exec_filter_block,
      [JINJA_GENERATION] = exec_generation,
      [JINJA_BLOCK] = exec_block,
      [JINJA_BREAK] = exec_jump,
      [JINJA_CONTINUE] = exec_jump,
  };
  *flow_p = JINJA_FLOWS;
  PASS(treadle_jinja_enter(m));
  for (size_t i = 0; i < body.count && *flow_p == JINJA_FLOWS; i++) {
    const tree *t = body.items[i];
    treadle_status status = treadle_jinja_step(m, 1);
    if (status == TREADLE_OK) status = execs[t->form](m, s, t, flow_p);
    if (status != TREADLE_OK && !m->line) m->line = t->line;
    PASS(status);
  }
  m->depth--;
  return TREADLE_OK;
}

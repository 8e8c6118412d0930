/* {% for %}: one scope for each item; `loop` looks at most one item ahead, so that items that filters make are made when they are
 * needed. The else part runs where no item's body came to its end. */
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_scope scope;
typedef treadle_jinja_tree tree;
typedef treadle_jinja_loop loop;

struct treadle_jinja_loop {
  treadle_jinja_iterator *items;
  int64_t length; /* -1: not known yet */
  int64_t index;  /* of the current item, from 0 */
  int64_t depth;  /* of recursive loops, from 0 */
  value before, current, after;
  bool has_after;
  value compared; /* what loop.changed saw last: a tuple */
  const tree *tree;
  scope *scope; /* around the loop */
};

int64_t treadle_jinja_loop_index(const loop *l) { return l->index; }

/* Fills `after`, if there is one more. */
static treadle_status peek(machine *m, loop *l) {
  if (l->has_after) return TREADLE_OK;
  return treadle_jinja_next_of(m, l->items, &l->after, &l->has_after);
}

treadle_status treadle_jinja_loop_next(machine *m, loop *l, value *item_p, bool *got_p) {
  PASS(peek(m, l));
  *got_p = l->has_after;
  if (!*got_p) return TREADLE_OK;
  l->has_after = false;
  l->before = l->current;
  l->current = *item_p = l->after;
  l->index++;
  return TREADLE_OK;
}

/* Of an iterator all items are made now. */
treadle_status treadle_jinja_loop_length(machine *m, loop *l, int64_t *length_p) {
  if (l->length < 0) {
    const value *items;
    size_t count;
    value rest = {.kind = JINJA_ITERATOR, .iterator = l->items};
    PASS(treadle_jinja_items(m, rest, &items, &count));
    PASS(treadle_jinja_list_of(m, JINJA_LIST, items, count, &rest));
    PASS(treadle_jinja_iterate(m, rest, &l->items));
    l->length = (int64_t)count + l->index + 1 + l->has_after;
  }
  *length_p = l->length;
  return TREADLE_OK;
}

/* ---- Attributes and methods ------------------------------------------------------------------------------ */

static treadle_status neighbour(machine *m, loop *l, bool next, value *value_p) {
  if (next) PASS(peek(m, l));
  if (next ? l->has_after : l->index > 0) {
    *value_p = next ? l->after : l->before;
    return TREADLE_OK;
  }
  return treadle_jinja_undefined_since(m, next ? "there is no next item" : "there is no item before",
                                       value_p);
}

treadle_status treadle_jinja_loop_attribute(machine *m, value of, const char *name, bool *got_p,
                                            value *value_p) {
  static const char *const names[] = {"index",  "index0",   "depth",     "depth0",   "first",   "last",
                                      "length", "revindex", "revindex0", "previtem", "nextitem"};
  loop *l = of.loop;
  size_t which = 0;
  int64_t number, length = 0;
  while (which < sizeof names / sizeof *names && strcmp(name, names[which]) != 0) which++;
  *got_p = which < sizeof names / sizeof *names;
  if (!*got_p) return TREADLE_OK;
  if (which >= 9) return neighbour(m, l, which == 10, value_p);
  if (which == 4 || which == 5) {
    if (which == 5) PASS(peek(m, l));
    *value_p = treadle_jinja_bool(which == 4 ? l->index == 0 : !l->has_after);
    return TREADLE_OK;
  }
  if (which >= 6) PASS(treadle_jinja_loop_length(m, l, &length));
  const int64_t numbers[] = {l->index + 1, l->index,          l->depth + 1,         l->depth, 0, 0,
                             length,       length - l->index, length - l->index - 1};
  number = numbers[which];
  *value_p = treadle_jinja_int(number);
  return TREADLE_OK;
}

static treadle_status cycle(machine *m, treadle_jinja_call *c, value *result_p) {
  (void)m;
  if (c->count == 0) REFUSE("loop.cycle has nothing to choose from");
  if (c->named_count) REFUSE("loop.cycle takes no argument by name");
  *result_p = c->items[(size_t)c->self.loop->index % c->count];
  return TREADLE_OK;
}

static treadle_status changed(machine *m, treadle_jinja_call *c, value *result_p) {
  value now;
  bool same = false;
  if (c->named_count) REFUSE("loop.changed takes no argument by name");
  PASS(treadle_jinja_list_of(m, JINJA_TUPLE, c->items, c->count, &now));
  if (c->self.loop->compared.kind != JINJA_ABSENT)
    PASS(treadle_jinja_equal(m, c->self.loop->compared, now, &same));
  if (!same) c->self.loop->compared = now;
  *result_p = treadle_jinja_bool(!same);
  return TREADLE_OK;
}

const treadle_jinja_row treadle_jinja_loop_methods[] = {
    {"cycle", cycle, "*"}, {"changed", changed, "*"}, {NULL, NULL, NULL}};

/* ---- Running --------------------------------------------------------------------------------------------- */

typedef struct chosen {
  const tree *tree;
  scope *scope;
} chosen;

/* Where a loop has an `if` and several targets, `loop` shows tuples of them. */
static treadle_status as_tuple(machine *m, value *item_p) {
  const value *items;
  size_t count;
  PASS(treadle_jinja_items(m, *item_p, &items, &count));
  return treadle_jinja_list_of(m, JINJA_TUPLE, items, count, item_p);
}

/* Items that the loop's own `if` takes. The targets are set in a scope around which there is no loop yet. */
static treadle_status next_chosen(machine *m, treadle_jinja_iterator *it, value *item_p, bool *got_p) {
  const chosen *state = it->state;
  for (;;) {
    scope *s;
    value holds;
    PASS(treadle_jinja_next_of(m, it->from, item_p, got_p));
    if (!*got_p) return TREADLE_OK;
    PASS(treadle_jinja_scope_make(m, state->scope, &s));
    PASS(treadle_jinja_assign(m, s, state->tree->of, *item_p));
    PASS(treadle_jinja_eval(m, s, state->tree->other, &holds));
    if (treadle_jinja_is_true(holds))
      return state->tree->of->form == JINJA_MAKE_TUPLE ? as_tuple(m, item_p) : TREADLE_OK;
  }
}

static treadle_status choose(machine *m, loop *l) {
  treadle_jinja_iterator *it;
  chosen *state;
  PASS(treadle_jinja_alloc(m, 1, sizeof *it, &it));
  PASS(treadle_jinja_alloc(m, 1, sizeof *state, &state));
  *state = (chosen){l->tree, l->scope};
  *it = (treadle_jinja_iterator){.next = next_chosen, .from = l->items, .state = state};
  l->items = it;
  l->length = -1;
  return TREADLE_OK;
}

static treadle_status run_items(machine *m, loop *l, bool *ended_p) {
  value item;
  treadle_jinja_flow flow = JINJA_FLOWS;
  *ended_p = false;
  while (flow != JINJA_BREAKS) {
    scope *s;
    bool got;
    /* Without `loop` Python takes the next item only when the last one's body is done; peeking does the same here. */
    PASS(treadle_jinja_loop_next(m, l, &item, &got));
    if (!got) break;
    PASS(treadle_jinja_scope_make(m, l->scope, &s));
    PASS(treadle_jinja_scope_set(m, s, m->template->loop, (value){.kind = JINJA_LOOP, .loop = l}));
    PASS(treadle_jinja_assign(m, s, l->tree->of, item));
    PASS(treadle_jinja_exec(m, s, l->tree->body, &flow));
    *ended_p = *ended_p || flow == JINJA_FLOWS;
  }
  return TREADLE_OK;
}

/* *flow_p: how the else part ended, which lies outside of the loop. */
static treadle_status run_loop(machine *m, scope *s, const tree *t, value items, int64_t depth,
                               treadle_jinja_flow *flow_p) {
  loop *l;
  bool ended;
  PASS(treadle_jinja_alloc(m, 1, sizeof *l, &l));
  *l = (loop){.length = treadle_jinja_length(items), .index = -1, .depth = depth, .tree = t, .scope = s};
  PASS(treadle_jinja_iterate(m, items, &l->items));
  if (t->other) PASS(choose(m, l));
  PASS(run_items(m, l, &ended));
  if (ended || t->more.count == 0) return TREADLE_OK;
  scope *inner;
  PASS(treadle_jinja_scope_make(m, s, &inner));
  return treadle_jinja_exec(m, inner, t->more, flow_p);
}

treadle_status treadle_jinja_exec_for(machine *m, scope *s, const tree *t, treadle_jinja_flow *flow_p) {
  value items;
  PASS(treadle_jinja_eval(m, s, t->by, &items));
  return run_loop(m, s, t, items, 0, flow_p);
}

treadle_status treadle_jinja_loop_call(machine *m, loop *l, value items, value *result_p) {
  if (!l->tree->recursive) REFUSE("a loop that is called has the word 'recursive'");
  treadle_jinja_writer w = {0}, *before = m->out;
  treadle_jinja_flow flow;
  PASS(treadle_jinja_enter(m));
  m->out = &w;
  treadle_status status = run_loop(m, l->scope, l->tree, items, l->depth + 1, &flow);
  m->out = before;
  m->depth--;
  PASS(status);
  return treadle_jinja_written(m, &w, result_p);
}

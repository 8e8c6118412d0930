/* Scopes are short lists; names are compared as pointers. */
#include "jinja/jinja_run.h"

#include <string.h>

#include "jinja/jinja_text.h"

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_scope scope;

struct treadle_jinja_variable {
  const char *name;
  treadle_jinja_value value;
  struct treadle_jinja_variable *next;
};

treadle_status treadle_jinja_scope_make(machine *m, scope *parent, scope **scope_p) {
  PASS(treadle_jinja_alloc(m, 1, sizeof **scope_p, scope_p));
  (*scope_p)->parent = parent;
  return TREADLE_OK;
}

treadle_status treadle_jinja_scope_set(machine *m, scope *s, const char *name, value v) {
  struct treadle_jinja_variable *variable = s->first;
  size_t steps = 0;
  for (; variable && variable->name != name; variable = variable->next) steps++;
  PASS(treadle_jinja_step(m, steps / 16));
  if (!variable) {
    PASS(treadle_jinja_alloc(m, 1, sizeof *variable, &variable));
    variable->name = name;
    variable->next = s->first;
    s->first = variable;
  }
  variable->value = v;
  return TREADLE_OK;
}

treadle_status treadle_jinja_scope_get(machine *m, const scope *s, const char *name, value *value_p) {
  size_t steps = 0;
  for (; s; s = s->parent) {
    for (const struct treadle_jinja_variable *at = s->first; at; at = at->next, steps++) {
      if (at->name != name) continue;
      *value_p = at->value;
      return treadle_jinja_step(m, steps / 16);
    }
  }
  PASS(treadle_jinja_step(m, steps / 16));
  const value *given = treadle_jinja_dict_get(m->context.dict, name);
  const treadle_jinja_row *function = given ? NULL : treadle_jinja_row_of(treadle_jinja_functions, name);
  if (!given && name && strcmp(name, "self") == 0)
    REFUSE("'self', the blocks of a template, is not supported");
  if (!given && !function) return treadle_jinja_undefined_name(m, name, value_p);
  *value_p = given ? *given : (value){.kind = JINJA_FUNCTION, .function = function};
  return TREADLE_OK;
}

static treadle_status assign_member(machine *m, scope *s, const treadle_jinja_tree *target, value v) {
  value space, name;
  PASS(treadle_jinja_scope_get(m, s, target->name, &space));
  if (space.kind != JINJA_NAMESPACE)
    REFUSE("'%s' is not a namespace: its members cannot be set", target->name);
  PASS(treadle_jinja_plain(m, target->names[0], &name));
  if (*target->names[0] == '_')
    REFUSE("a name in a namespace does not begin with '_': '%s'", target->names[0]);
  return treadle_jinja_dict_put(m, space.names, name, v);
}

/* Namespaces are looked at before anything is set. */
static treadle_status check_members(machine *m, scope *s, const treadle_jinja_tree *target) {
  value space;
  if (target->form == JINJA_MEMBER) {
    PASS(treadle_jinja_scope_get(m, s, target->name, &space));
    if (space.kind != JINJA_NAMESPACE)
      REFUSE("'%s' is not a namespace: its members cannot be set", target->name);
  }
  for (size_t i = 0; i < target->list.count; i++) PASS(check_members(m, s, target->list.items[i]));
  return TREADLE_OK;
}

static treadle_status assign(machine *m, scope *s, const treadle_jinja_tree *target, value v) {
  const value *items;
  size_t count;
  if (target->form == JINJA_NAME) return treadle_jinja_scope_set(m, s, target->name, v);
  if (target->form == JINJA_MEMBER) return assign_member(m, s, target, v);
  PASS(treadle_jinja_items(m, v, &items, &count));
  if (count != target->list.count)
    REFUSE("%zu values are set, and there are %zu", target->list.count, count);
  for (size_t i = 0; i < count; i++) PASS(assign(m, s, target->list.items[i], items[i]));
  return TREADLE_OK;
}

treadle_status treadle_jinja_assign(machine *m, scope *s, const treadle_jinja_tree *target, value v) {
  PASS(check_members(m, s, target));
  return assign(m, s, target, v);
}

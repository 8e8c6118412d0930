/* What stands in the brackets of calls, filters and macros; and what can be set. */
#include "jinja/jinja_parser.h"

#include <string.h>

typedef treadle_jinja_parser parser;
typedef treadle_jinja_tree tree;
typedef treadle_jinja_lexeme lexeme;

typedef TREADLE_ARRAY(const char *) words;

static treadle_status keep_names(parser *p, words *names, tree *t) {
  PASS(treadle_jinja_alloc(&p->machine, names->count, sizeof *t->names, &t->names));
  if (names->count) memcpy(t->names, names->items, names->count * sizeof *t->names);
  t->name_count = names->count;
  return TREADLE_OK;
}

static bool has_name(const words *names, const char *name) {
  for (size_t i = 0; i < names->count; i++)
    if (names->items[i] == name) return true;
  return false;
}

/* One argument: a value, name=value, *values or **names. */
static treadle_status parse_argument(parser *p, int line, tree *call, treadle_jinja_tree_array *plain,
                                     treadle_jinja_tree_array *named, words *names) {
  bool stars = treadle_jinja_lexeme_is(&p->current, JINJA_OPERATOR, "**");
  bool star = treadle_jinja_lexeme_is(&p->current, JINJA_OPERATOR, "*");
  bool fits = !call->other, assigned = false;
  tree *value;
  if (p->current.sign == JINJA_WORD) {
    PASS(treadle_jinja_parser_look(p));
    assigned = treadle_jinja_lexeme_is(&p->ahead, JINJA_OPERATOR, "=");
  }
  const char *name = p->current.word;
  if (star)
    fits = fits && !call->by;
  else if (!stars && !assigned)
    fits = fits && !call->by && names->count == 0;
  if (!fits) return treadle_jinja_parser_fail(p, line, "arguments are in an order that calls do not take");
  if (star || stars || assigned) PASS(treadle_jinja_parser_next(p));
  if (assigned) PASS(treadle_jinja_parser_next(p));
  PASS(treadle_jinja_parse_expression(p, &value));
  if (star) call->by = value;
  if (stars) call->other = value;
  if (star || stars) return TREADLE_OK;
  if (!assigned) return treadle_array_push(plain, value);
  PASS(treadle_array_push(names, name));
  return treadle_array_push(named, value);
}

treadle_status treadle_jinja_parse_arguments(parser *p, tree *call) {
  treadle_jinja_tree_array plain = {0}, named = {0};
  words names = {0};
  treadle_status status;
  int line = p->current.line;
  TRY(treadle_jinja_parser_expect(p, JINJA_OPERATOR, "("));
  for (bool first = true; !treadle_jinja_lexeme_is(&p->current, JINJA_OPERATOR, ")"); first = false) {
    if (!first) TRY(treadle_jinja_parser_expect(p, JINJA_OPERATOR, ","));
    if (!first && treadle_jinja_lexeme_is(&p->current, JINJA_OPERATOR, ")")) break;
    TRY(parse_argument(p, line, call, &plain, &named, &names));
  }
  TRY(treadle_jinja_parser_next(p));
  TRY(treadle_jinja_trees_keep(p, &plain, &call->list));
  TRY(treadle_jinja_trees_keep(p, &named, &call->more));
  TRY(keep_names(p, &names, call));
out:
  treadle_array_release(&plain);
  treadle_array_release(&named);
  treadle_array_release(&names);
  return status;
}

treadle_status treadle_jinja_parse_parameters(parser *p, tree *macro) {
  treadle_jinja_tree_array defaults = {0};
  words names = {0};
  treadle_status status;
  tree *value;
  bool assigned;
  TRY(treadle_jinja_parser_expect(p, JINJA_OPERATOR, "("));
  while (!treadle_jinja_lexeme_is(&p->current, JINJA_OPERATOR, ")")) {
    if (names.count) TRY(treadle_jinja_parser_expect(p, JINJA_OPERATOR, ","));
    lexeme name = p->current;
    TRY(treadle_jinja_parse_target(p, -1, &value));
    if (has_name(&names, name.word))
      TRY(treadle_jinja_parser_fail(p, name.line, "the parameter '%.60s' stands there twice", name.word));
    TRY(treadle_array_push(&names, name.word));
    TRY(treadle_jinja_parser_skip(p, JINJA_OPERATOR, "=", &assigned));
    if (assigned) {
      TRY(treadle_jinja_parse_expression(p, &value));
      TRY(treadle_array_push(&defaults, value));
    } else if (defaults.count)
      TRY(treadle_jinja_parser_fail(p, p->current.line,
                                    "a parameter without a default follows one with a default"));
  }
  TRY(treadle_jinja_parser_next(p));
  TRY(treadle_jinja_trees_keep(p, &defaults, &macro->list));
  TRY(keep_names(p, &names, macro));
out:
  treadle_array_release(&defaults);
  treadle_array_release(&names);
  return status;
}

/* Can it be set: names, members of namespaces, tuples of them? */
static bool is_target(const tree *t) {
  if (t->form == JINJA_NAME || t->form == JINJA_MEMBER) return true;
  if (t->form != JINJA_MAKE_TUPLE) return false;
  for (size_t i = 0; i < t->list.count; i++)
    if (!is_target(t->list.items[i])) return false;
  return true;
}

treadle_status treadle_jinja_parse_target(parser *p, int how, tree **tree_p) {
  bool name_only = how < 0;
  if (name_only) {
    if (p->current.sign != JINJA_WORD) return treadle_jinja_parser_expect(p, JINJA_WORD, NULL);
    PASS(treadle_jinja_parse_primary(p, false, tree_p));
  } else
    PASS(treadle_jinja_parse_tuple(p, how | JINJA_TARGET, tree_p));
  if (is_target(*tree_p)) return TREADLE_OK;
  return treadle_jinja_parser_fail(p, (*tree_p)->line, "what stands there cannot be set");
}

/* Names, literals, and what follows a value: attributes, indices, calls, filters, tests. Operators are in jinja_expression.c. */
#include "jinja/jinja_parser_parts.h"

#include "jinja/jinja_text.h"

#include <string.h>

/* ---- Literals -------------------------------------------------------------------------------------- */

static treadle_status constant(parser *p, int line, treadle_jinja_value value, tree **tree_p) {
  tree *t;
  PASS(make(p, JINJA_CONST, line, &t));
  t->constant = value;
  return done(p, t, tree_p);
}

/* Strings side by side are one. */
static treadle_status parse_strings(parser *p, tree **tree_p) {
  treadle_jinja_writer w = {0};
  treadle_jinja_value value = p->current.value;
  int line = p->current.line;
  PASS(next(p));
  if (p->current.sign != JINJA_STRING) return constant(p, line, value, tree_p);
  PASS(treadle_jinja_write(&p->machine, &w, value.text->bytes, value.text->length));
  while (p->current.sign == JINJA_STRING) {
    const treadle_jinja_text *more = p->current.value.text;
    PASS(treadle_jinja_write(&p->machine, &w, more->bytes, more->length));
    PASS(next(p));
  }
  PASS(treadle_jinja_written(&p->machine, &w, &value));
  return constant(p, line, value, tree_p);
}

/* Expressions, and in a dict values behind colons, up to `end`; a last comma may follow. */
static treadle_status parse_items(parser *p, const char *end, treadle_jinja_tree_array *items,
                                  treadle_jinja_tree_array *values) {
  tree *item;
  PASS(next(p));
  while (!is_operator(p, end)) {
    if (items->count) PASS(expect(p, ","));
    if (is_operator(p, end)) break;
    PASS(treadle_jinja_parse_expression(p, &item));
    PASS(treadle_array_push(items, item));
    if (!values) continue;
    PASS(expect(p, ":"));
    PASS(treadle_jinja_parse_expression(p, &item));
    PASS(treadle_array_push(values, item));
  }
  return expect(p, end);
}

static treadle_status parse_list_or_dict(parser *p, bool dict, tree **tree_p) {
  treadle_jinja_tree_array items = {0}, values = {0};
  treadle_status status;
  tree *t;
  TRY(make(p, dict ? JINJA_MAKE_DICT : JINJA_MAKE_LIST, p->current.line, &t));
  TRY(parse_items(p, dict ? "}" : "]", &items, dict ? &values : NULL));
  TRY(treadle_jinja_trees_keep(p, &items, &t->list));
  TRY(treadle_jinja_trees_keep(p, &values, &t->more));
  TRY(done(p, t, tree_p));
out:
  treadle_array_release(&items);
  treadle_array_release(&values);
  return status;
}

static treadle_status parse_name(parser *p, bool members, tree **tree_p) {
  lexeme name = p->current;
  tree *t;
  const char *word = name.word;
  PASS(next(p));
  if (strcmp(word, "true") == 0 || strcmp(word, "True") == 0)
    return constant(p, name.line, treadle_jinja_bool(true), tree_p);
  if (strcmp(word, "false") == 0 || strcmp(word, "False") == 0)
    return constant(p, name.line, treadle_jinja_bool(false), tree_p);
  if (strcmp(word, "none") == 0 || strcmp(word, "None") == 0)
    return constant(p, name.line, treadle_jinja_none(), tree_p);
  bool member = members && is_operator(p, ".");
  PASS(make(p, member ? JINJA_MEMBER : JINJA_NAME, name.line, &t));
  t->name = word;
  if (member) {
    PASS(next(p));
    const char *attribute = p->current.word;
    PASS(treadle_jinja_parser_expect(p, JINJA_WORD, NULL));
    PASS(treadle_jinja_alloc(&p->machine, 1, sizeof *t->names, &t->names));
    t->names[0] = attribute;
  }
  return done(p, t, tree_p);
}

treadle_status treadle_jinja_parse_primary(parser *p, bool members, tree **tree_p) {
  lexeme first = p->current;
  char text[80];
  switch (first.sign) {
  case JINJA_WORD: return parse_name(p, members, tree_p);
  case JINJA_STRING: return parse_strings(p, tree_p);
  case JINJA_WHOLE:
  case JINJA_REAL: PASS(next(p)); return constant(p, first.line, first.value, tree_p);
  default: break;
  }
  if (is_operator(p, "(")) {
    PASS(next(p));
    PASS(treadle_jinja_parse_tuple(p, JINJA_BRACKETED, tree_p));
    return expect(p, ")");
  }
  if (is_operator(p, "[") || is_operator(p, "{")) return parse_list_or_dict(p, is_operator(p, "{"), tree_p);
  return treadle_jinja_parser_fail(p, first.line, "an expression is wanted, and %s stands there",
                                   treadle_jinja_lexeme_text(&first, text));
}

/* ---- Postfixes ------------------------------------------------------------------------------------- */

/* [a], [a:b:c] inside of brackets. */
static treadle_status parse_index(parser *p, tree **tree_p) {
  tree *t, *start = NULL;
  int line = p->current.line;
  if (!is_operator(p, ":")) {
    PASS(treadle_jinja_parse_expression(p, &start));
    if (!is_operator(p, ":")) {
      *tree_p = start;
      return TREADLE_OK;
    }
  }
  PASS(make(p, JINJA_SLICE, line, &t));
  t->of = start;
  PASS(next(p));
  if (!is_operator(p, ":") && !is_operator(p, "]") && !is_operator(p, ","))
    PASS(treadle_jinja_parse_expression(p, &t->by));
  if (is_operator(p, ":")) {
    PASS(next(p));
    if (!is_operator(p, "]") && !is_operator(p, ",")) PASS(treadle_jinja_parse_expression(p, &t->other));
  }
  return done(p, t, tree_p);
}

/* Several indices are one tuple. */
static treadle_status parse_indices(parser *p, int line, tree **tree_p) {
  treadle_jinja_tree_array items = {0};
  treadle_status status = TREADLE_OK;
  tree *one, *t;
  TRY(next(p));
  while (!is_operator(p, "]")) {
    if (items.count) TRY(expect(p, ","));
    TRY(parse_index(p, &one));
    TRY(treadle_array_push(&items, one));
  }
  TRY(next(p));
  if (items.count == 1) {
    *tree_p = items.items[0];
    goto out;
  }
  TRY(make(p, JINJA_MAKE_TUPLE, line, &t));
  TRY(treadle_jinja_trees_keep(p, &items, &t->list));
  TRY(done(p, t, tree_p));
out:
  treadle_array_release(&items);
  return status;
}

static treadle_status parse_subscript(parser *p, tree **tree_p) {
  int line = p->current.line;
  tree *t;
  bool dot = is_operator(p, ".");
  if (dot) PASS(next(p));
  bool attribute = dot && p->current.sign == JINJA_WORD;
  if (dot && !attribute && p->current.sign != JINJA_WHOLE)
    return treadle_jinja_parser_fail(p, p->current.line, "a name or a number is wanted behind '.'");
  PASS(make(p, attribute ? JINJA_ATTRIBUTE : JINJA_ELEMENT, line, &t));
  t->of = *tree_p;
  t->name = p->current.word;
  if (!dot)
    PASS(parse_indices(p, line, &t->by));
  else {
    if (!attribute) PASS(constant(p, p->current.line, p->current.value, &t->by));
    PASS(next(p));
  }
  return done(p, t, tree_p);
}

static treadle_status parse_call(parser *p, tree **tree_p) {
  tree *t;
  PASS(make(p, JINJA_CALL, p->current.line, &t));
  t->of = *tree_p;
  PASS(treadle_jinja_parse_arguments(p, t));
  return done(p, t, tree_p);
}

treadle_status treadle_jinja_parse_postfixes(parser *p, tree **tree_p) {
  for (;;) {
    if (is_operator(p, ".") || is_operator(p, "["))
      PASS(parse_subscript(p, tree_p));
    else if (is_operator(p, "("))
      PASS(parse_call(p, tree_p));
    else
      return TREADLE_OK;
  }
}

/* A name with dots: of a filter or a test. */
static treadle_status parse_dotted(parser *p, const char **name_p) {
  const char *name = p->current.word;
  PASS(treadle_jinja_parser_expect(p, JINJA_WORD, NULL));
  while (is_operator(p, ".")) {
    PASS(next(p));
    const char *more = p->current.word;
    PASS(treadle_jinja_parser_expect(p, JINJA_WORD, NULL));
    name = treadle_arena_format(&p->machine.arena, "%s.%s", name, more);
    if (!name) return treadle_fail(TREADLE_NO_MEMORY, "no memory to read a template");
  }
  *name_p = name;
  return TREADLE_OK;
}

treadle_status treadle_jinja_parse_filters(parser *p, bool without_bar, tree **tree_p) {
  for (; is_operator(p, "|") || without_bar; without_bar = false) {
    tree *t;
    if (!without_bar) PASS(next(p));
    PASS(make(p, JINJA_FILTER, p->current.line, &t));
    t->of = *tree_p;
    PASS(parse_dotted(p, &t->name));
    if (is_operator(p, "(")) PASS(treadle_jinja_parse_arguments(p, t));
    PASS(done(p, t, tree_p));
  }
  return TREADLE_OK;
}

/* May the token begin the argument of a test without brackets? */
static bool begins_argument(const parser *p) {
  switch (p->current.sign) {
  case JINJA_WORD: return !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and");
  case JINJA_STRING:
  case JINJA_WHOLE:
  case JINJA_REAL: return true;
  default: return is_operator(p, "[") || is_operator(p, "{");
  }
}

/* value is [not] name [argument] */
static treadle_status parse_test(parser *p, tree **tree_p) {
  int line = p->current.line;
  tree *t, *argument;
  bool negated;
  PASS(next(p));
  PASS(treadle_jinja_parser_skip(p, JINJA_WORD, "not", &negated));
  PASS(make(p, JINJA_TEST, line, &t));
  t->of = *tree_p;
  PASS(parse_dotted(p, &t->name));
  if (is_operator(p, "("))
    PASS(treadle_jinja_parse_arguments(p, t));
  else if (begins_argument(p)) {
    if (is_word(p, "is"))
      return treadle_jinja_parser_fail(p, p->current.line, "tests with 'is' cannot be chained");
    PASS(treadle_jinja_parse_primary(p, false, &argument));
    PASS(treadle_jinja_parse_postfixes(p, &argument));
    PASS(treadle_jinja_alloc(&p->machine, 1, sizeof *t->list.items, &t->list.items));
    t->list.items[t->list.count++] = argument;
  }
  PASS(done(p, t, tree_p));
  if (!negated) return TREADLE_OK;
  PASS(make(p, JINJA_NOT, line, &t));
  t->of = *tree_p;
  return done(p, t, tree_p);
}

treadle_status treadle_jinja_parse_tail(parser *p, tree **tree_p) {
  for (;;) {
    if (is_operator(p, "|"))
      PASS(treadle_jinja_parse_filters(p, false, tree_p));
    else if (is_word(p, "is"))
      PASS(parse_test(p, tree_p));
    else if (is_operator(p, "("))
      PASS(parse_call(p, tree_p));
    else
      return TREADLE_OK;
  }
}

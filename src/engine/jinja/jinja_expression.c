/* Expressions, by recursive descent, loosest first. Jinja's order is its own: ~ binds tighter than + and -, filters tighter than **,
 * a sign tighter than all of them, and ** goes from left to right.
 *
 *   choice   = or { "if" or [ "else" choice ] }
 *   or       = and { "or" and }                and = not { "and" not }         not = "not" not | compare
 *   compare  = sum { ("==" | ... | "in" | "not in") sum }
 *   sum      = join { ("+" | "-") join }       join = product { "~" product }
 *   product  = power { ("*" | "/" | "//" | "%") power }                        power = unary { "**" unary }
 *   unary    = ("-" | "+") unary | primary { postfix } { filter | test | call } */
#include "jinja/jinja_parser_parts.h"

#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_status (*part)(parser *p, tree **tree_p);

/* ---- Operators ------------------------------------------------------------------------------------- */

static treadle_status unary_below(parser *p, bool filters, tree **tree_p) {
  if (is_operator(p, "-") || is_operator(p, "+")) {
    tree *t;
    PASS(make(p, is_operator(p, "-") ? JINJA_MINUS : JINJA_PLUS, p->current.line, &t));
    PASS(next(p));
    PASS(treadle_jinja_enter(&p->machine));
    PASS(unary_below(p, false, &t->of));
    p->machine.depth--;
    PASS(done(p, t, tree_p));
  } else
    PASS(treadle_jinja_parse_primary(p, false, tree_p));
  PASS(treadle_jinja_parse_postfixes(p, tree_p));
  return filters ? treadle_jinja_parse_tail(p, tree_p) : TREADLE_OK;
}

static treadle_status parse_unary(parser *p, tree **tree_p) { return unary_below(p, true, tree_p); }

/* Operators of one rank, from left to right; `words` has their texts, and behind each '=' the character of the operation. */
static treadle_status parse_chain(parser *p, const char *const *words, part below, tree **tree_p) {
  int line = p->current.line;
  PASS(below(p, tree_p));
  for (;;) {
    const char *const *word = words;
    while (*word && !is_operator(p, *word)) word++;
    if (!*word) return TREADLE_OK;
    tree *t;
    PASS(make(p, JINJA_OPERATE, line, &t));
    t->name = *word;
    t->of = *tree_p;
    PASS(next(p));
    PASS(below(p, &t->by));
    PASS(done(p, t, tree_p));
    line = p->current.line;
  }
}

static treadle_status parse_power(parser *p, tree **tree_p) {
  static const char *const words[] = {"**", NULL};
  return parse_chain(p, words, parse_unary, tree_p);
}

static treadle_status parse_product(parser *p, tree **tree_p) {
  static const char *const words[] = {"*", "/", "//", "%", NULL};
  return parse_chain(p, words, parse_power, tree_p);
}

static treadle_status parse_join(parser *p, tree **tree_p) {
  treadle_jinja_tree_array items = {0};
  treadle_status status;
  tree *t, *item;
  int line = p->current.line;
  TRY(parse_product(p, &item));
  *tree_p = item;
  if (!is_operator(p, "~")) goto out;
  TRY(treadle_array_push(&items, item));
  while (is_operator(p, "~")) {
    TRY(next(p));
    TRY(parse_product(p, &item));
    TRY(treadle_array_push(&items, item));
  }
  TRY(make(p, JINJA_JOIN, line, &t));
  TRY(treadle_jinja_trees_keep(p, &items, &t->list));
  TRY(done(p, t, tree_p));
out:
  treadle_array_release(&items);
  return status;
}

static treadle_status parse_sum(parser *p, tree **tree_p) {
  static const char *const words[] = {"+", "-", NULL};
  return parse_chain(p, words, parse_join, tree_p);
}

/* The comparison that comes next, taken; NULL: none. */
static treadle_status take_comparison(parser *p, const char **word_p) {
  static const char *const words[] = {"==", "!=", "<=", ">=", "<", ">"};
  *word_p = NULL;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (is_operator(p, words[i])) *word_p = words[i];
  if (is_word(p, "in")) *word_p = "in";
  if (is_word(p, "not")) {
    PASS(treadle_jinja_parser_look(p));
    if (!treadle_jinja_lexeme_is(&p->ahead, JINJA_WORD, "in")) return TREADLE_OK;
    PASS(next(p));
    *word_p = "not in";
  }
  return *word_p ? next(p) : TREADLE_OK;
}

static treadle_status parse_compare(parser *p, tree **tree_p) {
  treadle_jinja_tree_array operands = {0};
  TREADLE_ARRAY(const char *) words = {0};
  treadle_status status;
  tree *t, *operand, *left;
  const char *word;
  int line = p->current.line;
  TRY(parse_sum(p, &left));
  *tree_p = left;
  for (;;) {
    TRY(take_comparison(p, &word));
    if (!word) break;
    TRY(parse_sum(p, &operand));
    TRY(treadle_array_push(&operands, operand));
    TRY(treadle_array_push(&words, word));
    line = p->current.line;
  }
  if (operands.count == 0) goto out;
  TRY(make(p, JINJA_COMPARE, line, &t));
  t->of = left;
  TRY(treadle_jinja_trees_keep(p, &operands, &t->list));
  TRY(treadle_jinja_alloc(&p->machine, words.count, sizeof *t->names, &t->names));
  memcpy(t->names, words.items, words.count * sizeof *t->names);
  TRY(done(p, t, tree_p));
out:
  treadle_array_release(&operands);
  treadle_array_release(&words);
  return status;
}

static treadle_status parse_not(parser *p, tree **tree_p) {
  tree *t;
  if (!is_word(p, "not")) return parse_compare(p, tree_p);
  PASS(make(p, JINJA_NOT, p->current.line, &t));
  PASS(next(p));
  PASS(treadle_jinja_enter(&p->machine));
  PASS(parse_not(p, &t->of));
  p->machine.depth--;
  return done(p, t, tree_p);
}

static treadle_status parse_logic(parser *p, const char *word, part below, tree **tree_p) {
  int line = p->current.line;
  PASS(below(p, tree_p));
  while (is_word(p, word)) {
    tree *t;
    PASS(make(p, *word == 'a' ? JINJA_AND : JINJA_OR, line, &t));
    t->of = *tree_p;
    PASS(next(p));
    PASS(below(p, &t->by));
    PASS(done(p, t, tree_p));
    line = p->current.line;
  }
  return TREADLE_OK;
}

static treadle_status parse_and(parser *p, tree **tree_p) {
  return parse_logic(p, "and", parse_not, tree_p);
}
static treadle_status parse_or(parser *p, tree **tree_p) { return parse_logic(p, "or", parse_and, tree_p); }

static treadle_status parse_choice(parser *p, tree **tree_p) {
  int line = p->current.line;
  PASS(parse_or(p, tree_p));
  while (is_word(p, "if")) {
    tree *t;
    bool has_else;
    PASS(make(p, JINJA_CHOOSE, line, &t));
    t->by = *tree_p;
    PASS(next(p));
    PASS(parse_or(p, &t->of));
    PASS(treadle_jinja_parser_skip(p, JINJA_WORD, "else", &has_else));
    PASS(treadle_jinja_enter(&p->machine));
    if (has_else) PASS(parse_choice(p, &t->other));
    p->machine.depth--;
    PASS(done(p, t, tree_p));
    line = p->current.line;
  }
  return TREADLE_OK;
}

/* ---- From outside ---------------------------------------------------------------------------------- */

static treadle_status parse_nested(parser *p, part what, tree **tree_p) {
  PASS(treadle_jinja_enter(&p->machine));
  PASS(what(p, tree_p));
  p->machine.depth--;
  return TREADLE_OK;
}

treadle_status treadle_jinja_parse_expression(parser *p, tree **tree_p) {
  return parse_nested(p, parse_choice, tree_p);
}

static bool ends_tuple(const parser *p) {
  return p->current.sign == JINJA_VARIABLE_END || p->current.sign == JINJA_BLOCK_END || is_operator(p, ")");
}

static treadle_status parse_part(parser *p, int how, tree **tree_p) {
  if (how & JINJA_TARGET) return treadle_jinja_parse_primary(p, (how & JINJA_MEMBERS) != 0, tree_p);
  return parse_nested(p, how & JINJA_PLAIN ? parse_or : parse_choice, tree_p);
}

treadle_status treadle_jinja_parse_tuple(parser *p, int how, tree **tree_p) {
  treadle_jinja_tree_array items = {0};
  treadle_status status = TREADLE_OK;
  tree *t;
  char text[80];
  int line = p->current.line;
  bool tuple = false;
  for (;;) {
    if (items.count) TRY(expect(p, ","));
    if (ends_tuple(p)) break;
    TRY(parse_part(p, how, &t));
    TRY(treadle_array_push(&items, t));
    if (!is_operator(p, ",")) break;
    tuple = true;
    line = p->current.line;
  }
  if (!tuple && items.count) {
    *tree_p = items.items[0];
    goto out;
  }
  if (!tuple && !(how & JINJA_BRACKETED))
    TRY(treadle_jinja_parser_fail(p, p->current.line, "an expression is wanted, and %s stands there",
                                  treadle_jinja_lexeme_text(&p->current, text)));
  TRY(make(p, JINJA_MAKE_TUPLE, line, &t));
  TRY(treadle_jinja_trees_keep(p, &items, &t->list));
  TRY(done(p, t, tree_p));
out:
  treadle_array_release(&items);
  return status;
}

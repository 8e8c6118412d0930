/* Expressions, evaluated while they are parsed: recursive descent, one function a precedence, loosest
 * first.
 *
 *   choice   = either [ "??" choice ]             either  = both { "or" both }
 *   both     = negation { "and" negation }        negation = "not" negation | relation
 *   relation = sum [ ("==" | ...) sum | "in" name ]
 *   sum      = product { ("+" | "-") product }
 *   product  = primary { ("*" | "/" | "%") primary }    primary = number | name | "true" | "false" | "(" choice
 * ")"
 * A name may be that of a field of an object, OBJECT.FIELD.
 *
 * An absent name makes everything it takes part in absent, up to the next "??" or the end. A side that
 * does not count (right of "1 or", of "0 and", of a left side that is there) is parsed with `live` off:
 * nothing is looked up or computed, so "nh == 0 or H / nh > 8" is safe. */
#include "family/expr.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_NAME = 64 };

typedef struct value {
  int64_t number;
  bool absent;
} value;

typedef struct parser {
  const char *what, *text;
  const char *at; /* what is not read yet */
  treadle_lookup lookup;
  treadle_visit visit;
  void *context;
  bool live;
  int depth;
  char missing[MAX_NAME]; /* the last absent name */
} parser;

static treadle_status parse_choice(parser *p, value *value_p);

/* ---- Tokens ------------------------------------------------------------------------------------ */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static size_t name_length(const char *text) {
  if (!is_letter(*text)) return 0;
  size_t length = 1;
  while (is_letter(text[length]) || is_digit(text[length])) length++;
  return length;
}

/* Words that are no names. */
static bool is_reserved(const char *text, size_t length) {
  static const char *const words[] = {"and", "or", "not", "in", "true", "false"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i]) == length && strncmp(text, words[i], length) == 0) return true;
  return false;
}

static void skip_space(parser *p) { p->at += strspn(p->at, " \t"); }

/* Takes a symbol or a word, if it comes next. */
static bool take(parser *p, const char *token) {
  skip_space(p);
  size_t length = strlen(token);
  if (strncmp(p->at, token, length) != 0) return false;
  if (is_letter(*token) && name_length(p->at) != length) return false;
  p->at += length;
  return true;
}

static treadle_status fail_here(const parser *p, const char *wanted) {
  if (!*p->at) return treadle_fail(TREADLE_REFUSED, "%s: %.160s: %s at the end", p->what, p->text, wanted);
  return treadle_fail(TREADLE_REFUSED, "%s: %.160s: %s at '%.40s'", p->what, p->text, wanted, p->at);
}

static treadle_status enter(parser *p) {
  if (++p->depth <= MAX_DEPTH) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: %.160s: nested deeper than %d", p->what, p->text, MAX_DEPTH);
}

/* ---- Arithmetic -------------------------------------------------------------------------------- */

static treadle_status divide(const parser *p, int64_t a, int64_t b, int64_t *result_p) {
  if (b == 0)
    return treadle_fail(TREADLE_REFUSED, "%s: %.160s: %" PRId64 " is divided by 0", p->what, p->text, a);
  if (b == -1 ? a == INT64_MIN : a % b != 0)
    return treadle_fail(TREADLE_REFUSED, "%s: %.160s: %" PRId64 " is not divisible by %" PRId64, p->what,
                        p->text, a, b);
  *result_p = a / b;
  return TREADLE_OK;
}

/* left becomes left `op` right. */
static treadle_status compute(const parser *p, char op, value *left, const value *right) {
  left->absent = left->absent || right->absent;
  if (!p->live || left->absent) return TREADLE_OK;
  int64_t a = left->number, b = right->number;
  if (op == '/') return divide(p, a, b, &left->number);
  if (op == '%') {
    if (b <= 0)
      return treadle_fail(TREADLE_REFUSED, "%s: %.160s: %" PRId64 " %% %" PRId64, p->what, p->text, a, b);
    left->number = a % b;
    return TREADLE_OK;
  }
  bool overflow = op == '+'   ? __builtin_add_overflow(a, b, &left->number)
                  : op == '-' ? __builtin_sub_overflow(a, b, &left->number)
                              : __builtin_mul_overflow(a, b, &left->number);
  if (!overflow) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: %.160s: %" PRId64 " %c %" PRId64 " does not fit 64 bits",
                      p->what, p->text, a, op, b);
}

static bool relation_holds(const char *op, int64_t a, int64_t b) {
  bool equal = op[1] == '='; /* all but < and > */
  if (op[0] == '=') return a == b;
  if (op[0] == '!') return a != b;
  return (equal && a == b) || (op[0] == '<' ? a < b : a > b);
}

/* ---- Grammar ----------------------------------------------------------------------------------- */

static treadle_status parse_number(parser *p, value *value_p) {
  value_p->number = 0;
  for (; is_digit(*p->at); p->at++)
    if (__builtin_mul_overflow(value_p->number, 10, &value_p->number) ||
        __builtin_add_overflow(value_p->number, *p->at - '0', &value_p->number))
      return treadle_fail(TREADLE_REFUSED, "%s: %.160s: a number does not fit 64 bits", p->what, p->text);
  if (is_letter(*p->at)) return fail_here(p, "a letter follows a number");
  return TREADLE_OK;
}

/* Names with dots between them: a field of an object. In a list (`word`) the last may be what it has at a place, a word or a
 * number. */
static treadle_status take_path(parser *p, bool word, char name[MAX_NAME]) {
  size_t length = name_length(p->at);
  while (p->at[length] == '.') {
    const char *next = p->at + length + 1;
    size_t more = name_length(next);
    if (word && more == 0) more = strspn(next, "0123456789");
    if (more == 0) {
      p->at = next;
      return fail_here(p, "a word is missing");
    }
    length += 1 + more;
  }
  if (length >= MAX_NAME)
    return treadle_fail(TREADLE_REFUSED, "%s: %.160s: a name is longer than %d", p->what, p->text,
                        MAX_NAME - 1);
  memcpy(name, p->at, length);
  name[length] = 0;
  p->at += length;
  return TREADLE_OK;
}

/* "in" was taken: is the number in the list that comes next? An absent list holds nothing. */
static treadle_status parse_member(parser *p, value *value_p) {
  char name[MAX_NAME];
  bool found = false;
  int64_t member = value_p->number;
  treadle_status status;
  skip_space(p);
  if (!is_letter(*p->at) || is_reserved(p->at, name_length(p->at)))
    return fail_here(p, "the name of a list is missing");
  TRY(take_path(p, true, name));
  if (p->visit || !p->live || value_p->absent) return TREADLE_OK;
  TRY(p->lookup(p->context, name, &member, &value_p->number, &found));
  if (!found) value_p->number = 0;
out:
  return status;
}

static treadle_status parse_name(parser *p, value *value_p) {
  char name[MAX_NAME];
  treadle_status status;
  TRY(take_path(p, false, name));
  if (p->visit) return p->visit(p->context, name);
  if (!p->live) return TREADLE_OK;

  bool found = false;
  TRY(p->lookup(p->context, name, NULL, &value_p->number, &found));
  if (!found) {
    value_p->absent = true;
    memcpy(p->missing, name, sizeof p->missing);
  }
out:
  return status;
}

static treadle_status parse_primary(parser *p, value *value_p) {
  treadle_status status = TREADLE_OK;
  *value_p = (value){0};
  if (take(p, "(")) {
    TRY(parse_choice(p, value_p));
    if (!take(p, ")")) return fail_here(p, "')' is missing");
    return TREADLE_OK;
  }
  if (take(p, "false")) return TREADLE_OK;
  if (take(p, "true")) {
    value_p->number = 1;
    return TREADLE_OK;
  }
  if (is_digit(*p->at)) return parse_number(p, value_p);
  if (is_letter(*p->at) && !is_reserved(p->at, name_length(p->at))) return parse_name(p, value_p);
  return fail_here(p, "a value is missing");
out:
  return status;
}

static treadle_status parse_product(parser *p, value *value_p) {
  treadle_status status;
  TRY(parse_primary(p, value_p));
  for (;;) {
    char op = take(p, "*") ? '*' : take(p, "/") ? '/' : take(p, "%") ? '%' : 0;
    if (!op) return TREADLE_OK;
    value right;
    TRY(parse_primary(p, &right));
    TRY(compute(p, op, value_p, &right));
  }
out:
  return status;
}

static treadle_status parse_sum(parser *p, value *value_p) {
  treadle_status status;
  TRY(parse_product(p, value_p));
  for (;;) {
    char op = take(p, "+") ? '+' : take(p, "-") ? '-' : 0;
    if (!op) return TREADLE_OK;
    value right;
    TRY(parse_product(p, &right));
    TRY(compute(p, op, value_p, &right));
  }
out:
  return status;
}

static treadle_status parse_relation(parser *p, value *value_p) {
  static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
  treadle_status status;
  TRY(parse_sum(p, value_p));
  if (take(p, "in")) return parse_member(p, value_p);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    if (!take(p, ops[i])) continue;
    value right;
    TRY(parse_sum(p, &right));
    value_p->absent = value_p->absent || right.absent;
    value_p->number = relation_holds(ops[i], value_p->number, right.number);
    break;
  }
out:
  return status;
}

static treadle_status parse_negation(parser *p, value *value_p) {
  treadle_status status;
  if (!take(p, "not")) return parse_relation(p, value_p);
  TRY(enter(p));
  TRY(parse_negation(p, value_p));
  value_p->number = !value_p->number;
  p->depth--;
out:
  return status;
}

/* A side whose value counts only while `counts`. */
static treadle_status parse_side(parser *p, bool counts, treadle_status (*parse)(parser *, value *),
                                 value *value_p) {
  bool live = p->live;
  p->live = live && counts;
  treadle_status status = parse(p, value_p);
  p->live = live;
  return status;
}

static treadle_status parse_both(parser *p, value *value_p) {
  treadle_status status;
  TRY(parse_negation(p, value_p));
  while (take(p, "and")) {
    value right;
    bool counts = !value_p->absent && value_p->number;
    TRY(parse_side(p, counts, parse_negation, &right));
    value_p->absent = value_p->absent || right.absent;
    value_p->number = counts && right.number;
  }
out:
  return status;
}

static treadle_status parse_either(parser *p, value *value_p) {
  treadle_status status;
  TRY(parse_both(p, value_p));
  while (take(p, "or")) {
    value right;
    bool counts = !value_p->absent && !value_p->number;
    TRY(parse_side(p, counts, parse_both, &right));
    value_p->absent = value_p->absent || right.absent;
    value_p->number = value_p->number || (counts && right.number);
  }
out:
  return status;
}

static treadle_status parse_choice(parser *p, value *value_p) {
  treadle_status status;
  TRY(enter(p));
  TRY(parse_either(p, value_p));
  if (take(p, "??")) {
    value right;
    TRY(parse_side(p, value_p->absent, parse_choice, &right));
    if (value_p->absent) *value_p = right;
  }
  p->depth--;
out:
  return status;
}

static treadle_status parse_all(parser *p, value *value_p) {
  treadle_status status;
  TRY(parse_choice(p, value_p));
  skip_space(p);
  if (*p->at) return fail_here(p, "an operator is missing");
out:
  return status;
}

treadle_status treadle_expr_evaluate(const char *what, const char *text, treadle_lookup lookup,
                                     void *context, int64_t *value_p) {
  parser p = {.what = what, .text = text, .at = text, .lookup = lookup, .context = context, .live = true};
  value result;
  treadle_status status;
  TRY(parse_all(&p, &result));
  if (result.absent) return treadle_fail(TREADLE_REFUSED, "%s is missing, needed by %s", p.missing, what);
  *value_p = result.number;
out:
  return status;
}

static treadle_status visit_nothing(void *context, const char *name) {
  (void)context;
  (void)name;
  return TREADLE_OK;
}

treadle_status treadle_expr_check(const char *what, const char *text, treadle_visit visit, void *context) {
  parser p = {
      .what = what, .text = text, .at = text, .visit = visit ? visit : visit_nothing, .context = context};
  value ignored;
  return parse_all(&p, &ignored);
}

typedef struct name_search {
  const char *name;
  bool found;
} name_search;

static treadle_status note_name(void *context, const char *name) {
  name_search *search = context;
  search->found = search->found || strcmp(search->name, name) == 0;
  return TREADLE_OK;
}

bool treadle_expr_names(const char *text, const char *name) {
  name_search search = {name, false};
  return treadle_expr_check("", text, note_name, &search) == TREADLE_OK && search.found;
}

bool treadle_expr_is_name(const char *text) {
  size_t length = name_length(text);
  return length && length < MAX_NAME && !text[length] && !is_reserved(text, length);
}

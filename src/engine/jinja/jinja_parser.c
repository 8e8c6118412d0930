/* Going through tokens, making trees, and bodies: text, {{ }} and statements up to a tag. */
#include "jinja/jinja_parser.h"

#include "base/utf8.h"
#include "jinja/jinja_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef treadle_jinja_parser parser;
typedef treadle_jinja_tree tree;
typedef treadle_jinja_lexeme lexeme;

enum { MAX_HEIGHT = 600 };

/* ---- Tokens and trees ------------------------------------------------------------------------------ */

treadle_status treadle_jinja_parser_fail(parser *p, int line, const char *format, ...) {
  char words[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  p->machine.line = line;
  return treadle_fail(TREADLE_REFUSED, "%s", words);
}

/* The end has the line of the token before it. */
treadle_status treadle_jinja_parser_next(parser *p) {
  int line = p->current.line;
  if (p->has_ahead)
    p->current = p->ahead;
  else
    PASS(treadle_jinja_lexer_next(&p->lexer, &p->current));
  p->has_ahead = false;
  if (p->current.sign == JINJA_END) p->current.line = line;
  return TREADLE_OK;
}

treadle_status treadle_jinja_parser_look(parser *p) {
  if (p->has_ahead) return TREADLE_OK;
  PASS(treadle_jinja_lexer_next(&p->lexer, &p->ahead));
  p->has_ahead = true;
  return TREADLE_OK;
}

bool treadle_jinja_lexeme_is(const lexeme *t, treadle_jinja_sign sign, const char *word) {
  return t->sign == sign && (!word || strcmp(t->word, word) == 0);
}

treadle_status treadle_jinja_parser_skip(parser *p, treadle_jinja_sign sign, const char *word,
                                         bool *taken_p) {
  *taken_p = treadle_jinja_lexeme_is(&p->current, sign, word);
  return *taken_p ? treadle_jinja_parser_next(p) : TREADLE_OK;
}

const char *treadle_jinja_lexeme_text(const lexeme *t, char to[80]) {
  static const char *const names[] = {[JINJA_END] = "the end of the template",
                                      [JINJA_DATA] = "text",
                                      [JINJA_VARIABLE_BEGIN] = "{{",
                                      [JINJA_VARIABLE_END] = "}}",
                                      [JINJA_BLOCK_BEGIN] = "{%",
                                      [JINJA_BLOCK_END] = "%}",
                                      [JINJA_STRING] = "a string",
                                      [JINJA_WHOLE] = "a number",
                                      [JINJA_REAL] = "a number"};
  if (t->sign != JINJA_WORD && t->sign != JINJA_OPERATOR) return names[t->sign];
  snprintf(to, 80, "'%.60s'", t->word);
  return to;
}

treadle_status treadle_jinja_parser_expect(parser *p, treadle_jinja_sign sign, const char *word) {
  lexeme wanted = {.sign = sign, .word = word};
  char text[80], other[80];
  if (treadle_jinja_lexeme_is(&p->current, sign, word)) return treadle_jinja_parser_next(p);
  return treadle_jinja_parser_fail(p, p->current.line, "%s is wanted, and %s stands there",
                                   sign == JINJA_WORD && !word ? "a name"
                                                               : treadle_jinja_lexeme_text(&wanted, text),
                                   treadle_jinja_lexeme_text(&p->current, other));
}

treadle_status treadle_jinja_tree_make(parser *p, treadle_jinja_form form, int line, tree **tree_p) {
  PASS(treadle_jinja_alloc(&p->machine, 1, sizeof **tree_p, tree_p));
  (*tree_p)->form = form;
  (*tree_p)->line = line;
  return TREADLE_OK;
}

static void raise_above(tree *t, const tree *child) {
  if (child && child->height >= t->height) t->height = child->height + 1;
}

treadle_status treadle_jinja_tree_done(parser *p, tree *t) {
  const treadle_jinja_trees *lists[] = {&t->list, &t->more, &t->body};
  raise_above(t, t->of);
  raise_above(t, t->by);
  raise_above(t, t->other);
  for (int i = 0; i < 3; i++)
    for (size_t j = 0; j < lists[i]->count; j++) raise_above(t, lists[i]->items[j]);
  if (t->height <= MAX_HEIGHT) return TREADLE_OK;
  return treadle_jinja_parser_fail(p, t->line, "nested, or chained, more than %d levels deep", MAX_HEIGHT);
}

treadle_status treadle_jinja_trees_keep(parser *p, treadle_jinja_tree_array *array,
                                        treadle_jinja_trees *trees_p) {
  treadle_status status;
  TRY(treadle_jinja_alloc(&p->machine, array->count, sizeof *trees_p->items, &trees_p->items));
  if (array->count) memcpy(trees_p->items, array->items, array->count * sizeof *array->items);
  trees_p->count = array->count;
out:
  treadle_array_release(array);
  return status;
}

/* ---- Bodies ---------------------------------------------------------------------------------------- */

static bool is_end(const parser *p, const char *const *ends) {
  for (; ends && *ends; ends++)
    if (treadle_jinja_lexeme_is(&p->current, JINJA_WORD, *ends)) return true;
  return false;
}

static treadle_status flush(parser *p, treadle_jinja_tree_array *output, treadle_jinja_tree_array *into) {
  tree *t;
  if (output->count == 0) return TREADLE_OK;
  PASS(treadle_jinja_tree_make(p, JINJA_OUTPUT, output->items[0]->line, &t));
  PASS(treadle_jinja_trees_keep(p, output, &t->list));
  PASS(treadle_jinja_tree_done(p, t));
  return treadle_array_push(into, t);
}

static treadle_status parse_data(parser *p, treadle_jinja_tree_array *output) {
  tree *t;
  PASS(treadle_jinja_tree_make(p, JINJA_CONST, p->current.line, &t));
  t->constant = p->current.value;
  PASS(treadle_array_push(output, t));
  return treadle_jinja_parser_next(p);
}

static treadle_status parse_variable(parser *p, treadle_jinja_tree_array *output) {
  tree *t;
  PASS(treadle_jinja_parser_next(p));
  PASS(treadle_jinja_parse_tuple(p, 0, &t));
  PASS(treadle_array_push(output, t));
  return treadle_jinja_parser_expect(p, JINJA_VARIABLE_END, NULL);
}

/* Statements up to a tag of `ends`, whose word is the current token then; up to the end of the template. */
treadle_status treadle_jinja_parse_until(parser *p, const char *const *ends, treadle_jinja_trees *body) {
  treadle_jinja_tree_array output = {0}, statements = {0};
  treadle_status status = TREADLE_OK;
  TRY(treadle_jinja_enter(&p->machine));
  while (p->current.sign != JINJA_END) {
    if (p->current.sign == JINJA_DATA) {
      TRY(parse_data(p, &output));
      continue;
    }
    if (p->current.sign == JINJA_VARIABLE_BEGIN) {
      TRY(parse_variable(p, &output));
      continue;
    }
    TRY(flush(p, &output, &statements));
    TRY(treadle_jinja_parser_expect(p, JINJA_BLOCK_BEGIN, NULL));
    if (is_end(p, ends)) break;
    TRY(treadle_jinja_parse_statement(p, &statements));
    TRY(treadle_jinja_parser_expect(p, JINJA_BLOCK_END, NULL));
  }
  TRY(flush(p, &output, &statements));
  TRY(treadle_jinja_trees_keep(p, &statements, body));
  p->machine.depth--;
out:
  treadle_array_release(&output);
  treadle_array_release(&statements);
  return status;
}

/* The rest of a tag, and the body behind it; the tag that ends it is the current token. */
treadle_status treadle_jinja_parse_body(parser *p, const char *tag, const char *const *ends,
                                        treadle_jinja_trees *body) {
  bool colon;
  const char *outer = p->waiting;
  PASS(treadle_jinja_parser_skip(p, JINJA_OPERATOR, ":", &colon));
  PASS(treadle_jinja_parser_expect(p, JINJA_BLOCK_END, NULL));
  p->waiting = tag;
  PASS(treadle_jinja_parse_until(p, ends, body));
  if (p->current.sign == JINJA_END)
    return treadle_jinja_parser_fail(p, p->current.line, "the template ends where {%% %s %%} is open", tag);
  p->waiting = outer;
  return TREADLE_OK;
}

/* A body that one tag ends, which is taken. */
treadle_status treadle_jinja_parse_whole_body(parser *p, const char *tag, const char *end,
                                              treadle_jinja_trees *body) {
  const char *const ends[] = {end, NULL};
  PASS(treadle_jinja_parse_body(p, tag, ends, body));
  return treadle_jinja_parser_next(p);
}

/* ---- Templates ------------------------------------------------------------------------------------- */

static treadle_status parse_all(parser *p, const char *text, size_t length, treadle_jinja_template *into) {
  PASS(treadle_jinja_lexer_open(&p->lexer, &p->machine, text, length));
  PASS(treadle_jinja_lexer_intern(&p->lexer, "loop", 4, &into->loop));
  PASS(treadle_jinja_lexer_intern(&p->lexer, "caller", 6, &into->caller));
  PASS(treadle_jinja_lexer_intern(&p->lexer, "kwargs", 6, &into->kwargs));
  PASS(treadle_jinja_lexer_intern(&p->lexer, "varargs", 7, &into->varargs));
  p->current.line = 1;
  PASS(treadle_jinja_parser_next(p));
  PASS(treadle_jinja_parse_until(p, NULL, &into->body));
  return treadle_jinja_check(&p->machine, into->body);
}

/* The end of the line of characters that are no UTF-8; 0: all are. */
static int line_of_bad(const char *text, size_t length) {
  int line = 1;
  uint32_t code;
  for (size_t at = 0; at < length;) {
    char four[5] = {0}; /* treadle_utf8_read stops at a 0 byte */
    memcpy(four, text + at, length - at < 4 ? length - at : 4);
    int one = treadle_utf8_read(four, &code);
    if (one == 0) return line;
    line += code == '\n';
    at += (size_t)one;
  }
  return 0;
}

treadle_status treadle_jinja_parse(const char *what, const char *text, size_t length,
                                   treadle_jinja_template **template_p) {
  static const treadle_jinja_options limits = {
      .steps = 50 * 1000 * 1000, .memory = 256 << 20, .output = 64 << 20};
  parser p = {.machine = {.options = &limits, .steps_left = limits.steps, .memory_left = limits.memory}};
  treadle_jinja_template *made = NULL;
  treadle_status status = TREADLE_OK;
  *template_p = NULL;
  int bad = line_of_bad(text, length);
  if (bad) REFUSE("%s: line %d: a byte is not part of a character in UTF-8", what, bad);
  made = treadle_alloc(sizeof *made);
  char *copy = treadle_arena_copy_text(&p.machine.arena, what);
  if (!made || !copy) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to read a template", what));
  made->what = copy;
  status = parse_all(&p, text, length, made);
  if (status == TREADLE_REFUSED)
    status =
        treadle_fail_in(status, "%s: line %d: ", what, p.machine.line ? p.machine.line : p.current.line);
  TRY(status);
  made->arena = p.machine.arena;
  p.machine.arena = (treadle_arena){0};
  *template_p = made;
  made = NULL;
out:
  treadle_jinja_lexer_close(&p.lexer);
  treadle_arena_release(&p.machine.arena);
  treadle_free(made);
  return status;
}

void treadle_jinja_destroy(treadle_jinja_template *template) {
  if (!template) return;
  treadle_arena_release(&template->arena);
  treadle_free(template);
}

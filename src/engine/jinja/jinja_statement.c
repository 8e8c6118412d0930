/* Statements: one function for each tag. */
#include "jinja/jinja_parser_parts.h"

#include "jinja/jinja_text.h"

#include <string.h>

static treadle_status parse_set(parser *p, tree *t) {
  bool assigned;
  PASS(treadle_jinja_parse_target(p, JINJA_MEMBERS, &t->of));
  PASS(treadle_jinja_parser_skip(p, JINJA_OPERATOR, "=", &assigned));
  if (assigned) return treadle_jinja_parse_tuple(p, 0, &t->by);
  t->form = JINJA_SET_BLOCK;
  PASS(treadle_jinja_parse_filters(p, false, &t->by));
  return treadle_jinja_parse_whole_body(p, "set", "endset", &t->body);
}

static treadle_status parse_for(parser *p, tree *t) {
  static const char *const ends[] = {"endfor", "else", NULL};
  bool has_test;
  PASS(treadle_jinja_parse_target(p, 0, &t->of));
  PASS(treadle_jinja_parser_expect(p, JINJA_WORD, "in"));
  PASS(treadle_jinja_parse_tuple(p, JINJA_PLAIN, &t->by));
  PASS(treadle_jinja_parser_skip(p, JINJA_WORD, "if", &has_test));
  if (has_test) PASS(treadle_jinja_parse_expression(p, &t->other));
  PASS(treadle_jinja_parser_skip(p, JINJA_WORD, "recursive", &t->recursive));
  PASS(treadle_jinja_parse_body(p, "for", ends, &t->body));
  bool has_else = is_word(p, "else");
  PASS(next(p));
  return has_else ? treadle_jinja_parse_whole_body(p, "for", "endfor", &t->more) : TREADLE_OK;
}

/* if and elif: a condition and its body. */
static treadle_status parse_branch(parser *p, int line, treadle_jinja_tree_array *branches) {
  static const char *const ends[] = {"elif", "else", "endif", NULL};
  tree *branch;
  PASS(treadle_jinja_tree_make(p, JINJA_BRANCH, line, &branch));
  PASS(treadle_jinja_parse_tuple(p, JINJA_PLAIN, &branch->of));
  PASS(treadle_jinja_parse_body(p, "if", ends, &branch->body));
  PASS(treadle_jinja_tree_done(p, branch));
  return treadle_array_push(branches, branch);
}

static treadle_status parse_if(parser *p, tree *t) {
  treadle_jinja_tree_array branches = {0};
  treadle_status status;
  TRY(parse_branch(p, t->line, &branches));
  while (is_word(p, "elif")) {
    TRY(next(p));
    TRY(parse_branch(p, p->current.line, &branches));
  }
  bool has_else = is_word(p, "else");
  TRY(next(p));
  if (has_else) TRY(treadle_jinja_parse_whole_body(p, "if", "endif", &t->body));
  TRY(treadle_jinja_trees_keep(p, &branches, &t->list));
out:
  treadle_array_release(&branches);
  return status;
}

static treadle_status parse_with(parser *p, tree *t) {
  treadle_jinja_tree_array targets = {0}, values = {0};
  treadle_status status = TREADLE_OK;
  tree *one;
  while (p->current.sign != JINJA_BLOCK_END) {
    if (targets.count) TRY(treadle_jinja_parser_expect(p, JINJA_OPERATOR, ","));
    TRY(treadle_jinja_parse_target(p, 0, &one));
    TRY(treadle_array_push(&targets, one));
    TRY(treadle_jinja_parser_expect(p, JINJA_OPERATOR, "="));
    TRY(treadle_jinja_parse_expression(p, &one));
    TRY(treadle_array_push(&values, one));
  }
  TRY(treadle_jinja_trees_keep(p, &targets, &t->list));
  TRY(treadle_jinja_trees_keep(p, &values, &t->more));
  TRY(treadle_jinja_parse_whole_body(p, "with", "endwith", &t->body));
out:
  treadle_array_release(&targets);
  treadle_array_release(&values);
  return status;
}

static treadle_status parse_macro(parser *p, tree *t) {
  tree *name;
  PASS(treadle_jinja_parse_target(p, -1, &name));
  t->name = name->name;
  PASS(treadle_jinja_parse_parameters(p, t));
  return treadle_jinja_parse_whole_body(p, "macro", "endmacro", &t->body);
}

static treadle_status parse_call_block(parser *p, tree *t) {
  if (is_operator(p, "(")) PASS(treadle_jinja_parse_parameters(p, t));
  PASS(treadle_jinja_parse_expression(p, &t->of));
  if (t->of->form != JINJA_CALL)
    return treadle_jinja_parser_fail(p, t->line, "a call is wanted behind {%% call");
  return treadle_jinja_parse_whole_body(p, "call", "endcall", &t->body);
}

static treadle_status parse_filter_block(parser *p, tree *t) {
  PASS(treadle_jinja_parse_filters(p, true, &t->of));
  return treadle_jinja_parse_whole_body(p, "filter", "endfilter", &t->body);
}

static treadle_status parse_generation(parser *p, tree *t) {
  return treadle_jinja_parse_whole_body(p, "generation", "endgeneration", &t->body);
}

static bool is_blank(const treadle_jinja_trees *body) {
  for (size_t i = 0; i < body->count; i++) {
    const tree *output = body->items[i];
    if (output->form != JINJA_OUTPUT) return false;
    for (size_t j = 0; j < output->list.count; j++) {
      const tree *data = output->list.items[j];
      size_t from, to;
      if (data->form != JINJA_CONST || data->constant.kind != JINJA_TEXT) return false;
      const treadle_jinja_text *text = data->constant.text;
      (void)treadle_jinja_strip(NULL, text->bytes, text->length, JINJA_LEFT, NULL, &from, &to);
      if (from < to) return false;
    }
  }
  return true;
}

/* Without other templates a block is its body. */
static treadle_status parse_block(parser *p, tree *t) {
  bool named;
  t->name = p->current.word;
  PASS(treadle_jinja_parser_expect(p, JINJA_WORD, NULL));
  PASS(treadle_jinja_parser_skip(p, JINJA_WORD, "scoped", &t->scoped));
  PASS(treadle_jinja_parser_skip(p, JINJA_WORD, "required", &t->required));
  if (is_operator(p, "-"))
    return treadle_jinja_parser_fail(p, p->current.line, "a block's name has no '-'");
  PASS(treadle_jinja_parse_whole_body(p, "block", "endblock", &t->body));
  if (t->required && !is_blank(&t->body))
    return treadle_jinja_parser_fail(p, p->current.line,
                                     "a required block has white space and comments alone");
  return treadle_jinja_parser_skip(p, JINJA_WORD, t->name, &named);
}

static treadle_status parse_print(parser *p, tree *t) {
  treadle_jinja_tree_array items = {0};
  treadle_status status = TREADLE_OK;
  tree *one;
  while (p->current.sign != JINJA_BLOCK_END) {
    if (items.count) TRY(treadle_jinja_parser_expect(p, JINJA_OPERATOR, ","));
    TRY(treadle_jinja_parse_expression(p, &one));
    TRY(treadle_array_push(&items, one));
  }
  TRY(treadle_jinja_trees_keep(p, &items, &t->list));
out:
  treadle_array_release(&items);
  return status;
}

static treadle_status parse_nothing(parser *p, tree *t) {
  (void)p;
  (void)t;
  return TREADLE_OK;
}

/* Tags of Jinja that ask for other templates, or for HTML. */
static treadle_status parse_missing(parser *p, tree *t) {
  return treadle_jinja_parser_fail(p, t->line, "the tag '%s' is not supported", p->waiting);
}

treadle_status treadle_jinja_parse_statement(parser *p, treadle_jinja_tree_array *into) {
  static const struct {
    const char *tag;
    treadle_status (*parse)(parser *p, tree *t);
    treadle_jinja_form form;
  } rows[] = {{"set", parse_set, JINJA_SET},
              {"for", parse_for, JINJA_FOR},
              {"if", parse_if, JINJA_IF},
              {"with", parse_with, JINJA_WITH},
              {"macro", parse_macro, JINJA_DEFINE},
              {"call", parse_call_block, JINJA_CALL_BLOCK},
              {"filter", parse_filter_block, JINJA_FILTER_BLOCK},
              {"generation", parse_generation, JINJA_GENERATION},
              {"block", parse_block, JINJA_BLOCK},
              {"print", parse_print, JINJA_OUTPUT},
              {"break", parse_nothing, JINJA_BREAK},
              {"continue", parse_nothing, JINJA_CONTINUE},
              {"include", parse_missing, JINJA_OUTPUT},
              {"import", parse_missing, JINJA_OUTPUT},
              {"from", parse_missing, JINJA_OUTPUT},
              {"extends", parse_missing, JINJA_OUTPUT},
              {"autoescape", parse_missing, JINJA_OUTPUT}};
  lexeme tag = p->current;
  tree *t;
  if (tag.sign != JINJA_WORD) return treadle_jinja_parser_fail(p, tag.line, "the name of a tag is wanted");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(tag.word, rows[i].tag) != 0) continue;
    const char *outer = p->waiting;
    PASS(treadle_jinja_tree_make(p, rows[i].form, tag.line, &t));
    if (rows[i].parse == parse_missing)
      p->waiting = rows[i].tag;
    else
      PASS(next(p));
    PASS(rows[i].parse(p, t));
    p->waiting = outer;
    PASS(treadle_jinja_tree_done(p, t));
    return treadle_array_push(into, t);
  }
  if (p->waiting)
    return treadle_jinja_parser_fail(
        p, tag.line, "the tag '%.60s' is not known here, where {%% %s %%} is open", tag.word, p->waiting);
  return treadle_jinja_parser_fail(p, tag.line, "the tag '%.60s' is not known", tag.word);
}

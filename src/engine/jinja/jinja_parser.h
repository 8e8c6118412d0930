/* The parser's state, shared by its halves: statements (jinja_parser.c) and expressions (jinja_expression.c). */
#ifndef TREADLE_JINJA_JINJA_PARSER_H
#define TREADLE_JINJA_JINJA_PARSER_H

#include "jinja/jinja_lexer.h"
#include "jinja/jinja_tree.h"

typedef struct treadle_jinja_parser {
  treadle_jinja_machine machine; /* its arena becomes the template's */
  treadle_jinja_lexer lexer;
  treadle_jinja_lexeme current, ahead;
  bool has_ahead;
  const char *waiting; /* the innermost tag that is open, for messages */
} treadle_jinja_parser;

/* Trees in the making. */
typedef TREADLE_ARRAY(treadle_jinja_tree *) treadle_jinja_tree_array;

treadle_status treadle_jinja_parser_next(treadle_jinja_parser *parser);
treadle_status treadle_jinja_parser_look(treadle_jinja_parser *parser); /* fills `ahead` */
bool treadle_jinja_lexeme_is(const treadle_jinja_lexeme *token, treadle_jinja_sign sign, const char *word);
/* Takes the token if it is this one. */
treadle_status treadle_jinja_parser_skip(treadle_jinja_parser *parser, treadle_jinja_sign sign,
                                         const char *word, bool *taken_p);
/* Refuses another token. */
treadle_status treadle_jinja_parser_expect(treadle_jinja_parser *parser, treadle_jinja_sign sign,
                                           const char *word);
treadle_status treadle_jinja_parser_fail(treadle_jinja_parser *parser, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *treadle_jinja_lexeme_text(const treadle_jinja_lexeme *token, char to[80]);

treadle_status treadle_jinja_tree_make(treadle_jinja_parser *parser, treadle_jinja_form form, int line,
                                       treadle_jinja_tree **tree_p);
/* All parts are there: reckons the height. */
treadle_status treadle_jinja_tree_done(treadle_jinja_parser *parser, treadle_jinja_tree *tree);
/* Copies the array into the arena and releases it. */
treadle_status treadle_jinja_trees_keep(treadle_jinja_parser *parser, treadle_jinja_tree_array *array,
                                        treadle_jinja_trees *trees_p);

/* What may stand in a list of expressions with commas. */
enum {
  JINJA_PLAIN = 1,    /* no x if y else z */
  JINJA_TARGET = 2,   /* names and literals alone */
  JINJA_MEMBERS = 4,  /* of namespaces, as targets */
  JINJA_BRACKETED = 8 /* may be empty */
};
treadle_status treadle_jinja_parse_tuple(treadle_jinja_parser *parser, int how,
                                         treadle_jinja_tree **tree_p);
treadle_status treadle_jinja_parse_expression(treadle_jinja_parser *parser, treadle_jinja_tree **tree_p);
/* What the operators stand between (jinja_primary.c): a name or a literal; what follows it; filters, tests and calls. */
treadle_status treadle_jinja_parse_primary(treadle_jinja_parser *parser, bool members,
                                           treadle_jinja_tree **tree_p);
treadle_status treadle_jinja_parse_postfixes(treadle_jinja_parser *parser, treadle_jinja_tree **tree_p);
treadle_status treadle_jinja_parse_tail(treadle_jinja_parser *parser, treadle_jinja_tree **tree_p);
/* What can be set: names with commas, members of namespaces too; -1: one name alone. */
treadle_status treadle_jinja_parse_target(treadle_jinja_parser *parser, int how,
                                          treadle_jinja_tree **tree_p);
/* | filter | filter ...; `without_bar`: the first has no |. *tree_p is what is filtered, NULL in a block. */
treadle_status treadle_jinja_parse_filters(treadle_jinja_parser *parser, bool without_bar,
                                           treadle_jinja_tree **tree_p);
treadle_status treadle_jinja_parse_arguments(treadle_jinja_parser *parser, treadle_jinja_tree *call);
treadle_status treadle_jinja_parse_parameters(treadle_jinja_parser *parser, treadle_jinja_tree *macro);

/* Statements up to a tag of `ends`, whose word is the current token then; NULL: up to the end of the template. */
treadle_status treadle_jinja_parse_until(treadle_jinja_parser *parser, const char *const *ends,
                                         treadle_jinja_trees *body);
/* The rest of a tag, and the body behind it; the tag that ends it is the current token. */
treadle_status treadle_jinja_parse_body(treadle_jinja_parser *parser, const char *tag,
                                        const char *const *ends, treadle_jinja_trees *body);
/* A body that one tag ends, which is taken. */
treadle_status treadle_jinja_parse_whole_body(treadle_jinja_parser *parser, const char *tag,
                                              const char *end, treadle_jinja_trees *body);
/* The statement whose tag's word is the current token (jinja_statement.c). */
treadle_status treadle_jinja_parse_statement(treadle_jinja_parser *parser, treadle_jinja_tree_array *into);

#endif

/* Short names for the files that parse: nearly every line of theirs has one. */
#ifndef TREADLE_JINJA_JINJA_PARSER_PARTS_H
#define TREADLE_JINJA_JINJA_PARSER_PARTS_H

#include "jinja/jinja_parser.h"

typedef treadle_jinja_parser parser;
typedef treadle_jinja_tree tree;
typedef treadle_jinja_lexeme lexeme;

static inline bool is_word(const parser *p, const char *word) {
  return treadle_jinja_lexeme_is(&p->current, JINJA_WORD, word);
}
static inline bool is_operator(const parser *p, const char *word) {
  return treadle_jinja_lexeme_is(&p->current, JINJA_OPERATOR, word);
}
static inline treadle_status next(parser *p) { return treadle_jinja_parser_next(p); }
static inline treadle_status expect(parser *p, const char *operator) {
  return treadle_jinja_parser_expect(p, JINJA_OPERATOR, operator);
}
static inline treadle_status make(parser *p, treadle_jinja_form form, int line, tree **tree_p) {
  return treadle_jinja_tree_make(p, form, line, tree_p);
}
static inline treadle_status done(parser *p, tree *t, tree **tree_p) {
  *tree_p = t;
  return treadle_jinja_tree_done(p, t);
}

#endif

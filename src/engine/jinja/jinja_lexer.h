/* A template as tokens, one at a time. */
#ifndef TREADLE_JINJA_JINJA_LEXER_H
#define TREADLE_JINJA_JINJA_LEXER_H

#include "base/hash_map.h"
#include "jinja/jinja_machine.h"

typedef enum treadle_jinja_sign {
  JINJA_END, /* of the template */
  JINJA_DATA,
  JINJA_VARIABLE_BEGIN,
  JINJA_VARIABLE_END,
  JINJA_BLOCK_BEGIN,
  JINJA_BLOCK_END,
  JINJA_WORD,
  JINJA_STRING,
  JINJA_WHOLE,
  JINJA_REAL,
  JINJA_OPERATOR
} treadle_jinja_sign;

typedef struct treadle_jinja_lexeme {
  treadle_jinja_sign sign;
  int line;
  const char *word;          /* a name (interned), or an operator */
  treadle_jinja_value value; /* of data, strings and numbers */
} treadle_jinja_lexeme;

typedef struct treadle_jinja_lexer {
  treadle_jinja_machine *machine; /* its arena has the tokens */
  treadle_hash_map words;         /* names that came, each with its place in `interned` */
  TREADLE_ARRAY(const char *) interned;
  const char *text; /* line ends are \n; the last one is not there */
  size_t length, at;
  int line;
  enum { JINJA_IN_DATA, JINJA_IN_BLOCK, JINJA_IN_VARIABLE, JINJA_IN_COMMENT, JINJA_IN_RAW } where;
  bool line_begins;  /* what was read ends a line */
  size_t open_count; /* brackets that are open */
  char open[256];    /* what closes each */
  bool has_next;     /* a token that was read with the data before it */
  treadle_jinja_lexeme next;
} treadle_jinja_lexer;

treadle_status treadle_jinja_lexer_open(treadle_jinja_lexer *lexer, treadle_jinja_machine *machine,
                                        const char *text, size_t length);
/* machine->line is the line of an error. */
treadle_status treadle_jinja_lexer_next(treadle_jinja_lexer *lexer, treadle_jinja_lexeme *token);
treadle_status treadle_jinja_lexer_intern(treadle_jinja_lexer *lexer, const char *bytes, size_t length,
                                          const char **word_p);
void treadle_jinja_lexer_close(treadle_jinja_lexer *lexer);

/* The token that begins here: a name, a string, a number or an operator (jinja_lexeme.c). */
treadle_status treadle_jinja_lexer_lexeme(treadle_jinja_lexer *lexer, treadle_jinja_lexeme *token);
treadle_status treadle_jinja_lexer_fail(treadle_jinja_lexer *lexer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes bytes up to `end` and counts their lines. */
void treadle_jinja_lexer_take(treadle_jinja_lexer *lexer, size_t end);

#endif

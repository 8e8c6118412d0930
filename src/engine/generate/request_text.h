/* What is asked as text, or as messages of a chat, becomes tokens. */
#ifndef TREADLE_GENERATE_REQUEST_TEXT_H
#define TREADLE_GENERATE_REQUEST_TEXT_H

#include "generate/requests.h"
#include "treadle_builtin.h"

typedef struct treadle_request_text_spec {
  const char *what;                   /* names the lines in messages: a path */
  const treadle_tokenizer *tokenizer; /* NULL: texts are refused */
  const treadle_chat *chat;           /* NULL: messages are refused */
  bool answers; /* what a template makes ends where the model is to answer (add_generation_prompt) */
  bool talks;   /* a text is a message of the user */
  const char
      *variables; /* of the template, as a JSON object, in place of what `answers` says; NULL: none */
} treadle_request_text_spec;

/* Sets input->tokens, in the arena; tokens stay as they are. A text gets the special tokens that the tokenizer puts around it; what a
 * template makes has them in it already. Failures name `line`. */
treadle_status treadle_request_tokenize(const treadle_request_text_spec *spec, int64_t line,
                                        treadle_arena *arena, treadle_request_input *input);

#endif

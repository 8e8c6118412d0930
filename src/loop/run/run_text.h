/* What makes tokens of a run's texts, and texts of its tokens. */
#ifndef TREADLE_RUN_RUN_TEXT_H
#define TREADLE_RUN_RUN_TEXT_H

#include "treadle_builtin.h"

#include <limits.h>

typedef struct treadle_run_text {
  treadle_tokenizer *tokenizer; /* NULL: there is none */
  treadle_chat *chat;           /* its template; NULL: there is none */
  char companions[PATH_MAX];    /* the folder that has them */
} treadle_run_text;

/* The tokenizer and the chat template of the folder that was given; NULL: those beside the model, if there are any.
 * *text_p is ended by close, whatever is returned. */
treadle_status treadle_run_text_open(const char *given, const char *model_path, treadle_run_text *text_p);
void treadle_run_text_close(treadle_run_text *text);

#endif

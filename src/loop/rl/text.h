/* What makes tokens of texts, and texts of tokens. */
#ifndef TREADLE_RL_TEXT_H
#define TREADLE_RL_TEXT_H

#include "treadle_engine.h"
#include "treadle_loop.h"

#include <limits.h>

typedef struct treadle_rl_text {
  treadle_tokenizer *tokenizer; /* NULL: there is none */
  treadle_chat *chat;           /* its template; NULL: there is none */
  char companions[PATH_MAX];    /* the folder that has them */
} treadle_rl_text;

/* The tokenizer and the chat template, where there are any: those that the settings name, else of model_path. */
treadle_status treadle_rl_open_text(treadle_rl_text *text, const treadle_train_settings *settings,
                                    const char *model_path);
void treadle_rl_text_close(treadle_rl_text *text);

#endif

/* The tokenizer and the chat template that options name: of --tokenizer, or of the model's folder. One of `model` and `tokenizer` may be NULL: not
 * given. */
#ifndef TREADLE_CLI_OPEN_TEXT_H
#define TREADLE_CLI_OPEN_TEXT_H

#include "base/status.h"
#include "treadle_builtin.h"

/* --tokenizer, else that of --model. */
treadle_status treadle_open_tokenizer(const char *model, const char *tokenizer,
                                      treadle_tokenizer **tokenizer_p);
/* That of --model, else that which lies beside the file of --tokenizer. */
treadle_status treadle_open_chat(const char *model, const char *tokenizer, treadle_chat **chat_p);
/* The same, where there may be none: then it is NULL. */
treadle_status treadle_find_chat(const char *model, const char *tokenizer, treadle_chat **chat_p);

#endif

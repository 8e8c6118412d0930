/* The tokenizer and the chat template that options name: of --tokenizer, or of the model's folder. */
#ifndef TREADLE_CLI_OPEN_TEXT_H
#define TREADLE_CLI_OPEN_TEXT_H

#include "cli/cli.h"
#include "treadle_builtin.h"

/* --tokenizer, else that of --model. */
treadle_status treadle_open_tokenizer(const treadle_arguments *arguments, treadle_tokenizer **tokenizer_p);
/* That of --model, else that which lies beside the file of --tokenizer. */
treadle_status treadle_open_chat(const treadle_arguments *arguments, treadle_chat **chat_p);
/* The same, where there may be none: then it is NULL. */
treadle_status treadle_find_chat(const treadle_arguments *arguments, treadle_chat **chat_p);

#endif

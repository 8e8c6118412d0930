/* Texts and chats as rows to train on: which tokens there are, and which of them count. */
#ifndef TREADLE_SFT_ROWS_TEXT_H
#define TREADLE_SFT_ROWS_TEXT_H

#include "treadle_loop.h"

#include "base/arena.h"

#include <jansson.h>

/* A row while it is read: ids [count], and mask [count], which says which of them count. */
typedef struct treadle_sft_row {
  const int32_t *ids;
  const uint8_t *mask;
  size_t count;
} treadle_sft_row;

typedef struct treadle_row_source {
  const treadle_train_rows_spec *spec;
  const char *name; /* "FILE: line 7", for messages */
  json_t *object;
  treadle_arena *arena; /* of the tokens */
} treadle_row_source;

/* Refused: there is none. */
treadle_status treadle_row_need_tokenizer(const treadle_row_source *source);
/* {text}: all tokens but the first count. */
treadle_status treadle_row_read_text(const treadle_row_source *source, treadle_sft_row *row);
/* {prompt, response}: the response's tokens count, and the end token behind them. A prompt is a text, which is a message of the user where
 * there is a chat template, or a list of messages. */
treadle_status treadle_row_read_response(const treadle_row_source *source, treadle_sft_row *row);
/* {messages}: what assistants say counts, up to their end token. */
treadle_status treadle_row_read_messages(const treadle_row_source *source, treadle_sft_row *row);

#endif

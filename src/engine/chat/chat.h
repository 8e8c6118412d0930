/* Chats: the chat template of a model with its special tokens, and messages made ready for it as transformers does.
 *
 * treadle_chat_open and treadle_chat_close are public (include/treadle_builtin.h). */
#ifndef TREADLE_CHAT_CHAT_H
#define TREADLE_CHAT_CHAT_H

#include "jinja/jinja.h"
#include "treadle_builtin.h"

/* As treadle_chat_render, with what the model wrote: the ranges of {% generation %} (released by the caller). */
treadle_status treadle_chat_render_spans(const treadle_chat *chat, const char *messages,
                                         const treadle_chat_options *options, char **text_p,
                                         size_t *bytes_p, treadle_jinja_spans *spans_p);

/* ---- Messages (chat_messages.c) -------------------------------------------------------------------- */

/* Checks the list and makes it what templates see: keys that are null are dropped; what the model thought has the names
 * reasoning_content and thinking. */
treadle_status treadle_chat_prepare(json_t *messages);

/* The last message is to be continued: its text gets a tag, whose place in the rendering is where the rendering ends.
 * *content_p is the text without the tag, freed by treadle_free(). */
treadle_status treadle_chat_mark_end(json_t *messages, char **content_p);
/* Cuts the rendering at the tag. Refused: the text or the tag is not there. */
treadle_status treadle_chat_cut(char *text, size_t *bytes_p, const char *content);

#endif

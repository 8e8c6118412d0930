/* A chat: its templates and special tokens, which chat_open.c finds and chat.c renders. */
#ifndef TREADLE_CHAT_CHAT_PARTS_H
#define TREADLE_CHAT_CHAT_PARTS_H

#include "chat/chat.h"

typedef struct treadle_chat_template {
  char *name;
  treadle_jinja_template *template;
} treadle_chat_template;

struct treadle_chat {
  TREADLE_ARRAY(treadle_chat_template) templates;
  json_t *tokens; /* special tokens: an object of texts */
};

#endif

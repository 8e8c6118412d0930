/* What the files of real models' checkers say to each other. */
#ifndef TREADLE_TESTS_GOLDEN_REAL_H
#define TREADLE_TESTS_GOLDEN_REAL_H

#include "golden_support/golden_engine.h"
#include "treadle_builtin.h"

/* The tokenizer and the template of a model. */
typedef struct golden_speech {
  treadle_tokenizer *tokenizer; /* NULL: there is none */
  treadle_chat *chat;           /* NULL: there is none */
  bool begins;                  /* ids begin with a token that is not in the text: files of llama2.c */
} golden_speech;

/* Of a folder, or of the one above it: a *.bin lies there. */
void golden_speech_open(golden_speech *speech, const char *folder);
void golden_speech_close(golden_speech *speech);

/* Is `text` what the template makes of a user's message? */
bool golden_speech_asks(const golden_speech *speech, const json_t *user, const json_t *text);
/* Does `text` have the ids of a list? */
bool golden_speech_encodes(const golden_speech *speech, const json_t *text, const json_t *ids);
/* Is `text` what ids add to those before them? */
bool golden_speech_decodes(const golden_speech *speech, const golden_tokens *ids, size_t before,
                           const json_t *text);

#endif

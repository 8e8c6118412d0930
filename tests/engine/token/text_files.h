/* Tokenizers that tests write themselves. */
#ifndef TREADLE_TESTS_TEXT_FILES_H
#define TREADLE_TESTS_TEXT_FILES_H

#include "treadle_builtin.h"

/* Writes a file of the folder. */
void text_write(const char *folder, const char *name, const void *bytes, size_t count);
/* Opens a tokenizer.json of these bytes, by way of a file; the status is the library's. */
treadle_status text_open(const char *json, size_t bytes, treadle_tokenizer **tokenizer_p);
/* The same, which must work. ' stands for " in the text. */
treadle_tokenizer *text_must_open(const char *json);
/* Encodes, and compares with ids as text: "1 2 3". */
void text_expect(const treadle_tokenizer *tokenizer, const char *text, bool special, const char *ids);
/* Decodes ids given as text, and compares. */
void text_expect_back(const treadle_tokenizer *tokenizer, const char *ids, bool special, const char *text);
/* A file of llama2.c: 259 tokens as they must be, then `count` more with scores -0, -1, ... */
size_t text_make_bin(char *to, size_t room, const char *const *tokens, int count);

#endif

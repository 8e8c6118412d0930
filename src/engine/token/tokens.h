/* A vocabulary: tokens by id and by text. Ids may have gaps. No text and no id is there twice. */
#ifndef TREADLE_TOKEN_TOKENS_H
#define TREADLE_TOKEN_TOKENS_H

#include "base/arena.h"
#include "base/hash_index.h"

#include <stdbool.h>

typedef struct treadle_token {
  const char *text; /* NULL: no token has this id */
  size_t bytes;
} treadle_token;

/* A zeroed struct is an empty vocabulary. */
typedef struct treadle_tokens {
  treadle_arena arena; /* texts */
  treadle_token *items;
  int32_t count;  /* one more than the largest id */
  int32_t filled; /* how many ids have a token */
  int32_t room;
  treadle_hash_index by_text;
} treadle_tokens;

/* Room for ids below `count`, in which `filled` will have tokens. */
treadle_status treadle_tokens_reserve(treadle_tokens *tokens, int32_t count, int32_t filled);
/* Copies the text. Refused: an id or a text that is there, an id of TREADLE_MAX_TOKENS or more. */
treadle_status treadle_tokens_put(treadle_tokens *tokens, int64_t id, const char *text, size_t bytes);
int32_t treadle_tokens_find(const treadle_tokens *tokens, const char *text, size_t bytes); /* -1: none */
bool treadle_tokens_has(const treadle_tokens *tokens, int64_t id);
void treadle_tokens_release(treadle_tokens *tokens);

#endif

/* A vocabulary is found by a hash of the text; the text found is compared, too. */
#include "token/tokens.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/limits.h"

#include <string.h>

enum { MOST_QUOTED = 80 }; /* bytes of a text in a message */

treadle_status treadle_tokens_reserve(treadle_tokens *tokens, int32_t count, int32_t filled) {
  treadle_status status;
  TRY(treadle_hash_index_reserve(&tokens->by_text, (size_t)filled));
  if (count <= tokens->room) return TREADLE_OK;
  treadle_token *items = treadle_alloc_array((size_t)count, sizeof *items);
  if (!items) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d tokens", (int)count);
  if (tokens->count) memcpy(items, tokens->items, (size_t)tokens->count * sizeof *items);
  treadle_free(tokens->items);
  tokens->items = items;
  tokens->room = count;
out:
  return status;
}

static int quoted(size_t bytes) { return bytes < MOST_QUOTED ? (int)bytes : MOST_QUOTED; }

treadle_status treadle_tokens_put(treadle_tokens *tokens, int64_t id, const char *text, size_t bytes) {
  treadle_status status;
  int32_t number;
  if (id < 0 || id >= TREADLE_MAX_TOKENS)
    REFUSE("token '%.*s' has the id %lld; ids are from 0 to %d", quoted(bytes), text, (long long)id,
           TREADLE_MAX_TOKENS - 1);
  if (treadle_tokens_has(tokens, id))
    REFUSE("id %lld is that of two tokens: '%.*s' and '%.*s'", (long long)id,
           quoted(tokens->items[id].bytes), tokens->items[id].text, quoted(bytes), text);
  if (id >= tokens->room) {
    int64_t room = id + id / 2 + 64;
    TRY(treadle_tokens_reserve(tokens, (int32_t)room, 0));
  }
  TRY(treadle_hash_index_put(&tokens->by_text, treadle_hash_bytes(text, bytes, 0), (int32_t)id, &number));
  if (number != id)
    REFUSE("token '%.*s' has two ids: %d and %lld", quoted(bytes), text, (int)number, (long long)id);
  char *copy = treadle_arena_alloc(&tokens->arena, bytes + 1);
  if (!copy) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the text of a token");
  if (bytes) memcpy(copy, text, bytes);
  tokens->items[id] = (treadle_token){copy, bytes};
  tokens->filled++;
  if (id >= tokens->count) tokens->count = (int32_t)id + 1;
out:
  return status;
}

int32_t treadle_tokens_find(const treadle_tokens *tokens, const char *text, size_t bytes) {
  int32_t id = treadle_hash_index_find(&tokens->by_text, treadle_hash_bytes(text, bytes, 0));
  if (id < 0 || tokens->items[id].bytes != bytes || memcmp(tokens->items[id].text, text, bytes) != 0)
    return -1;
  return id;
}

bool treadle_tokens_has(const treadle_tokens *tokens, int64_t id) {
  return id >= 0 && id < tokens->count && tokens->items[id].text;
}

void treadle_tokens_release(treadle_tokens *tokens) {
  treadle_arena_release(&tokens->arena);
  treadle_free(tokens->items);
  treadle_hash_index_release(&tokens->by_text);
  *tokens = (treadle_tokens){0};
}

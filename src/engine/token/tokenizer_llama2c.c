/* llama2.c's tokenizer: a number, the most bytes of a token, then for each token its score (fp32), its bytes (int32) and its text. Ids 0, 1
 * and 2 are the unknown token and the ends of a text, 3 to 258 are single bytes. A text gets a blank in front; characters without a
 * token become bytes; of two neighbours that make a token together, those whose token has the best score are merged first (run.c).
 *
 * That is a BPE whose merges are all ways to cut a token in two others, and whose ranks are the scores, best first. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = 0, BEGIN = 1, END = 2, FIRST_BYTE = 3, LEAST_TOKENS = FIRST_BYTE + 256, LONGEST = 1024 };
static const float LEAST_SCORE = -1e10f; /* run.c merges nothing that is not better */

typedef struct scored {
  float score;
  int32_t id;
} scored;

typedef TREADLE_ARRAY(scored) scores;

static int by_score(const void *a, const void *b) {
  float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
  return x > y ? -1 : x < y;
}

static int32_t int_at(const char *bytes) {
  int32_t value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

/* One token at `at`; *at_p moves behind it. */
static treadle_status read_token(treadle_tokenizer *tokenizer, const char *bytes, size_t count,
                                 size_t *at_p, scores *all) {
  treadle_status status;
  int32_t most = int_at(bytes), id = (int32_t)all->count;
  size_t at = *at_p;
  scored one = {.id = id};
  if (id >= TREADLE_MAX_TOKENS) REFUSE("there are more than %d tokens", TREADLE_MAX_TOKENS);
  if (count - at < 8) REFUSE("ends in the middle of token %d", (int)id);
  memcpy(&one.score, bytes + at, sizeof one.score);
  int32_t length = int_at(bytes + at + 4);
  at += 8;
  if (isnan(one.score)) REFUSE("token %d has no number as its score", (int)id);
  if (length < 0 || length > LONGEST)
    REFUSE("token %d has %d bytes, at most %d are taken", (int)id, (int)length, LONGEST);
  if (id >= LEAST_TOKENS && length > most)
    REFUSE("token %d has %d bytes, but the file says that none has more than %d", (int)id, (int)length,
           (int)most);
  if (count - at < (size_t)length)
    REFUSE("ends in the middle of token %d, which has %d bytes", (int)id, (int)length);
  if (treadle_unicode_valid(bytes + at, (size_t)length) != (size_t)length)
    REFUSE("token %d is not UTF-8", (int)id);
  TRY(treadle_tokens_put(&tokenizer->bpe.tokens, id, bytes + at, (size_t)length));
  TRY(treadle_array_push(all, one));
  *at_p = at + (size_t)length;
out:
  return status;
}

/* All ways to make one token of two. */
static treadle_status put_merges(treadle_tokenizer *tokenizer, int32_t id, int32_t rank) {
  const treadle_tokens *tokens = &tokenizer->bpe.tokens;
  treadle_token token = tokens->items[id];
  treadle_merge merge = {rank, id};
  treadle_status status = TREADLE_OK;
  for (size_t cut = 1; cut < token.bytes; cut++) {
    int32_t left = treadle_tokens_find(tokens, token.text, cut);
    int32_t right = left < 0 ? -1 : treadle_tokens_find(tokens, token.text + cut, token.bytes - cut);
    if (right >= 0) TRY(treadle_merges_put(&tokenizer->bpe.merges, left, right, merge));
  }
out:
  return status;
}

static treadle_status rank_merges(treadle_tokenizer *tokenizer, scores *all) {
  treadle_status status = TREADLE_OK;
  int32_t rank = 0;
  qsort(all->items, all->count, sizeof *all->items, by_score);
  for (size_t i = 0; i < all->count; i++) {
    if (i > 0 && all->items[i].score < all->items[i - 1].score) rank++;
    if (all->items[i].score > LEAST_SCORE) TRY(put_merges(tokenizer, all->items[i].id, rank));
  }
out:
  return status;
}

/* The blank in front of a text, how it is decoded, and the special tokens. */
static treadle_status set_rules(treadle_tokenizer *tokenizer) {
  treadle_status status;
  treadle_normalizer blank = {.type = TREADLE_NORMALIZE_PREPEND};
  TRY(treadle_text_bytes_add(&blank.content, " ", 1));
  TRY(treadle_array_push(&tokenizer->normalizers, blank));
  blank = (treadle_normalizer){0};
  TRY(treadle_decoders_add(&tokenizer->decoders, TREADLE_DECODE_LLAMA2C));
  TRY(treadle_array_push(&tokenizer->before, BEGIN));
  tokenizer->bpe.byte_fallback = true;
  for (int i = 0; i < 256; i++) tokenizer->bpe.byte[i] = FIRST_BYTE + i;
  tokenizer->special[TREADLE_BOS] = BEGIN;
  tokenizer->special[TREADLE_EOS] = END;
  tokenizer->special[TREADLE_UNKNOWN] = UNKNOWN;
  tokenizer->llama2c = true;
out:
  treadle_array_release(&blank.content);
  return status;
}

treadle_status treadle_tokenizer_read_llama2c(treadle_tokenizer *tokenizer, const char *bytes,
                                              size_t count) {
  treadle_status status;
  scores all = {0};
  size_t at = 4;
  if (count < at) REFUSE("has %zu bytes, which is not a tokenizer of llama2.c", count);
  if (int_at(bytes) < 1 || int_at(bytes) > LONGEST)
    REFUSE("is not a tokenizer of llama2.c: its longest token would have %d bytes", (int)int_at(bytes));
  while (at < count) TRY(read_token(tokenizer, bytes, count, &at, &all));
  if (all.count < LEAST_TOKENS)
    TRY(treadle_fail(TREADLE_REFUSED, "has %zu tokens; one of llama2.c has at least %d", all.count,
                     LEAST_TOKENS));
  TRY(rank_merges(tokenizer, &all));
  TRY(set_rules(tokenizer));
  TRY(treadle_tokenizer_settle(tokenizer));
out:
  treadle_array_release(&all);
  return status;
}

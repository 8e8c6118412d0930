/* Byte pair encoding: a word is cut into characters, and pairs are merged as long as there is a rule for one: the pair with the
 * lowest rank first, among equals the first in the word (Sennrich et al. 2016, as huggingface/tokenizers and llama2.c have it). */
#ifndef TREADLE_TOKEN_BPE_H
#define TREADLE_TOKEN_BPE_H

#include "base/array.h"
#include "token/tokens.h"
#include "token/unicode.h"

typedef struct treadle_merge {
  int32_t rank, token; /* token: what the pair becomes */
} treadle_merge;

/* Merges by the pair of ids. */
typedef struct treadle_merges {
  treadle_hash_index by_pair;
  TREADLE_ARRAY(treadle_merge) items;
} treadle_merges;

enum {
  TREADLE_BPE_NEAR = 0x180
}; /* characters below have a table: ASCII, Latin, the byte-level alphabet */

typedef struct treadle_bpe {
  treadle_tokens tokens;
  treadle_merges merges;
  int32_t byte[256];              /* byte fallback: the token of each byte, or -1 */
  int32_t near[TREADLE_BPE_NEAR]; /* tokens of single characters, without prefix and suffix, or -1 */
  bool byte_fallback, fuse_unknown, ignore_merges;
  const char *unknown;         /* a character without token becomes this one; NULL: nothing */
  const char *prefix, *suffix; /* of characters that do not begin a word; of one that ends it. "" or more */
} treadle_bpe;

typedef struct treadle_symbol {
  int32_t token, before, after; /* neighbours in the word, or -1; token -1: merged into the one before */
} treadle_symbol;

/* A merge that could be made. */
typedef struct treadle_bpe_candidate {
  uint64_t order; /* rank, then place */
  int32_t token;
} treadle_bpe_candidate;

typedef TREADLE_ARRAY(int32_t) treadle_token_ids;

/* What encoding one word needs; kept from word to word. */
typedef struct treadle_bpe_room {
  TREADLE_ARRAY(treadle_symbol) symbols;
  TREADLE_ARRAY(treadle_bpe_candidate) heap;
  treadle_text_bytes spelled; /* a character with prefix and suffix */
} treadle_bpe_room;

/* A pair that is there already gets the new merge. */
treadle_status treadle_merges_put(treadle_merges *merges, int32_t left, int32_t right, treadle_merge merge);
/* After all tokens are there: fills `near`. */
void treadle_bpe_settle(treadle_bpe *bpe);
/* Appends the ids of a word, which is valid UTF-8 of less than 2^31 bytes. Time grows as n log n. */
treadle_status treadle_bpe_encode(const treadle_bpe *bpe, treadle_bpe_room *room, const char *word,
                                  size_t bytes, treadle_token_ids *ids);
void treadle_bpe_release(treadle_bpe *bpe);
void treadle_bpe_room_release(treadle_bpe_room *room);

#endif

/* Byte pair encoding with a heap. The word is a list of symbols linked both ways; the heap has each merge that two neighbours could
 * make. A merge that is taken makes up to two new ones, and leaves those of its old neighbours behind: they are known by the pair
 * that stands there now, which makes another token or none. */
#include "token/bpe.h"

#include "base/hash.h"
#include <string.h>

/* ---- Merges ---- */

/* A bijection of pairs: two pairs never have one hash. */
static uint64_t pair_hash(int32_t left, int32_t right) {
  return treadle_mix64((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

treadle_status treadle_merges_put(treadle_merges *merges, int32_t left, int32_t right,
                                  treadle_merge merge) {
  treadle_status status;
  int32_t number;
  TRY(treadle_hash_index_put(&merges->by_pair, pair_hash(left, right), (int32_t)merges->items.count,
                             &number));
  if ((size_t)number < merges->items.count)
    merges->items.items[number] = merge;
  else
    TRY(treadle_array_push(&merges->items, merge));
out:
  return status;
}

static const treadle_merge *find_merge(const treadle_bpe *bpe, int32_t left, int32_t right) {
  int32_t number = treadle_hash_index_find(&bpe->merges.by_pair, pair_hash(left, right));
  return number < 0 ? NULL : &bpe->merges.items.items[number];
}

void treadle_bpe_settle(treadle_bpe *bpe) {
  for (uint32_t code = 0; code < TREADLE_BPE_NEAR; code++) {
    char text[4];
    bpe->near[code] = treadle_tokens_find(&bpe->tokens, text, treadle_utf8_encode(code, text));
  }
}

/* ---- The heap: the least order at the top ---- */

static treadle_status heap_push(treadle_bpe_room *room, treadle_bpe_candidate candidate) {
  treadle_status status = treadle_array_push(&room->heap, candidate);
  if (status) return status;
  treadle_bpe_candidate *heap = room->heap.items;
  size_t at = room->heap.count - 1;
  for (size_t above; at > 0 && heap[above = (at - 1) / 2].order > candidate.order; at = above)
    heap[at] = heap[above];
  heap[at] = candidate;
  return TREADLE_OK;
}

static treadle_bpe_candidate heap_pop(treadle_bpe_room *room) {
  treadle_bpe_candidate *heap = room->heap.items, top = heap[0], last = heap[--room->heap.count];
  size_t at = 0, count = room->heap.count;
  for (size_t below; (below = 2 * at + 1) < count; at = below) {
    if (below + 1 < count && heap[below + 1].order < heap[below].order) below++;
    if (heap[below].order >= last.order) break;
    heap[at] = heap[below];
  }
  if (count) heap[at] = last;
  return top;
}

/* ---- A word ---- */

static treadle_status add_symbol(treadle_bpe_room *room, int32_t token) {
  int32_t number = (int32_t)room->symbols.count;
  treadle_symbol symbol = {token, number - 1, number + 1};
  return treadle_array_push(&room->symbols, symbol);
}

/* The token of a character; -1: there is none. */
static treadle_status find_character(const treadle_bpe *bpe, treadle_bpe_room *room, const char *word,
                                     size_t bytes, size_t at, size_t length, int32_t *token_p) {
  treadle_status status = TREADLE_OK;
  size_t prefix = at > 0 ? strlen(bpe->prefix) : 0;
  size_t suffix = at + length == bytes ? strlen(bpe->suffix) : 0;
  uint32_t code;
  if (prefix == 0 && suffix == 0) {
    treadle_utf8_decode(word + at, &code);
    *token_p =
        code < TREADLE_BPE_NEAR ? bpe->near[code] : treadle_tokens_find(&bpe->tokens, word + at, length);
    return TREADLE_OK;
  }
  room->spelled.count = 0;
  TRY(treadle_text_bytes_add(&room->spelled, bpe->prefix, prefix));
  TRY(treadle_text_bytes_add(&room->spelled, word + at, length));
  TRY(treadle_text_bytes_add(&room->spelled, bpe->suffix, suffix));
  *token_p = treadle_tokens_find(&bpe->tokens, room->spelled.items, room->spelled.count);
out:
  return status;
}

/* The bytes of a character as tokens of their own; *done_p: each has one. What falls back has its prefix and suffix. */
static treadle_status fall_back(const treadle_bpe *bpe, treadle_bpe_room *room, const char *text,
                                size_t length, bool *done_p) {
  treadle_status status = TREADLE_OK;
  *done_p = bpe->byte_fallback;
  for (size_t i = 0; i < length && *done_p; i++) *done_p = bpe->byte[(unsigned char)text[i]] >= 0;
  for (size_t i = 0; i < length && *done_p; i++) TRY(add_symbol(room, bpe->byte[(unsigned char)text[i]]));
out:
  return status;
}

/* The symbols that a word begins with. Tokens of unknown characters are held back until a known one comes: that is how
 * huggingface/tokenizers fuses them, and why bytes that fall back may overtake them. */
static treadle_status cut_word(const treadle_bpe *bpe, treadle_bpe_room *room, const char *word,
                               size_t bytes) {
  treadle_status status = TREADLE_OK;
  int32_t held = -1, token;
  room->symbols.count = 0;
  for (size_t at = 0, length; at < bytes; at += length) {
    uint32_t code;
    bool done = false;
    length = treadle_utf8_decode(word + at, &code);
    TRY(find_character(bpe, room, word, bytes, at, length, &token));
    if (token >= 0) {
      if (held >= 0) TRY(add_symbol(room, held));
      held = -1;
      TRY(add_symbol(room, token));
      continue;
    }
    bool spelled = (at > 0 && *bpe->prefix) || (at + length == bytes && *bpe->suffix);
    TRY(spelled ? fall_back(bpe, room, room->spelled.items, room->spelled.count, &done)
                : fall_back(bpe, room, word + at, length, &done));
    if (done || !bpe->unknown) continue;
    if (held >= 0 && !bpe->fuse_unknown) TRY(add_symbol(room, held));
    held = treadle_tokens_find(&bpe->tokens, bpe->unknown, strlen(bpe->unknown));
    if (held < 0)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "the tokenizer has no token for U+%04X, and no '%s', which unk_token names",
                       (unsigned)code, bpe->unknown));
  }
  if (held >= 0) TRY(add_symbol(room, held));
out:
  return status;
}

static treadle_status propose(const treadle_bpe *bpe, treadle_bpe_room *room, int32_t left) {
  const treadle_symbol *symbols = room->symbols.items;
  const treadle_merge *merge = find_merge(bpe, symbols[left].token, symbols[symbols[left].after].token);
  if (!merge) return TREADLE_OK;
  treadle_bpe_candidate candidate = {(uint64_t)merge->rank << 32 | (uint32_t)left, merge->token};
  return heap_push(room, candidate);
}

static treadle_status merge_word(const treadle_bpe *bpe, treadle_bpe_room *room) {
  treadle_status status = TREADLE_OK;
  treadle_symbol *symbols = room->symbols.items;
  int32_t count = (int32_t)room->symbols.count;
  room->heap.count = 0;
  for (int32_t i = 0; i + 1 < count; i++) TRY(propose(bpe, room, i));
  while (room->heap.count > 0) {
    treadle_bpe_candidate top = heap_pop(room);
    int32_t at = (int32_t)(uint32_t)top.order;
    treadle_symbol *left = &symbols[at];
    if (left->token < 0 || left->after >= count) continue;
    treadle_symbol *right = &symbols[left->after];
    const treadle_merge *merge = find_merge(bpe, left->token, right->token);
    if (!merge || merge->token != top.token) continue;
    left->token = top.token;
    left->after = right->after;
    right->token = -1;
    if (left->after < count) symbols[left->after].before = at;
    if (left->before >= 0) TRY(propose(bpe, room, left->before));
    if (left->after < count) TRY(propose(bpe, room, at));
  }
out:
  return status;
}

treadle_status treadle_bpe_encode(const treadle_bpe *bpe, treadle_bpe_room *room, const char *word,
                                  size_t bytes, treadle_token_ids *ids) {
  treadle_status status;
  int32_t whole = bpe->ignore_merges ? treadle_tokens_find(&bpe->tokens, word, bytes) : -1;
  if (whole >= 0) return treadle_array_push(ids, whole);
  TRY(cut_word(bpe, room, word, bytes));
  TRY(merge_word(bpe, room));
  for (size_t i = 0; i < room->symbols.count; i++)
    if (room->symbols.items[i].token >= 0) TRY(treadle_array_push(ids, room->symbols.items[i].token));
out:
  return status;
}

void treadle_bpe_release(treadle_bpe *bpe) {
  treadle_tokens_release(&bpe->tokens);
  treadle_hash_index_release(&bpe->merges.by_pair);
  treadle_array_release(&bpe->merges.items);
}

void treadle_bpe_room_release(treadle_bpe_room *room) {
  treadle_array_release(&room->symbols);
  treadle_array_release(&room->heap);
  treadle_array_release(&room->spelled);
}

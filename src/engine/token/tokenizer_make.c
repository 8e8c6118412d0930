/* Making a tokenizer: what the readers of all forms of files share. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/larger.h"
#include "base/limits.h"
#include "token/fields.h"

#include <string.h>

enum { MOST_QUOTED = 80 }; /* bytes of a text in a message */

const char *const treadle_special_names[TREADLE_SPECIAL_TOKENS] = {"bos_token", "eos_token", "pad_token",
                                                                   "unk_token"};

treadle_status treadle_tokenizer_make(treadle_tokenizer **tokenizer_p) {
  treadle_tokenizer *tokenizer = treadle_alloc(sizeof *tokenizer);
  if (!tokenizer) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a tokenizer");
  tokenizer->bpe.prefix = tokenizer->bpe.suffix = "";
  for (int i = 0; i < 256; i++) tokenizer->bpe.byte[i] = -1;
  for (int i = 0; i < TREADLE_SPECIAL_TOKENS; i++) tokenizer->special[i] = -1;
  *tokenizer_p = tokenizer;
  return TREADLE_OK;
}

void treadle_tokenizer_close(treadle_tokenizer *tokenizer) {
  if (!tokenizer) return;
  treadle_bpe_release(&tokenizer->bpe);
  treadle_added_release(&tokenizer->added);
  treadle_normalizers_release(&tokenizer->normalizers);
  treadle_splitters_release(&tokenizer->splitters);
  treadle_decoders_release(&tokenizer->decoders);
  treadle_array_release(&tokenizer->before);
  treadle_array_release(&tokenizer->behind);
  treadle_free(tokenizer);
}

static treadle_status put_token(treadle_tokenizer *tokenizer, int64_t id, const char *text) {
  treadle_text_bytes whole = {0}; /* only of one with a zero character */
  size_t bytes = strlen(text);
  treadle_status status = TREADLE_OK;
  if (strstr(text, TREADLE_JSON_ZERO)) {
    TRY(treadle_text_bytes_add(&whole, text, bytes));
    bytes = treadle_json_key(text, whole.items);
    text = whole.items;
  }
  TRY(treadle_tokens_put(&tokenizer->bpe.tokens, id, text, bytes));
out:
  treadle_array_release(&whole);
  return status;
}

treadle_status treadle_tokenizer_read_vocabulary(treadle_tokenizer *tokenizer, json_t *vocabulary) {
  treadle_status status;
  const char *text;
  json_t *id;
  int64_t largest = -1;
  size_t count = json_object_size(vocabulary);
  if (!treadle_json_is_object(vocabulary)) REFUSE("the vocabulary is not an object");
  if (count == 0) REFUSE("the vocabulary is empty");
  if (count > TREADLE_MAX_TOKENS)
    REFUSE("the vocabulary has %zu tokens, at most %d are taken", count, TREADLE_MAX_TOKENS);
  for (void *at = json_object_iter(vocabulary); at; at = json_object_iter_next(vocabulary, at)) {
    text = json_object_iter_key(at);
    id = json_object_iter_value(at);
    if (!json_is_integer(id))
      REFUSE("the id of token '%.80s' is not a whole number%s", text, treadle_json_note(id));
    if (json_integer_value(id) > largest) largest = json_integer_value(id);
  }
  if (largest < TREADLE_MAX_TOKENS)
    TRY(treadle_tokens_reserve(&tokenizer->bpe.tokens, (int32_t)largest + 1, (int32_t)count));
  for (void *at = json_object_iter(vocabulary); at; at = json_object_iter_next(vocabulary, at)) {
    text = json_object_iter_key(at);
    TRY(put_token(tokenizer, json_integer_value(json_object_iter_value(at)), text));
  }
out:
  return status;
}

static int32_t find(const treadle_tokenizer *tokenizer, const char *text, size_t bytes) {
  return treadle_tokens_find(&tokenizer->bpe.tokens, text, bytes);
}

static treadle_status refuse_merge(int32_t rank, const char *text, size_t bytes) {
  REFUSE("merge %d needs the token '%.*s', which the vocabulary does not have", (int)rank,
         bytes < MOST_QUOTED ? (int)bytes : MOST_QUOTED, text);
}

treadle_status treadle_tokenizer_put_merge(treadle_tokenizer *tokenizer, int32_t rank, const char *left,
                                           size_t left_bytes, const char *right, size_t right_bytes) {
  treadle_status status;
  size_t prefix = strlen(tokenizer->bpe.prefix);
  treadle_text_bytes both = {0};
  int32_t left_id = find(tokenizer, left, left_bytes), right_id = find(tokenizer, right, right_bytes);
  if (left_id < 0) return refuse_merge(rank, left, left_bytes);
  if (right_id < 0) return refuse_merge(rank, right, right_bytes);
  if (right_bytes < prefix)
    REFUSE("merge %d: '%.*s' is shorter than continuing_subword_prefix", (int)rank, (int)right_bytes,
           right);
  TRY(treadle_text_bytes_add(&both, left, left_bytes));
  TRY(treadle_text_bytes_add(&both, right + prefix, right_bytes - prefix));
  treadle_merge merge = {rank, find(tokenizer, both.items, both.count)};
  TRY(merge.token < 0 ? refuse_merge(rank, both.items, both.count)
                      : treadle_merges_put(&tokenizer->bpe.merges, left_id, right_id, merge));
out:
  treadle_array_release(&both);
  return status;
}

void treadle_tokenizer_find_bytes(treadle_tokenizer *tokenizer) {
  static const char digits[] = "0123456789ABCDEF";
  for (int i = 0; i < 256; i++) {
    const char text[] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>'};
    tokenizer->bpe.byte[i] = find(tokenizer, text, sizeof text);
  }
}

/* ---- Added tokens ---- */

treadle_status treadle_tokenizer_read_flags(const json_t *json, treadle_added_token *flags_p) {
  treadle_status status;
  TRY(treadle_field_bool(json, "special", false, &flags_p->special));
  TRY(treadle_field_bool(json, "single_word", false, &flags_p->single_word));
  TRY(treadle_field_bool(json, "lstrip", false, &flags_p->lstrip));
  TRY(treadle_field_bool(json, "rstrip", false, &flags_p->rstrip));
  TRY(treadle_field_bool(json, "normalized", !flags_p->special, &flags_p->normalized));
out:
  return status;
}

/* The id that the tokenizers library gives: that of the same text; else the one behind the vocabulary and all added ones. */
static int64_t next_id(const treadle_tokenizer *tokenizer, const char *text, size_t bytes) {
  int32_t id = treadle_tokenizer_id(tokenizer, text, bytes);
  if (id >= 0) return id;
  int64_t next = tokenizer->bpe.tokens.filled;
  return tokenizer->next > next ? tokenizer->next : next;
}

/* What a token that is normalized looks like in a text that is. */
static treadle_status normalize(const treadle_tokenizer *tokenizer, treadle_text_bytes *form) {
  treadle_regex_room *room = NULL;
  treadle_text_bytes spare = {0};
  treadle_status status;
  TRY(treadle_regex_room_create(&room));
  TRY(treadle_normalizers_run(&tokenizer->normalizers, room, form, &spare));
out:
  treadle_array_release(&spare);
  treadle_regex_room_destroy(room);
  return status;
}

treadle_status treadle_tokenizer_put_added(treadle_tokenizer *tokenizer, const char *text, int64_t id,
                                           treadle_added_token flags) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes whole = {0}, form = {0};
  size_t bytes = strlen(text);
  if (bytes == 0) return TREADLE_OK; /* the library passes them over */
  int64_t own = next_id(tokenizer, text, bytes);
  if (id >= 0 && own != id)
    REFUSE(
        "added token '%.80s' has the id %lld, but by the vocabulary and the tokens before it would be %lld",
        text, (long long)id, (long long)own);
  if (own >= TREADLE_MAX_TOKENS)
    REFUSE("added token '%.80s' has the id %lld; ids are below %d", text, (long long)own,
           TREADLE_MAX_TOKENS);
  if (treadle_tokens_has(&tokenizer->bpe.tokens, own) && find(tokenizer, text, bytes) != own)
    REFUSE("id %lld is that of two tokens: '%.80s' and '%.80s'", (long long)own,
           tokenizer->bpe.tokens.items[own].text, text);
  TRY(treadle_text_bytes_add(&whole, text, bytes));
  TRY(treadle_text_bytes_add(&form, text, bytes));
  if (flags.normalized && tokenizer->normalizers.count) TRY(normalize(tokenizer, &form));
  flags.id = (int32_t)own;
  flags.text = whole.items;
  flags.bytes = whole.count;
  flags.form = form.items;
  flags.form_bytes = form.count;
  TRY(treadle_added_put(&tokenizer->added, flags));
  if (own >= tokenizer->next && own >= tokenizer->bpe.tokens.filled) tokenizer->next = (int32_t)own + 1;
out:
  treadle_array_release(&whole);
  treadle_array_release(&form);
  return status;
}

treadle_status treadle_tokenizer_settle(treadle_tokenizer *tokenizer) {
  tokenizer->count = (int32_t)treadle_larger(tokenizer->next, tokenizer->bpe.tokens.count);
  treadle_bpe_settle(&tokenizer->bpe);
  return treadle_added_settle(&tokenizer->added);
}

/* ---- Texts and ids ---- */

int32_t treadle_tokenizer_own_count(const treadle_tokenizer *tokenizer) {
  return tokenizer->own_count ? tokenizer->own_count : tokenizer->count;
}

int32_t treadle_tokenizer_id(const treadle_tokenizer *tokenizer, const char *text, size_t bytes) {
  const treadle_added_token *added = treadle_added_find(&tokenizer->added, text, bytes);
  return added ? added->id : find(tokenizer, text, bytes);
}

bool treadle_tokenizer_form(const treadle_tokenizer *tokenizer, int32_t id, treadle_token *form_p,
                            bool *special_p) {
  const treadle_added_token *added = treadle_added_get(&tokenizer->added, id);
  *special_p = tokenizer->llama2c && id < TREADLE_LLAMA2C_SPECIAL;
  if (added) {
    bool same = added->form_bytes == added->bytes && memcmp(added->form, added->text, added->bytes) == 0;
    *special_p = added->special && same; /* the library knows special tokens by their text */
    *form_p = (treadle_token){added->form, added->form_bytes};
    return true;
  }
  if (!treadle_tokens_has(&tokenizer->bpe.tokens, id)) return false;
  *form_p = tokenizer->bpe.tokens.items[id];
  return true;
}

treadle_status treadle_tokenizer_check_id(const treadle_tokenizer *tokenizer, int32_t id) {
  if (id < 0 || id >= tokenizer->count)
    REFUSE("%d is not an id of this tokenizer: ids are from 0 to %d", (int)id, (int)tokenizer->count - 1);
  if (!treadle_added_get(&tokenizer->added, id) && !treadle_tokens_has(&tokenizer->bpe.tokens, id))
    REFUSE("the tokenizer has no token with the id %d", (int)id);
  return TREADLE_OK;
}

/* ---- Special tokens ---- */

treadle_status treadle_tokenizer_special_text(const json_t *config, const char *name, const char **text_p) {
  const json_t *value = json_object_get(config, name);
  if (!treadle_json_is_object(value)) return treadle_field_text(config, name, text_p);
  treadle_status status = treadle_field_text(value, "content", text_p);
  return status ? treadle_fail_in(status, "%s: ", name) : TREADLE_OK;
}

treadle_status treadle_tokenizer_read_special(treadle_tokenizer *tokenizer, const json_t *config) {
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < TREADLE_SPECIAL_TOKENS; i++) {
    const char *text;
    TRY(treadle_tokenizer_special_text(config, treadle_special_names[i], &text));
    if (text) tokenizer->special[i] = treadle_tokenizer_id(tokenizer, text, strlen(text));
  }
out:
  return status;
}

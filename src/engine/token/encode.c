/* From text to ids. A text falls into added tokens and sections between them. A section is normalized; it falls again, into added tokens
 * that are normalized and what is between those; and that is cut into words, whose tokens are appended. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/limits.h"

#include <string.h>

typedef struct encoder {
  const treadle_tokenizer *tokenizer;
  treadle_splitter_room splitter; /* with the room for patterns */
  treadle_text_words words;
  treadle_text_bytes section, spare;
  treadle_bpe_room bpe;
  treadle_token_ids ids;
} encoder;

static void encoder_release(encoder *e) {
  treadle_regex_room_destroy(e->splitter.regex);
  treadle_text_words_release(&e->splitter.next);
  treadle_array_release(&e->splitter.cuts);
  treadle_text_words_release(&e->words);
  treadle_array_release(&e->section);
  treadle_array_release(&e->spare);
  treadle_bpe_room_release(&e->bpe);
  treadle_array_release(&e->ids);
}

/* What lies between added tokens; `first`: at the start of all. */
static treadle_status encode_words(encoder *e, const char *text, size_t bytes, bool first) {
  treadle_text_word all = {0, bytes, first};
  treadle_status status;
  if (bytes == 0) return TREADLE_OK;
  e->words.text.count = e->words.items.count = 0;
  TRY(treadle_text_bytes_add(&e->words.text, text, bytes));
  TRY(treadle_array_push(&e->words.items, all));
  TRY(treadle_splitters_run(&e->tokenizer->splitters, &e->splitter, &e->words));
  for (size_t i = 0; i < e->words.items.count; i++) {
    const treadle_text_word *word = &e->words.items.items[i];
    TRY(treadle_bpe_encode(&e->tokenizer->bpe, &e->bpe, e->words.text.items + word->start, word->bytes,
                           &e->ids));
  }
out:
  return status;
}

static treadle_status encode_section(encoder *e, const char *text, size_t bytes, bool first) {
  const treadle_added_tokens *added = &e->tokenizer->added;
  treadle_status status;
  size_t from = 0, done = 0;
  e->section.count = 0;
  TRY(treadle_text_bytes_add(&e->section, text, bytes));
  TRY(treadle_normalizers_run(&e->tokenizer->normalizers, e->splitter.regex, &e->section, &e->spare));
  for (;;) {
    const char *section = e->section.items;
    treadle_added_match match =
        treadle_added_next(added, &added->after, section, e->section.count, done, &from);
    if (match.start > done) TRY(encode_words(e, section + done, match.start - done, first && done == 0));
    if (!match.token) break;
    if (match.start < match.end)
      TRY(treadle_array_push(&e->ids, match.token->id)); /* else one before has all of it */
    done = match.end;
  }
out:
  return status;
}

static treadle_status encode_all(encoder *e, const char *text, size_t bytes) {
  const treadle_added_tokens *added = &e->tokenizer->added;
  treadle_status status = TREADLE_OK;
  size_t from = 0, done = 0;
  for (;;) {
    treadle_added_match match = treadle_added_next(added, &added->before, text, bytes, done, &from);
    if (match.start > done) TRY(encode_section(e, text + done, match.start - done, done == 0));
    if (!match.token) break;
    if (match.start < match.end)
      TRY(treadle_array_push(&e->ids, match.token->id)); /* else one before has all of it */
    done = match.end;
  }
out:
  return status;
}

static treadle_status push_all(treadle_token_ids *ids, const treadle_token_ids *more) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < more->count; i++) TRY(treadle_array_push(ids, more->items[i]));
out:
  return status;
}

static treadle_status check_text(const char *text, size_t bytes) {
  if (bytes > TREADLE_MAX_TEXT_BYTES)
    REFUSE("the text has %zu bytes, at most %d are encoded at once", bytes, TREADLE_MAX_TEXT_BYTES);
  size_t valid = treadle_unicode_valid(text, bytes);
  if (valid < bytes)
    REFUSE("the text is not UTF-8: byte %zu is 0x%02x", valid, (unsigned)(unsigned char)text[valid]);
  return TREADLE_OK;
}

treadle_status treadle_tokenizer_encode(const treadle_tokenizer *tokenizer, const char *text, size_t bytes,
                                        bool special, int32_t **ids_p, size_t *count_p) {
  TREADLE_NEED(ids_p);
  *ids_p = NULL;
  TREADLE_NEED(count_p);
  *count_p = 0;
  TREADLE_NEED(tokenizer);
  if (bytes) TREADLE_NEED(text);
  encoder e = {.tokenizer = tokenizer};
  treadle_status status;
  TRY(check_text(text, bytes));
  TRY(treadle_regex_room_create(&e.splitter.regex));
  if (special) TRY(push_all(&e.ids, &tokenizer->before));
  TRY(encode_all(&e, text, bytes));
  if (special) TRY(push_all(&e.ids, &tokenizer->behind));
  if (!e.ids.items) e.ids.items = treadle_alloc(sizeof *e.ids.items); /* no ids are no NULL */
  if (!e.ids.items) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for ids"));
  *ids_p = e.ids.items;
  *count_p = e.ids.count;
  e.ids.items = NULL;
out:
  encoder_release(&e);
  return status;
}

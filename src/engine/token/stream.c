/* Text of tokens that come one by one. Each gives bytes: what the decoders make of it alone. The bytes are kept until they make characters.
 *
 * A decoder that joins bytes at once (ByteFallback) gives U+FFFD for each byte of a run that is not UTF-8; here it is one for what begins
 * like a character, since what is complete has been given away. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <string.h>

struct treadle_text_stream {
  const treadle_tokenizer *tokenizer;
  treadle_regex_room *room;
  bool special; /* special tokens give their text */
  bool begun;   /* a token has given its text */
  bool ended;
  size_t fuse;   /* the step after which all texts are one; steps behind it work on the whole */
  int64_t strip; /* how many characters Strip, behind that step, may still take from the start */
  uint32_t strip_code;
  treadle_text_bytes bytes;     /* of characters that are not complete */
  treadle_text_bytes now, next; /* one token on its way through the steps */
  treadle_text_bytes text;      /* what is given away */
};

/* Steps that work on all texts at once can be followed by one Strip at the start. */
static treadle_status check_steps(treadle_text_stream *stream) {
  const treadle_decoders *steps = &stream->tokenizer->decoders;
  stream->fuse = steps->count;
  for (size_t i = 0; i < steps->count; i++) {
    const treadle_decoder *step = &steps->items[i];
    bool joins = step->type == TREADLE_DECODE_FUSE || step->type == TREADLE_DECODE_BYTE_LEVEL;
    if (stream->fuse == steps->count) {
      if (joins) stream->fuse = i;
      continue;
    }
    if (joins || step->type == TREADLE_DECODE_BYTE_FALLBACK) continue;
    if (step->type != TREADLE_DECODE_STRIP || step->stop > 0 || stream->strip > 0)
      REFUSE("a decoder that changes the whole text behind its begin cannot work token by token");
    stream->strip = step->start;
    stream->strip_code = step->code;
  }
  return TREADLE_OK;
}

treadle_status treadle_text_stream_create(const treadle_tokenizer *tokenizer, bool special,
                                          treadle_text_stream **stream_p) {
  TREADLE_NEED(stream_p);
  *stream_p = NULL;
  TREADLE_NEED(tokenizer);
  treadle_status status;
  treadle_text_stream *stream = treadle_alloc(sizeof *stream);
  if (!stream) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a stream of text");
  stream->tokenizer = tokenizer;
  stream->special = special;
  TRY(check_steps(stream));
  TRY(treadle_regex_room_create(&stream->room));
  *stream_p = stream;
  stream = NULL;
out:
  treadle_text_stream_destroy(stream);
  return status;
}

void treadle_text_stream_destroy(treadle_text_stream *stream) {
  if (!stream) return;
  treadle_regex_room_destroy(stream->room);
  treadle_array_release(&stream->bytes);
  treadle_array_release(&stream->now);
  treadle_array_release(&stream->next);
  treadle_array_release(&stream->text);
  treadle_free(stream);
}

/* A step on one token: stream->now becomes what it makes of it. A byte stays one. */
static treadle_status run_step(treadle_text_stream *stream, const treadle_decoder *step, bool *is_byte) {
  treadle_text_bytes *now = &stream->now, *next = &stream->next;
  unsigned char byte;
  treadle_status status = TREADLE_OK;
  next->count = 0;
  if (*is_byte) return TREADLE_OK;
  switch (step->type) {
  case TREADLE_DECODE_FUSE: return TREADLE_OK;
  case TREADLE_DECODE_BYTE_FALLBACK:
    if (!treadle_decode_byte(now->items, now->count, &byte)) return TREADLE_OK;
    *is_byte = true;
    TRY(treadle_text_bytes_add(next, (const char *)&byte, 1));
    break;
  case TREADLE_DECODE_BYTE_LEVEL:
    *is_byte = true;
    TRY(treadle_decode_byte_level(now->items, now->count, next));
    break;
  case TREADLE_DECODE_LLAMA2C:
    TRY(treadle_decode_llama2c(!stream->begun, now->items, now->count, next));
    break;
  case TREADLE_DECODE_METASPACE:
    TRY(treadle_decode_metaspace(step, !stream->begun, now->items, now->count, next));
    break;
  case TREADLE_DECODE_STRIP: TRY(treadle_decode_strip(step, now->items, now->count, next)); break;
  case TREADLE_DECODE_REPLACE:
    TRY(treadle_decode_replace(step, stream->room, now->items, now->count, next));
    break;
  }
  treadle_text_bytes made = *next;
  *next = *now;
  *now = made;
out:
  return status;
}

/* Takes characters away from the start of the whole text that Strip takes. */
static void strip_begin(treadle_text_stream *stream) {
  size_t at = 0;
  while (stream->strip > 0 && at < stream->text.count) {
    uint32_t code;
    size_t length = treadle_utf8_decode(stream->text.items + at, &code);
    bool same = code == stream->strip_code;
    stream->strip = same ? stream->strip - 1 : 0;
    if (same) at += length;
  }
  if (at == 0) return;
  memmove(stream->text.items, stream->text.items + at, stream->text.count - at);
  stream->text.count -= at;
}

/* Gives away the characters that are complete, or all. */
static treadle_status give(treadle_text_stream *stream, bool all, const char **text_p, size_t *bytes_p) {
  treadle_text_bytes *bytes = &stream->bytes;
  treadle_status status;
  size_t used;
  stream->text.count = 0;
  TRY(treadle_unicode_complete(&stream->text, bytes->items, bytes->count, all, &used));
  if (used) memmove(bytes->items, bytes->items + used, bytes->count - used);
  bytes->count -= used;
  strip_begin(stream);
  *bytes_p = stream->text.count;
  TRY(treadle_text_bytes_add(&stream->text, "", 1));
  *text_p = stream->text.items;
out:
  return status;
}

static treadle_status add_token(treadle_text_stream *stream, const treadle_token *form) {
  const treadle_decoders *steps = &stream->tokenizer->decoders;
  treadle_status status;
  bool is_byte = false;
  stream->now.count = 0;
  if (steps->count == 0 && stream->begun) TRY(treadle_text_bytes_add(&stream->now, " ", 1));
  TRY(treadle_text_bytes_add(&stream->now, form->text, form->bytes));
  for (size_t i = 0; i < steps->count && i <= stream->fuse; i++)
    TRY(run_step(stream, &steps->items[i], &is_byte));
  TRY(treadle_text_bytes_add(&stream->bytes, stream->now.items, stream->now.count));
  stream->begun = true;
out:
  return status;
}

treadle_status treadle_text_stream_put(treadle_text_stream *stream, int32_t id, const char **text_p,
                                       size_t *bytes_p) {
  TREADLE_NEED(text_p);
  *text_p = NULL;
  TREADLE_NEED(bytes_p);
  *bytes_p = 0;
  TREADLE_NEED(stream);
  if (stream->ended) return treadle_fail(TREADLE_STATE, "the stream of text has ended");
  const treadle_tokenizer *tokenizer = stream->tokenizer;
  treadle_status status;
  treadle_token form;
  bool special;
  treadle_regex_room_begin(stream->room);
  TRY(treadle_tokenizer_check_id(tokenizer, id));
  treadle_tokenizer_form(tokenizer, id, &form, &special);
  bool begin = tokenizer->llama2c && id == tokenizer->special[TREADLE_BOS] && !stream->begun;
  if (!begin && (stream->special || !special)) TRY(add_token(stream, &form));
  TRY(give(stream, false, text_p, bytes_p));
out:
  return status;
}

treadle_status treadle_text_stream_end(treadle_text_stream *stream, const char **text_p, size_t *bytes_p) {
  TREADLE_NEED(text_p);
  *text_p = NULL;
  TREADLE_NEED(bytes_p);
  *bytes_p = 0;
  TREADLE_NEED(stream);
  if (stream->ended) return treadle_fail(TREADLE_STATE, "the stream of text has ended");
  treadle_status status = give(stream, true, text_p, bytes_p);
  stream->ended = status == TREADLE_OK;
  return status;
}

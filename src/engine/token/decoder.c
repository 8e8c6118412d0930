/* Decoding: a list of texts goes from step to step. */
#include "token/decoder.h"

#include "base/limits.h"
#include "token/normalizer.h"

#include <string.h>

treadle_status treadle_text_list_add(treadle_text_list *list, const char *text, size_t bytes) {
  treadle_status status;
  TRY(treadle_text_bytes_add(&list->text, text, bytes));
  TRY(treadle_array_push(&list->ends, list->text.count));
out:
  return status;
}

/* What was appended to the text since the last end is a text of its own. */
static treadle_status end_text(treadle_text_list *list) {
  return treadle_array_push(&list->ends, list->text.count);
}

void treadle_text_list_release(treadle_text_list *list) {
  treadle_array_release(&list->text);
  treadle_array_release(&list->ends);
}

/* ---- One text ---- */

static int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

bool treadle_decode_byte(const char *text, size_t bytes, unsigned char *byte_p) {
  if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return false;
  int high = text[3] == '+' ? 0 : hex_digit(text[3]), low = hex_digit(text[4]); /* Rust reads a + as well */
  if (high < 0 || low < 0) return false;
  *byte_p = (unsigned char)(high * 16 + low);
  return true;
}

treadle_status treadle_decode_byte_level(const char *text, size_t bytes, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  size_t begin = to->count;
  for (size_t at = 0; at < bytes;) {
    uint32_t code;
    at += treadle_utf8_decode(text + at, &code);
    int byte = treadle_byte_level_byte(code);
    if (byte < 0) {
      to->count = begin;
      return treadle_text_bytes_add(to, text, bytes);
    }
    char one = (char)byte;
    TRY(treadle_text_bytes_add(to, &one, 1));
  }
out:
  return status;
}

treadle_status treadle_decode_metaspace(const treadle_decoder *step, bool first, const char *text,
                                        size_t bytes, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  for (size_t at = 0, length; at < bytes; at += length) {
    uint32_t code;
    length = treadle_utf8_decode(text + at, &code);
    if (code != step->code)
      TRY(treadle_text_bytes_add(to, text + at, length));
    else if (!first || !step->drop_first)
      TRY(treadle_text_bytes_add(to, " ", 1));
  }
out:
  return status;
}

treadle_status treadle_decode_strip(const treadle_decoder *step, const char *text, size_t bytes,
                                    treadle_text_bytes *to) {
  char sign[4];
  size_t length = treadle_utf8_encode(step->code, sign), from = 0, end = bytes;
  for (int64_t i = 0; i < step->start && end - from >= length && memcmp(text + from, sign, length) == 0;
       i++)
    from += length;
  for (int64_t i = 0;
       i < step->stop && end - from >= length && memcmp(text + end - length, sign, length) == 0; i++)
    end -= length;
  return treadle_text_bytes_add(to, text + from, end - from);
}

treadle_status treadle_decode_replace(const treadle_decoder *step, treadle_regex_room *room,
                                      const char *text, size_t bytes, treadle_text_bytes *to) {
  treadle_regex_search search = {.regex = step->pattern, .room = room, .text = text, .bytes = bytes};
  return treadle_replace(search, &step->content, to);
}

treadle_status treadle_decode_llama2c(bool first, const char *text, size_t bytes, treadle_text_bytes *to) {
  unsigned char byte;
  if (treadle_decode_byte(text, bytes, &byte)) return treadle_text_bytes_add(to, (const char *)&byte, 1);
  size_t blank = first && bytes > 0 && *text == ' ';
  return treadle_text_bytes_add(to, text + blank, bytes - blank);
}

/* ---- All texts ---- */

/* Bytes of all texts become one text. */
static treadle_status complete_all(const treadle_text_bytes *bytes, treadle_text_list *to) {
  treadle_status status;
  size_t used;
  TRY(treadle_unicode_complete(&to->text, bytes->items, bytes->count, true, &used));
  TRY(end_text(to));
out:
  return status;
}

static treadle_status join_bytes(const treadle_decoder *step, const treadle_text_list *list,
                                 treadle_text_list *to) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes bytes = {0};
  for (size_t i = 0, from = 0; i < list->ends.count; from = list->ends.items[i++]) {
    const char *text = list->text.items + from;
    size_t count = list->ends.items[i] - from;
    TRY(step->type == TREADLE_DECODE_LLAMA2C ? treadle_decode_llama2c(i == 0, text, count, &bytes)
                                             : treadle_decode_byte_level(text, count, &bytes));
  }
  TRY(complete_all(&bytes, to));
out:
  treadle_array_release(&bytes);
  return status;
}

/* Bytes that stand one after the other: characters, if all of them are; else U+FFFD for each. */
static treadle_status end_bytes(treadle_text_bytes *bytes, treadle_text_list *to) {
  treadle_status status = TREADLE_OK;
  if (bytes->count == 0) return TREADLE_OK;
  if (treadle_unicode_valid(bytes->items, bytes->count) == bytes->count) {
    TRY(treadle_text_list_add(to, bytes->items, bytes->count));
  } else {
    for (size_t i = 0; i < bytes->count; i++) {
      TRY(treadle_text_bytes_add_code(&to->text, 0xfffd));
      TRY(end_text(to));
    }
  }
  bytes->count = 0;
out:
  return status;
}

static treadle_status join_fallen(const treadle_text_list *list, treadle_text_list *to) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes bytes = {0};
  for (size_t i = 0, from = 0; i < list->ends.count; from = list->ends.items[i++]) {
    unsigned char byte;
    size_t count = list->ends.items[i] - from;
    if (treadle_decode_byte(list->text.items + from, count, &byte)) {
      TRY(treadle_text_bytes_add(&bytes, (const char *)&byte, 1));
      continue;
    }
    TRY(end_bytes(&bytes, to));
    TRY(treadle_text_list_add(to, list->text.items + from, count));
  }
  TRY(end_bytes(&bytes, to));
out:
  treadle_array_release(&bytes);
  return status;
}

static treadle_status run_each(const treadle_decoder *step, treadle_regex_room *room,
                               const treadle_text_list *list, treadle_text_list *to) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0, from = 0; i < list->ends.count; from = list->ends.items[i++]) {
    const char *text = list->text.items + from;
    size_t bytes = list->ends.items[i] - from;
    if (step->type == TREADLE_DECODE_METASPACE)
      TRY(treadle_decode_metaspace(step, i == 0, text, bytes, &to->text));
    else if (step->type == TREADLE_DECODE_STRIP)
      TRY(treadle_decode_strip(step, text, bytes, &to->text));
    else
      TRY(treadle_decode_replace(step, room, text, bytes, &to->text));
    TRY(end_text(to));
  }
out:
  return status;
}

static treadle_status run_step(const treadle_decoder *step, treadle_regex_room *room,
                               const treadle_text_list *list, treadle_text_list *to) {
  switch (step->type) {
  case TREADLE_DECODE_BYTE_LEVEL:
  case TREADLE_DECODE_LLAMA2C: return join_bytes(step, list, to);
  case TREADLE_DECODE_BYTE_FALLBACK: return join_fallen(list, to);
  case TREADLE_DECODE_FUSE: return treadle_text_list_add(to, list->text.items, list->text.count);
  case TREADLE_DECODE_METASPACE:
  case TREADLE_DECODE_STRIP:
  case TREADLE_DECODE_REPLACE: break;
  }
  return run_each(step, room, list, to);
}

treadle_status treadle_decoders_run(const treadle_decoders *steps, treadle_regex_room *room,
                                    treadle_text_list *list, treadle_text_list *spare) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < steps->count; i++) {
    spare->text.count = spare->ends.count = 0;
    TRY(run_step(&steps->items[i], room, list, spare));
    treadle_text_list made = *spare;
    *spare = *list;
    *list = made;
    if (list->text.count > TREADLE_MAX_TEXT_BYTES)
      TRY(treadle_fail(TREADLE_REFUSED, "the decoder makes a text of more than %d bytes",
                       TREADLE_MAX_TEXT_BYTES));
  }
out:
  return status;
}

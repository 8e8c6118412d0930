/* Characters. Classes come from utf8proc; the two that it lacks are ranges here. */
#include "token/unicode.h"

#include <string.h>
#include <utf8proc.h>

/* ---- Growing bytes ---- */

treadle_status treadle_text_bytes_add(treadle_text_bytes *to, const char *bytes, size_t count) {
  if (!to->items || count > to->capacity - to->count) { /* there is a place also for nothing */
    size_t capacity = to->count + count < to->capacity * 2 ? to->capacity * 2 : to->count + count + 32;
    char *items = treadle_realloc(to->items, capacity);
    if (!items) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a text of %zu bytes", capacity);
    to->items = items;
    to->capacity = capacity;
  }
  if (count) memcpy(to->items + to->count, bytes, count);
  to->count += count;
  return TREADLE_OK;
}

treadle_status treadle_text_bytes_add_text(treadle_text_bytes *to, const char *text) {
  return treadle_text_bytes_add(to, text, strlen(text));
}

treadle_status treadle_text_bytes_add_code(treadle_text_bytes *to, uint32_t code) {
  char bytes[4];
  return treadle_text_bytes_add(to, bytes, treadle_utf8_encode(code, bytes));
}

/* ---- UTF-8 ---- */

/* The character that begins at `at`: its bytes in *length_p, or those of the longest begin of one, at least 1. Whether it is
 * whole; *open_p: it is not, but more bytes could make it so. */
static bool read_character(const unsigned char *at, size_t count, size_t *length_p, bool *open_p) {
  unsigned char lead = at[0], low = 0x80, high = 0xbf; /* of the second byte */
  size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : 4;
  *length_p = 1;
  *open_p = false;
  if (length == 1) return true;
  if (length == 4 && (lead < 0xf0 || lead > 0xf4)) return false;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  size_t got = 1;
  for (; got < length && got < count; got++) {
    if (at[got] < low || at[got] > high) break;
    low = 0x80;
    high = 0xbf;
  }
  *length_p = got;
  *open_p = got < length && got == count;
  return got == length;
}

size_t treadle_unicode_valid(const char *text, size_t bytes) {
  size_t at = 0, length;
  bool open;
  while (at < bytes && read_character((const unsigned char *)text + at, bytes - at, &length, &open))
    at += length;
  return at;
}

treadle_status treadle_unicode_complete(treadle_text_bytes *to, const char *bytes, size_t count, bool all,
                                        size_t *used_p) {
  treadle_status status = TREADLE_OK;
  size_t at = 0, from = 0, length;
  bool open;
  *used_p = 0;
  if (count == 0) return TREADLE_OK;
  while (at < count) {
    if (read_character((const unsigned char *)bytes + at, count - at, &length, &open)) {
      at += length;
      continue;
    }
    TRY(treadle_text_bytes_add(to, bytes + from, at - from));
    from = at;
    if (open && !all) break;
    TRY(treadle_text_bytes_add_code(to, 0xfffd));
    from = at += length;
  }
  TRY(treadle_text_bytes_add(to, bytes + from, at - from));
  *used_p = at;
out:
  return status;
}

/* ---- Classes ---- */

bool treadle_unicode_is_space(uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool treadle_unicode_is_word(uint32_t code) {
  switch (utf8proc_category((utf8proc_int32_t)code)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC: return true;
  default: break;
  }
  /* Join_Control; what is alphabetic and of category So: letters in circles and squares. */
  return code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
         (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
         (code >= 0x1f170 && code <= 0x1f189);
}

bool treadle_unicode_is_number(uint32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool treadle_unicode_is_punctuation(uint32_t code) {
  if (code < 0x80)
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* Texts from outside: paths, arguments, names in files. They may hold any bytes, and a terminal obeys some of them.
 *
 * A character is *plain* when it may be printed as it is. Control characters (U+0000 to U+001F, U+007F to U+009F) are not,
 * nor are line and paragraph ends, marks that turn the direction of what follows (U+2028 to U+202E, U+2066 to U+2069), and
 * U+FFFE and U+FFFF, which XML does not have. */
#ifndef TREADLE_BASE_UTF8_H
#define TREADLE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `text`, and its number; 0 where no character of UTF-8 begins or it is not whole: overlong
 * forms, surrogates and numbers above U+10FFFF are none. A 0 byte is a character of one byte. */
int treadle_utf8_read(const char *text, uint32_t *code_p);

/* The same where a character is known to begin: the text is valid. */
static inline size_t treadle_utf8_decode(const char *text, uint32_t *code_p) {
  const unsigned char *at = (const unsigned char *)text;
  if (at[0] < 0x80) {
    *code_p = at[0];
    return 1;
  }
  size_t length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
  uint32_t code = at[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) code = code << 6 | (at[i] & 0x3f);
  *code_p = code;
  return length;
}

/* Writes a character; its bytes. */
static inline size_t treadle_utf8_encode(uint32_t code, char to[4]) {
  if (code < 0x80) {
    to[0] = (char)code;
    return 1;
  }
  size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--, code >>= 6) to[i] = (char)(0x80 | (code & 0x3f));
  to[0] = (char)((0xf00u >> length & 0xff) | code);
  return length;
}

bool treadle_utf8_is_plain(uint32_t code);

/* Is all of it characters? */
bool treadle_utf8_is_valid(const char *text);

/* Copies `text` so that it can be shown to a person: plain characters as they are, each byte of others, and each byte that is
 * no part of a character, as \xNN. What has no room is left out, never a part of a character or of \xNN. Shown twice it is
 * the same: a \ stays as it is. Returns what was left out of `text`: "" when nothing was. */
const char *treadle_utf8_show(char *to, size_t room, const char *text);

/* The same for messages and tables: `text` itself where all of it is plain, else one of 4 buffers of the calling thread,
 * used in turn; what is longer than 1,000 bytes ends with "...". */
const char *treadle_text_shown(const char *text);

#endif

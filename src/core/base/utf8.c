/* Characters, and what is shown of bytes that are none (RFC 3629, section 4). */
#include "base/utf8.h"

#include <string.h>

int treadle_utf8_read(const char *text, uint32_t *code_p) {
  const unsigned char *at = (const unsigned char *)text;
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: what is less is overlong */
  int length = at[0] < 0x80                    ? 1
               : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
               : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
               : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                               : 0;
  uint32_t code = length > 1 ? at[0] & (0x7fu >> length) : at[0];
  for (int i = 1; i < length; i++) { /* the 0 byte at the end is none of these */
    if ((at[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (at[i] & 0x3f);
  }
  if (length == 0 || code < least[length] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return 0;
  *code_p = code;
  return length;
}

bool treadle_utf8_is_plain(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  if ((code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069)) return false;
  return code != 0xfffe && code != 0xffff;
}

bool treadle_utf8_is_valid(const char *text) {
  uint32_t code;
  for (int length; *text; text += length)
    if ((length = treadle_utf8_read(text, &code)) == 0) return false;
  return true;
}

const char *treadle_utf8_show(char *to, size_t room, const char *text) {
  static const char digits[] = "0123456789abcdef";
  size_t done = 0;
  while (*text) {
    uint32_t code = 0;
    int length = treadle_utf8_read(text, &code);
    bool plain = length > 0 && treadle_utf8_is_plain(code);
    if (length == 0) length = 1;
    if (done + (size_t)length * (plain ? 1 : 4) >= room) break;
    for (int i = 0; i < length; i++, text++) {
      unsigned char byte = (unsigned char)*text;
      const char escape[] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
      memcpy(to + done, plain ? text : escape, plain ? 1 : sizeof escape);
      done += plain ? 1 : sizeof escape;
    }
  }
  if (room) to[done] = 0;
  return text;
}

static bool is_plain(const char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f) break;
  uint32_t code;
  for (int length; *text; text += length)
    if ((length = treadle_utf8_read(text, &code)) == 0 || !treadle_utf8_is_plain(code)) return false;
  return true;
}

const char *treadle_text_shown(const char *text) {
  enum { LONGEST = 1000 };
  static _Thread_local char buffers[4][LONGEST + 8];
  static _Thread_local unsigned turn;
  if (is_plain(text)) return text;
  char *buffer = buffers[turn++ % 4];
  if (*treadle_utf8_show(buffer, LONGEST, text)) strcat(buffer, "...");
  return buffer;
}

/* The byte-level alphabet: bytes that are printable in Latin-1 and not blank stand for themselves; the others take the characters
 * from U+0100 on, in order (GPT-2, encoder.py). */
#include "token/normalizer.h"

enum { OTHERS = 68 };

static bool is_itself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

uint32_t treadle_byte_level_code(unsigned char byte) {
  if (is_itself(byte)) return byte;
  if (byte <= ' ') return 0x100u + byte;
  return byte == 0xad ? 0x100u + OTHERS - 1 : 0x100u + 33 + (byte - 0x7fu);
}

int treadle_byte_level_byte(uint32_t code) {
  if (code < 0x100) return is_itself(code) ? (int)code : -1;
  uint32_t number = code - 0x100;
  if (number >= OTHERS) return -1;
  if (number <= ' ') return (int)number;
  return number == OTHERS - 1 ? 0xad : (int)(0x7f + number - 33);
}

treadle_status treadle_byte_level_add(treadle_text_bytes *to, const char *text, size_t bytes) {
  treadle_status status = TREADLE_OK;
  char made[512];
  size_t count = 0;
  for (size_t i = 0; i < bytes; i++) {
    count += treadle_utf8_encode(treadle_byte_level_code((unsigned char)text[i]), made + count);
    if (count + 2 <= sizeof made) continue;
    TRY(treadle_text_bytes_add(to, made, count));
    count = 0;
  }
  TRY(treadle_text_bytes_add(to, made, count));
out:
  return status;
}

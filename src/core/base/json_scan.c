/* Characters of JSON: texts, numbers, and where messages point. */
#include "base/json_parts.h"

#include "base/real.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DIGITS = 4096 };

/* ---- Messages ---------------------------------------------------------------------------------------------- */

int64_t treadle_json_line(treadle_json_reader *r, size_t at) {
  if (at < r->counted) {
    r->counted = 0;
    r->line = r->source->line ? r->source->line : 1;
  }
  for (const char *found; r->counted < at; r->counted = (size_t)(found - r->text) + 1, r->line++) {
    found = memchr(r->text + r->counted, '\n', at - r->counted);
    if (!found) break;
  }
  return r->line;
}

/* In characters. */
static int64_t column_at(treadle_json_reader *r, size_t at) {
  size_t from = at;
  int64_t column = 1;
  while (from > 0 && r->text[from - 1] != '\n') from--;
  for (; from < at; from++) column += (r->text[from] & 0xc0) != 0x80;
  return column;
}

treadle_status treadle_json_no_memory(const treadle_json_reader *r) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its JSON", r->source->what);
}

treadle_status treadle_json_fail_at(treadle_json_reader *r, size_t at, const char *why) {
  int64_t line = treadle_json_line(r, at), column = column_at(r, at);
  if (r->source->one_line) REFUSE("%s, column %" PRId64 ": %s", r->source->what, column, why);
  REFUSE("%s: line %" PRId64 ", column %" PRId64 ": %s", r->source->what, line, column, why);
}

/* Something else stands where `wanted` must. */
treadle_status treadle_json_expected(treadle_json_reader *r, const char *wanted) {
  char why[200], here[8] = {0};
  uint32_t code;
  if (r->at == r->end) {
    snprintf(why, sizeof why, "the text ends where %s is expected", wanted);
    return treadle_json_fail_at(r, r->at, why);
  }
  size_t left = r->end - r->at;
  memcpy(here, r->text + r->at, left < 4 ? left : 4);
  int bytes = treadle_utf8_read(here, &code);
  here[bytes ? bytes : 1] = 0;
  snprintf(why, sizeof why, "%s is expected, not '%s'", wanted, treadle_text_shown(here));
  return treadle_json_fail_at(r, r->at, why);
}

/* ---- Texts ------------------------------------------------------------------------------------------------- */

void treadle_json_skip_space(treadle_json_reader *r) {
  while (r->at < r->end && (r->text[r->at] == ' ' || r->text[r->at] == '\n' || r->text[r->at] == '\r' ||
                            r->text[r->at] == '\t'))
    r->at++;
}

/* Over characters that stand for themselves. */
static treadle_status skip_plain(treadle_json_reader *r) {
  while (r->at < r->end) {
    unsigned char byte = (unsigned char)r->text[r->at];
    if (byte == '"' || byte == '\\') return TREADLE_OK;
    if (byte < 0x20) {
      char why[80];
      snprintf(why, sizeof why, "a control character stands in a text; JSON writes it as \\u%04x", byte);
      return treadle_json_fail_at(r, r->at, why);
    }
    if (byte < 0x80) {
      r->at++;
      continue;
    }
    char here[5] = {0}; /* the source need not end with 0 */
    uint32_t code;
    size_t left = r->end - r->at;
    memcpy(here, r->text + r->at, left < 4 ? left : 4);
    int bytes = treadle_utf8_read(here, &code);
    if (bytes == 0) {
      char why[60];
      snprintf(why, sizeof why, "byte 0x%02x is not UTF-8", byte);
      return treadle_json_fail_at(r, r->at, why);
    }
    r->at += (size_t)bytes;
  }
  return TREADLE_OK;
}

/* Four hexadecimal digits at r->at. */
static treadle_status read_unit(treadle_json_reader *r, uint32_t *unit_p) {
  *unit_p = 0;
  for (int i = 0; i < 4; i++, r->at++) {
    char c = r->at < r->end ? r->text[r->at] : 0;
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
    if (digit == 16) return treadle_json_expected(r, "a hexadecimal digit");
    *unit_p = *unit_p << 4 | digit;
  }
  return TREADLE_OK;
}

static void add_code(treadle_json_reader *r, uint32_t code) {
  char bytes[4];
  size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = count; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
  bytes[0] = (char)(first[count] | code);
  treadle_builder_add_bytes(&r->text_room, bytes, count);
}

/* Behind \u. */
static treadle_status read_code(treadle_json_reader *r, treadle_json_bytes *to) {
  uint32_t unit, low = 0;
  treadle_status status = read_unit(r, &unit);
  if (status) return status;
  if (unit >= 0xd800 && unit < 0xdc00 && r->end - r->at >= 6 && r->text[r->at] == '\\' &&
      r->text[r->at + 1] == 'u') {
    size_t before = r->at;
    r->at += 2;
    if ((status = read_unit(r, &low))) return status;
    if (low >= 0xdc00 && low < 0xe000)
      unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    else
      r->at = before;
  }
  to->zero = to->zero || unit == 0;
  to->half = to->half || (unit >= 0xd800 && unit < 0xe000);
  add_code(r, unit);
  return TREADLE_OK;
}

static treadle_status read_escape(treadle_json_reader *r, treadle_json_bytes *to) {
  static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
  const char *found = r->at < r->end ? memchr(names, r->text[r->at], sizeof names - 1) : NULL;
  if (!found && (r->at == r->end || r->text[r->at] != 'u'))
    return treadle_json_expected(r, "one of \"\\/bfnrtu");
  r->at++;
  if (!found) return read_code(r, to);
  treadle_builder_add_bytes(&r->text_room, means + (found - names), 1);
  return TREADLE_OK;
}

/* r->at is behind the quote, and then behind the other. */
treadle_status treadle_json_scan_text(treadle_json_reader *r, treadle_json_bytes *to) {
  size_t from = r->at;
  treadle_status status;
  *to = (treadle_json_bytes){0};
  TRY(skip_plain(r));
  if (r->at < r->end && r->text[r->at] == '"') {
    to->bytes = r->text + from;
    to->count = r->at++ - from;
    return TREADLE_OK;
  }
  r->text_room.length = 0;
  for (;;) {
    treadle_builder_add_bytes(&r->text_room, r->text + from, r->at - from);
    if (r->at == r->end) return treadle_json_expected(r, "the '\"' at the end of a text");
    if (r->text[r->at++] == '"') break;
    TRY(read_escape(r, to));
    from = r->at;
    TRY(skip_plain(r));
  }
  if (r->text_room.failed) return treadle_json_no_memory(r);
  to->bytes = r->text_room.text ? r->text_room.text : "";
  to->count = r->text_room.length;
out:
  return status;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------- */

static bool take_digits(treadle_json_reader *r) {
  size_t from = r->at;
  while (r->at < r->end && r->text[r->at] >= '0' && r->text[r->at] <= '9') r->at++;
  return r->at > from;
}

bool treadle_json_is_at(const treadle_json_reader *r, char one, char other) {
  return r->at < r->end && (r->text[r->at] == one || r->text[r->at] == other);
}

/* Of the digits [from, r->at), behind a sign; false: beyond 64 bits. */
static bool to_whole(const treadle_json_reader *r, size_t from, json_int_t *value_p) {
  bool minus = r->text[from] == '-';
  json_int_t value = 0;
  for (size_t i = from + minus; i < r->at; i++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_sub_overflow(value, r->text[i] - '0',
                               &value)) /* below 0, where there is room for one more */
      return false;
  if (!minus && __builtin_sub_overflow(0, value, &value)) return false;
  *value_p = value;
  return true;
}

static treadle_status made(const treadle_json_reader *r, json_t *value, json_t **value_p) {
  *value_p = value;
  return value ? TREADLE_OK : treadle_json_no_memory(r);
}

treadle_status treadle_json_scan_number(treadle_json_reader *r, json_t **value_p) {
  size_t from = r->at;
  bool whole = true;
  json_int_t integer;
  r->at += r->text[r->at] == '-';
  size_t digits = r->at;
  if (!take_digits(r)) return treadle_json_expected(r, "a digit");
  if (r->text[digits] == '0' && r->at - digits > 1)
    return treadle_json_fail_at(r, digits, "a number begins with 0; JSON has no such numbers");
  if (treadle_json_is_at(r, '.', '.')) {
    r->at++;
    whole = false;
    if (!take_digits(r)) return treadle_json_expected(r, "a digit");
  }
  if (treadle_json_is_at(r, 'e', 'E')) {
    r->at++;
    whole = false;
    if (treadle_json_is_at(r, '+', '-')) r->at++;
    if (!take_digits(r)) return treadle_json_expected(r, "a digit");
  }
  *value_p = NULL;
  if (whole && to_whole(r, from, &integer)) return made(r, json_integer(integer), value_p);
  if (whole || r->at - from > MOST_DIGITS) return TREADLE_OK;
  char text[MOST_DIGITS + 1];
  memcpy(text, r->text + from, r->at - from);
  text[r->at - from] = 0;
  double real = treadle_real_parse(text);
  return isfinite(real) ? made(r, json_real(real), value_p) : TREADLE_OK;
}

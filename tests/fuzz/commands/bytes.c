/* Spoiling bytes and texts. */
#include "commands/bytes.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_bytes_release(fuzz_bytes *bytes) {
  free(bytes->at);
  *bytes = (fuzz_bytes){0};
}

void fuzz_bytes_replace(fuzz_bytes *bytes, size_t from, size_t drop, const char *with, size_t count) {
  size_t behind = bytes->count - from - drop;
  char *made = malloc(from + count + behind + 1);
  if (!made) abort();
  if (from) memcpy(made, bytes->at, from);
  if (count) memcpy(made + from, with, count);
  if (behind) memcpy(made + from + count, bytes->at + from + drop, behind);
  free(bytes->at);
  *bytes = (fuzz_bytes){made, from + count + behind};
  made[bytes->count] = 0;
}

void fuzz_bytes_add(fuzz_bytes *bytes, const char *format, ...) {
  char *text;
  va_list values;
  va_start(values, format);
  int length = vasprintf(&text, format, values);
  va_end(values);
  if (length < 0) abort();
  fuzz_bytes_replace(bytes, bytes->count, 0, text, (size_t)length);
  free(text);
}

bool fuzz_one_in(treadle_random *random, int64_t many) { return treadle_random_below(random, many) == 0; }

const char *fuzz_edge(treadle_random *random) {
  static const char *const edges[] = {
      "0",         "0",     "-1",  "1",     "2",     "3",          "5",          "7",          "16",
      "64",        "127",   "128", "256",   "65535", "-0",         "65536",      "1000000",    "1048576",
      "134217728", "1e3",   "1.5", "1e308", "0.5",   "1e999",      "2147483647", "2147483648", "4294967295",
      "null",      "\"8\"", "[]",  "{}",    "true",  "4294967296", "17179869184"};
  static const char *const large[] = {
      "1099511627776",        "281474976710656",      "9007199254740992",    "9007199254740993",
      "4611686018427387904",  "9223372036854775807",  "9223372036854775808", "18446744073709551615",
      "18446744073709551616", "-9223372036854775808", "-2147483648",         "6148914691236517206"};
  return fuzz_one_in(random, 3) ? FUZZ_PICK(random, large) : FUZZ_PICK(random, edges);
}

int64_t fuzz_edge_int(treadle_random *random) {
  const char *text = fuzz_edge(random);
  return isdigit((unsigned char)text[0]) || text[0] == '-' ? strtoll(text, NULL, 10) : 4;
}

void fuzz_spoil_bytes(treadle_random *random, fuzz_bytes *bytes) {
  static const char *const splices[] = {"\xff", "\xc3\xa9", "\x1b[2J", "\n",    "\t",       "\"",   "{",
                                        "}",    "[",        "]",       ",",     ":",        "\\u0", "..",
                                        "/",    "&a",       "*a",      "!!str", "---\n",    "- ",   "??",
                                        "{l}",  "%n",       "\x7f",    "[0,0]", "\x80\x02", "="};
  size_t at = (size_t)treadle_random_below(random, (int64_t)bytes->count + 1), left = bytes->count - at;
  size_t some = (size_t)treadle_random_below(random, left < 16 ? (int64_t)left + 1 : 16);
  switch (treadle_random_below(random, 6)) {
  case 0:
    if (left) bytes->at[at] ^= (char)(1 << treadle_random_below(random, 8));
    return;
  case 1: fuzz_bytes_replace(bytes, at, some, NULL, 0); return;
  case 2: {
    char copy[16];
    memcpy(copy, bytes->at + at, some);
    fuzz_bytes_replace(bytes, at, 0, copy, some);
    return;
  }
  case 3: fuzz_bytes_replace(bytes, at, left, NULL, 0); return;
  case 4: {
    const char *with = FUZZ_PICK(random, splices);
    fuzz_bytes_replace(bytes, at, some, with, strlen(with));
    return;
  }
  default: { /* a number of the machine */
    uint64_t number = (uint64_t)fuzz_edge_int(random);
    size_t width = (size_t)1 << treadle_random_below(random, 4);
    if (left >= width) memcpy(bytes->at + at, &number, width);
    return;
  }
  }
}

/* ---- Text -------------------------------------------------------------------------------------- */

static bool in_number(char c) { return isdigit((unsigned char)c) || c == '.'; }
static bool in_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '{' || c == '}';
}

/* The run of such characters at or after a random place; its length, 0 when there is none. */
static size_t find_run(treadle_random *random, const fuzz_bytes *bytes, bool (*in)(char), size_t *from_p) {
  size_t at = (size_t)treadle_random_below(random, (int64_t)bytes->count + 1), end;
  while (at < bytes->count && !in(bytes->at[at])) at++;
  while (at > 0 && at < bytes->count && in(bytes->at[at - 1])) at--;
  for (end = at; end < bytes->count && in(bytes->at[end]);) end++;
  *from_p = at;
  return end - at;
}

static bool in_line(char c) { return c != '\n'; }

void fuzz_spoil_text(treadle_random *random, fuzz_bytes *bytes) {
  size_t from, other, length, more;
  switch (treadle_random_below(random, 6)) {
  case 0:
  case 1:
    length = find_run(random, bytes, in_number, &from);
    const char *number = fuzz_edge(random);
    fuzz_bytes_replace(bytes, from, length, number, strlen(number));
    return;
  case 2: /* a word in place of another */
    length = find_run(random, bytes, in_word, &from);
    more = find_run(random, bytes, in_word, &other);
    char word[64];
    if (more > sizeof word) more = sizeof word;
    if (more) memcpy(word, bytes->at + other, more);
    fuzz_bytes_replace(bytes, from, length, word, more);
    return;
  case 3: /* a line gone, or twice */
    length = find_run(random, bytes, in_line, &from);
    if (from + length < bytes->count) length++;
    if (fuzz_one_in(random, 2))
      fuzz_bytes_replace(bytes, from, length, NULL, 0);
    else if (length) {
      char *line = malloc(length);
      if (!line) abort();
      memcpy(line, bytes->at + from, length);
      fuzz_bytes_replace(bytes, from, 0, line, length);
      free(line);
    }
    return;
  case 4: /* a word gone */
    length = find_run(random, bytes, in_word, &from);
    fuzz_bytes_replace(bytes, from, length, NULL, 0);
    return;
  default: fuzz_spoil_bytes(random, bytes);
  }
}

/* Tokens inside of tags: names, strings with Python's escapes, numbers, operators. */
#include "jinja/jinja_lexer.h"

#include "jinja/jinja_number.h"
#include "jinja/jinja_text.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

typedef treadle_jinja_lexer lexer;
typedef treadle_jinja_lexeme lexeme;
typedef treadle_jinja_writer writer;

/* The byte at a place, 0 behind the end. */
static char look(const lexer *l, size_t at) { return at < l->length ? l->text[at] : 0; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* ---- Strings --------------------------------------------------------------------------------------- */

/* Up to `most` digits of a base at *at_p. */
static uint32_t read_code(const lexer *l, size_t *at_p, size_t end, int base, size_t most,
                          size_t *count_p) {
  uint32_t code = 0;
  for (*count_p = 0; *count_p < most && *at_p < end; ++*count_p, ++*at_p) {
    char c = l->text[*at_p];
    int digit = is_digit(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base) break;
    code = code * (uint32_t)base + (uint32_t)digit;
  }
  return code;
}

static treadle_status write_coded(lexer *l, writer *w, uint32_t code) {
  if (code > 0x10ffff)
    return treadle_jinja_lexer_fail(l, "an escape is beyond the last character, U+10FFFF");
  if (code >= 0xd800 && code < 0xe000)
    return treadle_jinja_lexer_fail(
        l, "an escape is half of a character (U+%04X); \\U00000000 writes it whole", (unsigned)code);
  return treadle_jinja_write_code(l->machine, w, code);
}

/* A \ before a character beyond ASCII: Python writes that as an escape first, whose \ then is taken by this one. */
static treadle_status write_odd(lexer *l, writer *w, size_t *at_p) {
  uint32_t code;
  char text[16];
  *at_p += treadle_utf8_decode(l->text + *at_p, &code);
  snprintf(text, sizeof text,
           code < 0x100     ? "\\x%02x"
           : code < 0x10000 ? "\\u%04x"
                            : "\\U%08x",
           (unsigned)code);
  return treadle_jinja_write_plain(l->machine, w, text);
}

/* What stands behind a \ at *at_p. */
static treadle_status write_escape(lexer *l, writer *w, size_t *at_p, size_t end) {
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  char c = l->text[*at_p];
  const char *simple = c ? strchr(from, c) : NULL;
  size_t count, wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if ((unsigned char)c >= 0x80) return write_odd(l, w, at_p);
  if (c >= '0' && c <= '7') return write_coded(l, w, read_code(l, at_p, end, 8, 3, &count));
  ++*at_p;
  if (c == '\n') return TREADLE_OK;
  if (simple) return treadle_jinja_write(l->machine, w, &to[simple - from], 1);
  if (c == 'N') return treadle_jinja_lexer_fail(l, "escapes of names, \\N{...}, are not supported");
  if (!wanted) {
    PASS(treadle_jinja_write_plain(l->machine, w, "\\"));
    return treadle_jinja_write(l->machine, w, &c, 1);
  }
  uint32_t code = read_code(l, at_p, end, 16, wanted, &count);
  if (count < wanted)
    return treadle_jinja_lexer_fail(l, "an escape \\%c has fewer than %zu digits", c, wanted);
  return write_coded(l, w, code);
}

static treadle_status read_string(lexer *l, lexeme *t) {
  char quote = look(l, l->at);
  size_t end = l->at + 1;
  writer w = {0};
  while (end < l->length && l->text[end] != quote) end += l->text[end] == '\\' ? 2 : 1;
  if (end >= l->length) return treadle_jinja_lexer_fail(l, "a string is not closed by %c", quote);
  t->sign = JINJA_STRING;
  for (size_t at = l->at + 1; at < end;) {
    size_t plain = at;
    while (plain < end && l->text[plain] != '\\') plain++;
    PASS(treadle_jinja_write(l->machine, &w, l->text + at, plain - at));
    at = plain;
    if (at < end) {
      at++;
      PASS(write_escape(l, &w, &at, end));
    }
  }
  PASS(treadle_jinja_written(l->machine, &w, &t->value));
  treadle_jinja_lexer_take(l, end + 1);
  return TREADLE_OK;
}

/* ---- Numbers --------------------------------------------------------------------------------------- */

static bool is_hex(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }
static bool is_octal(char c) { return c >= '0' && c <= '7'; }
static bool is_binary(char c) { return c == '0' || c == '1'; }
static bool is_zero(char c) { return c == '0'; }

/* The end of digits with single underscores between them (before them as well, if `ahead`); `at` where there are none. */
static size_t digits_end(const lexer *l, size_t at, bool (*is_one)(char), bool ahead) {
  for (bool first = true;; first = false) {
    size_t next = at + (look(l, at) == '_' && (ahead || !first));
    if (!is_one(look(l, next))) return at;
    at = next + 1;
  }
}

/* digits [. digits] e digits, or digits . digits: the end, or `at`. */
static size_t float_end(const lexer *l, size_t at) {
  size_t whole = digits_end(l, at, is_digit, false), fraction = whole;
  if (whole == at || (at > 0 && l->text[at - 1] == '.')) return at;
  if (look(l, whole) == '.') fraction = digits_end(l, whole + 1, is_digit, false);
  if (fraction == whole + 1) fraction = whole; /* a point without digits */
  if ((look(l, fraction) | 0x20) == 'e') {
    size_t power = fraction + 1 + (look(l, fraction + 1) == '-' || look(l, fraction + 1) == '+');
    size_t end = digits_end(l, power, is_digit, false);
    if (end > power) return end;
  }
  return fraction > whole ? fraction : at;
}

/* Copies without underscores, with an end. */
static treadle_status plain_digits(lexer *l, size_t from, size_t to, char **text_p, size_t *length_p) {
  PASS(treadle_jinja_alloc(l->machine, to - from + 1, 1, text_p));
  *length_p = 0;
  for (size_t i = from; i < to; i++)
    if (l->text[i] != '_') (*text_p)[(*length_p)++] = l->text[i];
  return TREADLE_OK;
}

static treadle_status read_number(lexer *l, lexeme *t) {
  char *text, prefix = look(l, l->at) == '0' ? (char)(look(l, l->at + 1) | 0x20) : 0;
  size_t end = float_end(l, l->at), length, from = l->at;
  int base = 10;
  if (end > l->at) {
    PASS(plain_digits(l, l->at, end, &text, &length));
    t->sign = JINJA_REAL;
    if (length >= 8000) return treadle_jinja_lexer_fail(l, "a number has more than 8,000 digits");
    t->value = treadle_jinja_float(treadle_real_parse(text));
    treadle_jinja_lexer_take(l, end);
    return TREADLE_OK;
  }
  end = prefix == 'x'   ? digits_end(l, from + 2, is_hex, true)
        : prefix == 'o' ? digits_end(l, from + 2, is_octal, true)
        : prefix == 'b' ? digits_end(l, from + 2, is_binary, true)
                        : from;
  if (end > from + 2) {
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
    from += 2;
  } else
    end = digits_end(l, from, look(l, from) == '0' ? is_zero : is_digit, false);
  PASS(plain_digits(l, from, end, &text, &length));
  t->sign = JINJA_WHOLE;
  treadle_status status = treadle_jinja_of_digits(l->machine, text, length, base, &t->value);
  if (status != TREADLE_OK) return status;
  treadle_jinja_lexer_take(l, end);
  return TREADLE_OK;
}

/* ---- Names and operators ------------------------------------------------------------------------- */

/* May the character stand in a name (Python's identifiers)? */
static bool is_of_name(uint32_t code, bool first) {
  if (code < 0x80)
    return code == '_' || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') ||
           (!first && code >= '0' && code <= '9');
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
  if (treadle_jinja_is(JINJA_IS_ALPHA, code) || category == UTF8PROC_CATEGORY_NL) return true;
  return !first && (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                    category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_PC || code == 0xb7);
}

treadle_status treadle_jinja_lexer_intern(lexer *l, const char *bytes, size_t length, const char **word_p) {
  char *word;
  PASS(treadle_jinja_alloc(l->machine, length + 1, 1, &word));
  memcpy(word, bytes, length);
  int64_t place = treadle_hash_map_get(&l->words, word, -1);
  if (place < 0) {
    place = (int64_t)l->interned.count;
    PASS(treadle_array_push(&l->interned, word));
    PASS(treadle_hash_map_put(&l->words, word, place));
  }
  *word_p = l->interned.items[place];
  return TREADLE_OK;
}

static treadle_status read_name(lexer *l, lexeme *t) {
  size_t end = l->at;
  uint32_t code;
  while (end < l->length) {
    size_t one = treadle_utf8_decode(l->text + end, &code);
    if (!is_of_name(code, end == l->at)) break;
    end += one;
  }
  t->sign = JINJA_WORD;
  PASS(treadle_jinja_lexer_intern(l, l->text + l->at, end - l->at, &t->word));
  treadle_jinja_lexer_take(l, end);
  return TREADLE_OK;
}

/* Brackets are counted: a tag does not end inside of them. */
static treadle_status balance(lexer *l, char c) {
  const char *pairs = "{}()[]", *found = strchr(pairs, c);
  if (!found) return TREADLE_OK;
  if ((found - pairs) % 2 == 0) {
    if (l->open_count == sizeof l->open)
      return treadle_jinja_lexer_fail(l, "more than %zu brackets are open", sizeof l->open);
    l->open[l->open_count++] = found[1];
    return TREADLE_OK;
  }
  if (l->open_count == 0) return treadle_jinja_lexer_fail(l, "'%c' closes nothing", c);
  char wanted = l->open[--l->open_count];
  return wanted == c ? TREADLE_OK
                     : treadle_jinja_lexer_fail(l, "'%c' stands where '%c' is wanted", c, wanted);
}

treadle_status treadle_jinja_lexer_lexeme(lexer *l, lexeme *t) {
  static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                          "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                          ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  uint32_t code;
  char c = look(l, l->at);
  *t = (lexeme){.line = l->line};
  treadle_utf8_decode(l->text + l->at, &code);
  if (is_digit(c)) return read_number(l, t);
  if (is_of_name(code, true)) return read_name(l, t);
  if (c == '\'' || c == '"') return read_string(l, t);
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    size_t length = strlen(operators[i]);
    if (l->length - l->at < length || memcmp(l->text + l->at, operators[i], length) != 0) continue;
    t->sign = JINJA_OPERATOR;
    t->word = operators[i];
    PASS(balance(l, c));
    treadle_jinja_lexer_take(l, l->at + length);
    return TREADLE_OK;
  }
  return treadle_jinja_lexer_fail(l, "U+%04X stands where it means nothing", (unsigned)code);
}

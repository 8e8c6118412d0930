/* Floats and whole numbers as text. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;

enum { PRINTED = 20 }; /* steps of printing a number and reading it again */

treadle_status treadle_jinja_write_float(machine *m, treadle_jinja_writer *w, double real) {
  char text[TREADLE_REAL_BYTES];
  if (isnan(real)) return treadle_jinja_write_plain(m, w, "nan");
  if (isinf(real)) return treadle_jinja_write_plain(m, w, real < 0 ? "-inf" : "inf");
  int precision = 0;
  do {
    PASS(treadle_jinja_step(m, PRINTED));
    treadle_real_print(text, 'e', precision, false, real);
  } while (treadle_real_parse(text) != real && ++precision < 17);
  int exponent = atoi(strchr(text, 'e') + 1);
  if (exponent < -4 || exponent >= 16) { /* 1e+16, 1.5e-07: printf's form is Python's */
    return treadle_jinja_write_plain(m, w, text);
  }
  int decimals = precision - exponent > 0 ? precision - exponent : 0;
  treadle_real_print(text, 'f', decimals, false, real);
  PASS(treadle_jinja_write_plain(m, w, text));
  return decimals ? TREADLE_OK : treadle_jinja_write_plain(m, w, ".0");
}

/* ---- Reading -------------------------------------------------------------------------------------- */

/* Copies the text without white space around it and with decimal digits of all scripts as ASCII; *length_p 0: it is too long or
 * has other characters. Numbers of texts are short. */
enum { MAX_NUMBER = 8000 };
static treadle_status plain_digits(machine *m, const treadle_jinja_text *text, char to[MAX_NUMBER],
                                   size_t *length_p) {
  size_t from, end, length = 0;
  uint32_t code;
  *length_p = 0;
  PASS(treadle_jinja_strip(m, text->bytes, text->length, JINJA_LEFT | JINJA_RIGHT, NULL, &from, &end));
  if (end - from >= MAX_NUMBER) return TREADLE_OK;
  PASS(treadle_jinja_step(m, end - from));
  while (from < end) {
    from += treadle_utf8_decode(text->bytes + from, &code);
    if (code >= 0x80) { /* digits come in runs of ten: the place in the run is the value */
      if (!treadle_jinja_is(JINJA_IS_DECIMAL, code)) return TREADLE_OK;
      uint32_t zero = code;
      while (zero > code - 9 && treadle_jinja_is(JINJA_IS_DECIMAL, zero - 1)) zero--;
      code = '0' + (code - zero) % 10;
    }
    if (code == 0) return TREADLE_OK;
    to[length++] = (char)code;
  }
  to[length] = 0;
  *length_p = length;
  return TREADLE_OK;
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

/* The base that a prefix says, 0 where there is none. */
static int prefix_base(const char *at) {
  if (at[0] != '0') return 0;
  char c = at[1] | 0x20;
  return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
}

treadle_status treadle_jinja_read_whole(machine *m, const treadle_jinja_text *text, int base, bool *read_p,
                                        value *value_p) {
  char copy[MAX_NUMBER], digits[MAX_NUMBER];
  size_t length, count = 0;
  *read_p = false;
  if (base < 0 || base == 1 || base > 36) return TREADLE_OK;
  PASS(plain_digits(m, text, copy, &length));
  if (length == 0) return TREADLE_OK;
  const char *at = copy;
  bool negative = *at == '-', zeros_only = false;
  at += *at == '-' || *at == '+';
  int said = prefix_base(at);
  if (said && (base == said || base == 0)) {
    base = said;
    at += 2;
    at += *at == '_';
  } else if (base == 0) {
    base = 10;
    zeros_only = *at == '0';
  }
  for (bool after_digit = false; *at; at++) {
    if (*at == '_' && after_digit && at[1] && at[1] != '_') {
      after_digit = false;
      continue;
    }
    if (digit_of(*at) >= base || (zeros_only && *at != '0')) return TREADLE_OK;
    digits[count++] = *at;
    after_digit = true;
  }
  if (count == 0) return TREADLE_OK;
  *read_p = true;
  PASS(treadle_jinja_of_digits(m, digits, count, base, value_p));
  return negative ? treadle_jinja_negate(m, *value_p, value_p) : TREADLE_OK;
}

/* Digits with single underscores between them, copied without; returns how many. */
static size_t copy_digits(const char **at_p, char **to_p) {
  size_t count = 0;
  const char *at = *at_p;
  for (;; at++) {
    if (*at >= '0' && *at <= '9') {
      *(*to_p)++ = *at;
      count++;
    } else if (!(*at == '_' && count && at[1] >= '0' && at[1] <= '9'))
      break;
  }
  *at_p = at;
  return count;
}

static bool is_word(const char *at, const char *const *words) {
  for (; *words; words++)
    if (strcasecmp(at, *words) == 0) return true;
  return false;
}

treadle_status treadle_jinja_read_float(machine *m, const treadle_jinja_text *text, bool *read_p,
                                        double *real_p) {
  static const char *const infinite[] = {"inf", "infinity", NULL}, *const nan[] = {"nan", NULL};
  char copy[MAX_NUMBER], digits[MAX_NUMBER];
  size_t length;
  *read_p = false;
  PASS(plain_digits(m, text, copy, &length));
  if (length == 0) return TREADLE_OK;
  const char *at = copy;
  char *to = digits;
  bool negative = *at == '-';
  at += *at == '-' || *at == '+';
  if (is_word(at, infinite) || is_word(at, nan)) {
    *real_p = is_word(at, nan) ? NAN : INFINITY;
  } else {
    size_t count = copy_digits(&at, &to);
    if (*at == '.') {
      *to++ = *at++;
      count += copy_digits(&at, &to);
    }
    if (count == 0) return TREADLE_OK;
    if (*at == 'e' || *at == 'E') {
      *to++ = *at++;
      if (*at == '-' || *at == '+') *to++ = *at++;
      if (copy_digits(&at, &to) == 0) return TREADLE_OK;
    }
    if (*at) return TREADLE_OK;
    *to = 0;
    *real_p = treadle_real_parse(digits);
  }
  if (negative) *real_p = -*real_p;
  *read_p = true;
  return TREADLE_OK;
}

/* Fields: digits with a sign, a prefix, marks between thousands, and filling on one side or both. */
#include "jinja/jinja_format.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_writer writer;
typedef treadle_jinja_field field;

/* A number in parts: "-" "0x" "1234" ".5". */
typedef struct number {
  const char *sign, *prefix, *digits, *rest;
  size_t digit_count;
} number;

static treadle_status fill(machine *m, writer *w, const field *f, int64_t count) {
  for (int64_t i = 0; i < count; i++) PASS(treadle_jinja_write_code(m, w, f->fill ? f->fill : ' '));
  return TREADLE_OK;
}

/* Where the filling goes: before and behind `points` characters. */
static void place(const field *f, char align, int64_t points, int64_t *before_p, int64_t *behind_p) {
  int64_t places = f->width > points ? f->width - points : 0;
  *before_p = align == '<' ? 0 : align == '^' ? places / 2 : places;
  *behind_p = places - *before_p;
}

treadle_status treadle_jinja_format_text(machine *m, writer *w, const field *f,
                                         const treadle_jinja_text *text) {
  int64_t points = (int64_t)text->points, before, behind;
  if (f->precision >= 0 && f->precision < points) points = f->precision;
  place(f, f->align ? f->align : '<', points, &before, &behind);
  PASS(fill(m, w, f, before));
  PASS(treadle_jinja_scan(m, text->length));
  PASS(treadle_jinja_write(m, w, text->bytes, treadle_jinja_offset(text, (size_t)points)));
  return fill(m, w, f, behind);
}

/* ---- Numbers ---------------------------------------------------------------------------------------------- */

/* Digits with a mark each third (fourth, for bits) from the right; zeros in front up to `least` characters. */
static treadle_status write_digits(machine *m, writer *w, const field *f, const number *n, int64_t least) {
  size_t each = f->group && f->type && strchr("boxX", f->type) ? 4 : 3, count = n->digit_count, zeros = 0;
  size_t marks = f->group ? (count - !!count) / each : 0;
  while ((int64_t)(count + zeros + marks) < least) {
    zeros++;
    marks = f->group ? (count + zeros - 1) / each : 0;
  }
  for (size_t i = 0, all = count + zeros; i < all; i++) {
    char c = i < zeros ? '0' : n->digits[i - zeros];
    if (f->group && i && (all - i) % each == 0) PASS(treadle_jinja_write(m, w, &f->group, 1));
    PASS(treadle_jinja_write(m, w, &c, 1));
  }
  return TREADLE_OK;
}

static treadle_status write_number(machine *m, writer *w, const field *f, const number *n) {
  bool inside = f->align ? f->align == '=' : f->zeros;
  bool zeros = inside && (f->zeros ? !f->fill || f->fill == '0' : f->fill == '0');
  size_t fixed = strlen(n->sign) + strlen(n->prefix) + strlen(n->rest);
  int64_t before, behind, least = zeros ? f->width - (int64_t)fixed : 0;
  writer digits = {0};
  PASS(treadle_jinja_step(m, f->width > 0 ? (size_t)f->width / 4 : 0));
  PASS(write_digits(m, &digits, f, n, least));
  place(f, inside ? '>' : f->align ? f->align : '>', (int64_t)(fixed + digits.length), &before, &behind);
  if (!inside) PASS(fill(m, w, f, before));
  PASS(treadle_jinja_write_plain(m, w, n->sign));
  PASS(treadle_jinja_write_plain(m, w, n->prefix));
  if (inside) PASS(fill(m, w, f, before));
  PASS(treadle_jinja_write(m, w, digits.bytes, digits.length));
  PASS(treadle_jinja_write_plain(m, w, n->rest));
  return inside ? TREADLE_OK : fill(m, w, f, behind);
}

static const char *sign_of(const field *f, bool negative) {
  return negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

static treadle_status format_whole(machine *m, writer *w, const field *f, value v) {
  writer digits = {0};
  int base = f->type == 'b' ? 2 : f->type == 'o' ? 8 : f->type == 'x' || f->type == 'X' ? 16 : 10;
  int64_t code;
  if (f->precision >= 0) REFUSE("an int has no precision");
  if (f->type == 'c') {
    value character;
    if (f->sign || f->alternate) REFUSE("'c' takes no sign and no '#' in a format");
    if (!treadle_jinja_to_index(v, &code) || code < 0 || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
      REFUSE("no character has that number");
    PASS(treadle_jinja_write_code(m, &digits, (uint32_t)code));
    PASS(treadle_jinja_written(m, &digits, &character));
    field right = *f;
    if (!right.align || right.align == '=') right.align = '>';
    return treadle_jinja_format_text(m, w, &right, character.text);
  }
  PASS(treadle_jinja_write_whole(m, &digits, v, base));
  bool negative = digits.bytes[0] == '-';
  if (f->type == 'X')
    for (size_t i = 0; i < digits.length; i++)
      digits.bytes[i] = (char)toupper((unsigned char)digits.bytes[i]);
  char prefix[] = {'0', f->type, 0};
  number n = {sign_of(f, negative), f->alternate && base != 10 ? prefix : "", digits.bytes + negative, "",
              digits.length - negative};
  return write_number(m, w, f, &n);
}

/* Takes zeros, and a point behind which nothing is left, from before the exponent. */
static void drop_zeros(char *text) {
  char *mark = strchr(text, 'e'), *end = mark;
  if (!strchr(text, '.')) return;
  while (mark[-1] == '0') mark--;
  if (mark[-1] == '.') mark--;
  memmove(mark, end, strlen(end) + 1);
}

/* Without a type: repr's digits; with a precision as g, but it shows that it is a float, and goes to the exponent one digit earlier. */
static treadle_status own_digits(machine *m, const field *f, double real, char text[TREADLE_REAL_BYTES]) {
  writer w = {0};
  int precision = f->precision > 0 ? (int)f->precision : 1;
  if (f->precision < 0) {
    PASS(treadle_jinja_write_float(m, &w, real));
    memcpy(text, w.bytes, w.length);
    text[w.length] = 0;
    char *mark = f->alternate && !strchr(text, '.') ? strchr(text, 'e') : NULL;
    if (mark) memmove(mark + 1, mark, strlen(mark) + 1), *mark = '.';
    return TREADLE_OK;
  }
  treadle_real_print(text, 'e', precision - 1, f->alternate, real);
  if (atoi(strchr(text, 'e') + 1) == precision - 1) {
    if (real == 0) strcpy(text, f->alternate ? "0." : "0");
    if (real == 0) strcat(text, f->alternate ? "" : ".0");
    if (!f->alternate && real != 0) drop_zeros(text);
    return TREADLE_OK;
  }
  treadle_real_print(text, 'g', precision, f->alternate, real);
  if (!strpbrk(text, ".e")) strcat(text, ".0");
  return TREADLE_OK;
}

static treadle_status format_float(machine *m, writer *w, const field *f, double real) {
  char text[TREADLE_REAL_BYTES], digits[TREADLE_REAL_BYTES];
  bool percent = f->type == '%', negative = signbit(real) && !isnan(real),
       upper = isupper((unsigned char)f->type);
  if (f->precision > TREADLE_MAX_PRECISION) REFUSE("a precision is at most %d", TREADLE_MAX_PRECISION);
  if (percent) real *= 100;
  PASS(treadle_jinja_step(m, 150));
  int precision = f->precision >= 0 ? (int)f->precision : 6;
  real = fabs(real);
  if (isnan(real) || isinf(real))
    snprintf(text, sizeof text, "%s", isnan(real) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
  else if (!f->type)
    PASS(own_digits(m, f, real, text));
  else
    treadle_real_print(text, percent ? 'f' : f->type == 'n' ? 'g' : f->type, precision, f->alternate, real);
  if (f->no_minus_zero && negative && strspn(text, "0.") == strlen(text)) negative = false;
  if (percent) strcat(text, "%");
  size_t whole = strspn(text, "0123456789");
  memcpy(digits, text, whole);
  number n = {sign_of(f, negative), "", digits, text + whole, whole};
  return write_number(m, w, f, &n);
}

treadle_status treadle_jinja_format_number(machine *m, writer *w, const field *f, value v) {
  double real;
  bool of_float = f->type && strchr("eEfFgG%", f->type);
  if (f->type && !of_float && !strchr("dboxXnc", f->type)) REFUSE("'%c' does not format a number", f->type);
  if (f->group && f->type && strchr(f->group == ',' ? "boxXcn" : "cn", f->type))
    REFUSE("'%c' and '%c' do not go together in a format", f->group, f->type);
  if (v.kind != JINJA_FLOAT && !of_float) return format_whole(m, w, f, v);
  if (!of_float && f->type && f->type != 'n') REFUSE("'%c' formats an int, not a float", f->type);
  PASS(treadle_jinja_to_double(v, &real));
  return format_float(m, w, f, real);
}

treadle_status treadle_jinja_ascii(machine *m, value v, value *text_p) {
  writer w = {0}, ascii = {0};
  uint32_t code;
  char escape[16];
  PASS(treadle_jinja_represent(m, &w, v));
  PASS(treadle_jinja_step(m, 2 * w.length)); /* each character is printed */
  for (size_t at = 0; at < w.length;) {
    at += treadle_utf8_decode(w.bytes + at, &code);
    snprintf(escape, sizeof escape,
             code < 0x80      ? "%c"
             : code < 0x100   ? "\\x%02x"
             : code < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
             (unsigned)code);
    PASS(treadle_jinja_write(m, &ascii, escape, strlen(escape)));
  }
  return treadle_jinja_written(m, &ascii, text_p);
}

/* "%-5s %d" % values. */
#include "jinja/jinja_format.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_text.h"

#include <math.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_writer writer;
typedef treadle_jinja_field field;

/* How far the format and the values are read. */
typedef struct state {
  machine *machine;
  const treadle_jinja_text *format;
  size_t at;
  value values; /* a tuple, a dict, or one value */
  size_t used;
  bool safe; /* Markup: values are escaped */
} state;

static char look(const state *s) { return s->at < s->format->length ? s->format->bytes[s->at] : 0; }

static treadle_status take_value(state *s, value *value_p) {
  bool tuple = s->values.kind == JINJA_TUPLE;
  if (tuple ? s->used >= s->values.list->count : s->used > 0)
    REFUSE("there are fewer values than the format wants");
  *value_p = tuple ? s->values.list->items[s->used] : s->values;
  s->used++;
  return TREADLE_OK;
}

/* (name) */
static treadle_status take_named(state *s, value *value_p) {
  size_t from = ++s->at, depth = 1;
  int64_t index;
  value key;
  for (; s->at < s->format->length; s->at++) {
    if (look(s) == '(') depth++;
    if (look(s) == ')' && --depth == 0) break;
  }
  if (s->at >= s->format->length) REFUSE("a '(' in a format is not closed");
  if (s->values.kind != JINJA_DICT) REFUSE("a format with names wants a dict");
  PASS(treadle_jinja_part(s->machine, s->format, from, s->at++, &key));
  PASS(treadle_jinja_dict_find(s->machine, s->values.dict, key, &index));
  if (index < 0)
    REFUSE("the dict has no '%.*s'", (int)(key.text->length < 60 ? key.text->length : 60), key.text->bytes);
  *value_p = s->values.dict->values[index];
  return TREADLE_OK;
}

/* Digits, or * for the next value. */
static treadle_status take_number(state *s, int64_t *number_p) {
  value v;
  if (look(s) == '*') {
    s->at++;
    PASS(take_value(s, &v));
    if (!treadle_jinja_to_index(v, number_p)) REFUSE("'*' in a format wants an int");
    return TREADLE_OK;
  }
  *number_p = 0;
  for (; look(s) >= '0' && look(s) <= '9'; s->at++) {
    *number_p = *number_p * 10 + look(s) - '0';
    if (*number_p > INT32_MAX) REFUSE("a number in a format is too large");
  }
  return TREADLE_OK;
}

static treadle_status take_field(state *s, field *f) {
  *f = (field){.width = -1, .precision = -1};
  bool left = false;
  for (; look(s) && strchr("#0- +", look(s)); s->at++) {
    char c = look(s);
    if (c == '#') f->alternate = true;
    if (c == '0') f->zeros = true;
    if (c == '-') left = true;
    if (c == '+' || (c == ' ' && f->sign != '+')) f->sign = c;
  }
  PASS(take_number(s, &f->width));
  if (f->width < 0) left = true, f->width = -f->width;
  if (look(s) == '.') {
    s->at++;
    PASS(take_number(s, &f->precision));
    if (f->precision < 0) f->precision = 0;
  }
  while (look(s) == 'h' || look(s) == 'l' || look(s) == 'L') s->at++;
  f->align = left ? '<' : 0;
  if (left) f->zeros = false;
  return TREADLE_OK;
}

static treadle_status write_text(state *s, writer *w, field *f, char type, value v) {
  writer printed = {0};
  value text;
  machine *m = s->machine;
  f->zeros = false;
  f->align = f->align ? f->align : '>';
  if (type == 'a')
    PASS(treadle_jinja_ascii(m, v, &text));
  else {
    PASS(type == 'r' ? treadle_jinja_represent(m, &printed, v) : treadle_jinja_print(m, &printed, v));
    PASS(treadle_jinja_written(m, &printed, &text));
  }
  if (s->safe && !(v.kind == JINJA_TEXT && v.text->safe)) {
    writer escaped = {0};
    PASS(treadle_jinja_escape(m, &escaped, text.text));
    PASS(treadle_jinja_written(m, &escaped, &text));
  }
  return treadle_jinja_format_text(m, w, f, text.text);
}

/* A precision gives a whole number that many digits. */
static treadle_status write_whole(state *s, writer *w, field *f, value v) {
  machine *m = s->machine;
  if (v.kind == JINJA_FLOAT && strchr("diu", f->type)) PASS(treadle_jinja_to_whole(m, v.real, &v));
  if (!treadle_jinja_is_whole(v)) {
    PASS(treadle_jinja_defined(v));
    REFUSE("'%%%c' wants a number, not a value of type %s", f->type, treadle_jinja_type(v));
  }
  if (strchr("iu", f->type)) f->type = 'd';
  if (f->precision < 0) return treadle_jinja_format_number(m, w, f, v);
  field digits = {
      .type = f->type, .alternate = f->alternate, .sign = f->sign, .precision = -1, .zeros = true};
  writer number = {0}, plain = {0};
  value text;
  field none = {.type = f->type, .precision = -1, .alternate = f->alternate, .sign = f->sign};
  PASS(treadle_jinja_format_number(m, &plain, &none, v));
  size_t signs = 0;
  while (signs < plain.length && !strchr("0123456789abcdefABCDEF", plain.bytes[signs])) signs++;
  if (f->alternate && f->type != 'd') signs += 2;
  digits.width = f->precision + (int64_t)signs;
  if (f->zeros && f->width > digits.width) digits.width = f->width;
  PASS(treadle_jinja_format_number(m, &number, &digits, v));
  PASS(treadle_jinja_written(m, &number, &text));
  field around = {.width = f->width, .align = f->align ? f->align : '>', .precision = -1};
  return treadle_jinja_format_text(m, w, &around, text.text);
}

static treadle_status write_character(state *s, writer *w, field *f, value v) {
  f->zeros = f->alternate = false;
  f->sign = 0;
  f->align = f->align ? f->align : '>';
  f->precision = -1;
  if (v.kind == JINJA_TEXT && v.text->points == 1)
    return treadle_jinja_format_text(s->machine, w, f, v.text);
  if (!treadle_jinja_is_whole(v)) REFUSE("'%%c' wants an int or one character");
  return treadle_jinja_format_number(s->machine, w, f, v);
}

static treadle_status write_one(state *s, writer *w) {
  value v = {.kind = JINJA_ABSENT};
  field f;
  if (look(s) == '%') {
    s->at++;
    return treadle_jinja_write_plain(s->machine, w, "%");
  }
  if (look(s) == '(') PASS(take_named(s, &v));
  PASS(take_field(s, &f));
  f.type = look(s);
  if (!f.type) REFUSE("a format ends behind '%%'");
  s->at++;
  if (v.kind == JINJA_ABSENT) PASS(take_value(s, &v));
  if (strchr("sra", f.type)) return write_text(s, w, &f, f.type, v);
  if (f.type == 'c') return write_character(s, w, &f, v);
  if (strchr("diuxXo", f.type)) return write_whole(s, w, &f, v);
  if (!strchr("eEfFgG", f.type)) REFUSE("'%%%c' is not a format", f.type);
  PASS(treadle_jinja_defined(v));
  if (!treadle_jinja_is_number(v))
    REFUSE("'%%%c' wants a number, not a value of type %s", f.type, treadle_jinja_type(v));
  return treadle_jinja_format_number(s->machine, w, &f, v);
}

treadle_status treadle_jinja_percent(machine *m, const treadle_jinja_text *format, value values,
                                     value *result_p) {
  writer w = {0};
  state s = {m, format, 0, values, 0, format->safe};
  while (s.at < format->length) {
    const char *sign = memchr(format->bytes + s.at, '%', format->length - s.at);
    size_t end = sign ? (size_t)(sign - format->bytes) : format->length;
    PASS(treadle_jinja_write(m, &w, format->bytes + s.at, end - s.at));
    s.at = end + (sign != NULL);
    if (sign) PASS(write_one(&s, &w));
  }
  bool keyed = values.kind == JINJA_DICT || values.kind == JINJA_LIST || values.kind == JINJA_RANGE ||
               values.kind == JINJA_UNDEFINED; /* what Python would look names up in may be left over */
  bool rest = values.kind == JINJA_TUPLE ? s.used < values.list->count : s.used == 0 && !keyed;
  if (rest) REFUSE("there are more values than the format takes");
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, format->safe, result_p);
}

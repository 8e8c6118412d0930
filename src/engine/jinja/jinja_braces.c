/* "{} {name[0]!r:>{width}}".format(...). */
#include "jinja/jinja_format.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_writer writer;
typedef treadle_jinja_field field;
typedef treadle_jinja_text text;

typedef struct state {
  machine *machine;
  const value *items;
  size_t count;
  value names;
  int64_t next; /* place of the next {}; -1: places are numbered */
  bool numbered, safe;
} state;

static treadle_status write_fields(state *s, writer *w, const char *bytes, size_t length, int level);

/* ---- What stands in the field: a value, a conversion, a description ------------------------------------- */

/* A number of decimal digits alone; -1: none. */
static int64_t number_of(const char *bytes, size_t length) {
  int64_t number = 0;
  if (length == 0 || length > 9) return -1;
  for (size_t i = 0; i < length; i++) {
    if (bytes[i] < '0' || bytes[i] > '9') return -1;
    number = number * 10 + bytes[i] - '0';
  }
  return number;
}

/* `alone`: nothing follows the name or number. Only then an empty one takes the next value, and a number is one of a format with
 * numbers. */
static treadle_status first_value(state *s, const char *bytes, size_t length, bool alone, value *value_p) {
  int64_t place = number_of(bytes, length);
  value key;
  if (length == 0 && alone) {
    if (s->numbered) REFUSE("a format has fields with numbers and fields without");
    place = s->next++;
  } else if (place >= 0 && alone) {
    if (s->next > 0) REFUSE("a format has fields with numbers and fields without");
    s->numbered = true;
  }
  if (place >= 0) {
    if ((uint64_t)place >= s->count) REFUSE("there are fewer values than the format wants");
    *value_p = s->items[place];
    return TREADLE_OK;
  }
  PASS(treadle_jinja_copy(s->machine, bytes, length, &key));
  if (s->names.kind == JINJA_DICT) {
    int64_t index;
    PASS(treadle_jinja_dict_find(s->machine, s->names.dict, key, &index));
    if (index < 0) REFUSE("the format wants a value '%.*s'", (int)(length < 60 ? length : 60), bytes);
    *value_p = s->names.dict->values[index];
    return TREADLE_OK;
  }
  return treadle_jinja_element(s->machine, s->names, key, value_p);
}

/* name.attribute[key] */
static treadle_status find_value(state *s, const char *bytes, size_t length, value *value_p) {
  size_t at = 0, from;
  value key;
  while (at < length && bytes[at] != '.' && bytes[at] != '[') at++;
  PASS(first_value(s, bytes, at, at == length, value_p));
  while (at < length) {
    bool dot = bytes[at] == '.';
    if (!dot && bytes[at] != '[') REFUSE("a field of a format has something behind ']'");
    from = ++at;
    while (at < length && (dot ? bytes[at] != '.' && bytes[at] != '[' : bytes[at] != ']')) at++;
    if (at == from || (!dot && at == length)) REFUSE("a field of a format has an empty or open part");
    int64_t number = dot ? -1 : number_of(bytes + from, at - from);
    PASS(treadle_jinja_copy(s->machine, bytes + from, at - from, &key));
    if (dot) {
      char *name;
      PASS(treadle_jinja_alloc(s->machine, at - from + 1, 1, &name));
      memcpy(name, bytes + from, at - from);
      PASS(treadle_jinja_attribute(s->machine, *value_p, name, value_p));
    } else
      PASS(treadle_jinja_element(s->machine, *value_p, number >= 0 ? treadle_jinja_int(number) : key,
                                 value_p));
    at += !dot;
  }
  return TREADLE_OK;
}

static treadle_status take_digits(const text *spec, size_t *at_p, int64_t *number_p) {
  size_t from = *at_p;
  while (*at_p < spec->length && spec->bytes[*at_p] >= '0' && spec->bytes[*at_p] <= '9') ++*at_p;
  if (*at_p - from > 9) REFUSE("a number in a format is too large");
  if (*at_p > from) *number_p = number_of(spec->bytes + from, *at_p - from);
  return TREADLE_OK;
}

/* [[fill]align][sign][z][#][0][width][,][.precision][type] */
static treadle_status read_spec(const text *spec, field *f) {
  size_t at = 0, first = 0;
  uint32_t code = 0;
  *f = (field){.width = -1, .precision = -1};
#define LOOK    (at < spec->length ? spec->bytes[at] : 0)
#define IS(set) (LOOK && strchr(set, LOOK))
  if (spec->length) first = treadle_utf8_decode(spec->bytes, &code);
  if (first && first < spec->length && strchr("<>^=", spec->bytes[first]) && spec->bytes[first]) {
    f->fill = code;
    at = first;
  }
  if (IS("<>^=")) f->align = spec->bytes[at++];
  if (IS("+- ")) f->sign = spec->bytes[at++];
  if (LOOK == 'z') f->no_minus_zero = true, at++;
  if (LOOK == '#') f->alternate = true, at++;
  if (LOOK == '0') {
    at++;
    f->zeros = true;
    if (!f->fill) f->fill = '0';
    if (!f->align) f->align = '=';
  }
  PASS(take_digits(spec, &at, &f->width));
  if (IS(",_")) f->group = spec->bytes[at++];
  if (LOOK == '.') {
    size_t from = ++at;
    PASS(take_digits(spec, &at, &f->precision));
    if (at == from) REFUSE("a precision is missing behind '.' in a format");
  }
  f->type = LOOK;
  at += f->type != 0;
#undef LOOK
#undef IS
  if (at < spec->length) REFUSE("a format has more behind its type");
  return TREADLE_OK;
}

static treadle_status write_value(state *s, writer *w, value v, const text *spec) {
  field f;
  PASS(read_spec(spec, &f));
  if (treadle_jinja_is_number(v)) {
    if (v.kind == JINJA_BOOL && spec->length == 0) return treadle_jinja_print(s->machine, w, v);
    if (f.type == 's') REFUSE("'s' formats a str, not a number");
    return treadle_jinja_format_number(s->machine, w, &f, v);
  }
  if (v.kind != JINJA_TEXT) {
    if (spec->length) return treadle_jinja_unfit(v, "formatted with a description");
    return treadle_jinja_print(s->machine, w, v);
  }
  bool zeros = f.zeros && f.align == '=';
  if (zeros) f.align = '<';
  if (f.align == '=' || f.sign || f.alternate || f.group || (f.type && f.type != 's'))
    REFUSE("a format for numbers is given a str");
  return treadle_jinja_format_text(s->machine, w, &f, v.text);
}

/* !s !r !a */
static treadle_status convert(machine *m, char how, value *value_p) {
  writer w = {0};
  if (how == 'a') return treadle_jinja_ascii(m, *value_p, value_p);
  if (how != 's' && how != 'r') REFUSE("a conversion in a format is !s, !r or !a");
  PASS(how == 's' ? treadle_jinja_print(m, &w, *value_p) : treadle_jinja_represent(m, &w, *value_p));
  return treadle_jinja_written(m, &w, value_p);
}

static treadle_status escape_into(state *s, writer *w, const writer *made, value v) {
  value text_value;
  if (!s->safe || (v.kind == JINJA_TEXT && v.text->safe))
    return treadle_jinja_write(s->machine, w, made->bytes, made->length);
  PASS(treadle_jinja_written(s->machine, made, &text_value));
  return treadle_jinja_escape(s->machine, w, text_value.text);
}

/* One field without its braces. The description may hold fields itself. */
static treadle_status write_field(state *s, writer *w, const char *bytes, size_t length, int level) {
  size_t end = 0;
  value v, spec_text;
  writer spec = {0}, made = {0};
  for (bool open = false; end < length && (open || (bytes[end] != '!' && bytes[end] != ':')); end++)
    open = (open || bytes[end] == '[') && bytes[end] != ']';
  PASS(find_value(s, bytes, end, &v));
  if (end < length && bytes[end] == '!') {
    if (end + 1 >= length || (end + 2 < length && bytes[end + 2] != ':'))
      REFUSE("a conversion in a format is !s, !r or !a");
    PASS(convert(s->machine, bytes[end + 1], &v));
    end += 2;
  }
  if (end < length) PASS(write_fields(s, &spec, bytes + end + 1, length - end - 1, level + 1));
  PASS(treadle_jinja_written(s->machine, &spec, &spec_text));
  PASS(write_value(s, &made, v, spec_text.text));
  return escape_into(s, w, &made, v);
}

/* The end of a field that begins at `at`: its closing brace; 0: there is none. */
static size_t end_of_field(const char *bytes, size_t length, size_t at) {
  for (size_t depth = 1; at < length; at++) {
    if (bytes[at] == '{') depth++;
    if (bytes[at] == '}' && --depth == 0) return at;
  }
  return 0;
}

static treadle_status write_fields(state *s, writer *w, const char *bytes, size_t length, int level) {
  if (level > 2) REFUSE("fields of a format are nested too deep");
  for (size_t at = 0; at < length;) {
    char c = bytes[at];
    if (c != '{' && c != '}') {
      PASS(treadle_jinja_write(s->machine, w, &c, 1));
      at++;
    } else if (at + 1 < length && bytes[at + 1] == c && level == 0) {
      PASS(treadle_jinja_write(s->machine, w, &c, 1));
      at += 2;
    } else {
      size_t end = c == '{' ? end_of_field(bytes, length, at + 1) : 0;
      if (!end) REFUSE("a format has a single '%c'", c);
      PASS(write_field(s, w, bytes + at + 1, end - at - 1, level));
      at = end + 1;
    }
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_format(machine *m, const text *t, value items, value names, value *result_p) {
  writer w = {0};
  state s = {m, items.list->items, items.list->count, names, 0, false, t->safe};
  PASS(write_fields(&s, &w, t->bytes, t->length, 0));
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, t->safe, result_p);
}

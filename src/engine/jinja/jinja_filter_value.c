/* Filters of any value: numbers, defaults, JSON. */
#include "jinja/jinja_filters.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_text.h"

#include <math.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;

static treadle_status use_default(machine *m, call *c, value *result_p) {
  bool missing = c->self.kind == JINJA_UNDEFINED ||
                 (treadle_jinja_flag(c->bound[1], false) && !treadle_jinja_is_true(c->self));
  *result_p = c->self;
  if (missing && c->bound[0].kind == JINJA_ABSENT) return treadle_jinja_plain(m, "", result_p);
  if (missing) *result_p = c->bound[0];
  return TREADLE_OK;
}

static treadle_status absolute(machine *m, call *c, value *result_p) {
  value v = c->self;
  if (!treadle_jinja_is_number(v)) return treadle_jinja_unfit(v, "made absolute");
  if (v.kind == JINJA_BOOL) v = treadle_jinja_int(v.truth);
  *result_p = v;
  if (v.kind == JINJA_FLOAT) {
    *result_p = treadle_jinja_float(fabs(v.real));
    return TREADLE_OK;
  }
  if (treadle_jinja_compare_numbers(v, treadle_jinja_int(0)) >= 0) return TREADLE_OK;
  return treadle_jinja_negate(m, v, result_p);
}

/* A number of a text or a number; *read_p false: neither. */
static treadle_status read_float(machine *m, value v, bool *read_p, double *real_p) {
  *read_p = treadle_jinja_is_number(v);
  if (*read_p) return treadle_jinja_to_double(v, real_p);
  return v.kind == JINJA_TEXT ? treadle_jinja_read_float(m, v.text, read_p, real_p)
                              : treadle_jinja_defined(v);
}

/* A text that is not a whole number may be a float: "42.23" is 42. */
static treadle_status to_int(machine *m, call *c, value *result_p) {
  bool read = false;
  int64_t base;
  double real = NAN;
  *result_p = c->bound[0].kind == JINJA_ABSENT ? treadle_jinja_int(0) : c->bound[0];
  PASS(treadle_jinja_whole_argument(c->bound[1], "base", 10, &base));
  if (c->self.kind == JINJA_TEXT) {
    value whole;
    int small = base < 0 || base > 36 ? 1 : (int)base;
    PASS(treadle_jinja_read_whole(m, c->self.text, small, &read, &whole));
    if (read) {
      *result_p = whole;
      return TREADLE_OK;
    }
  } else if (treadle_jinja_is_whole(c->self)) {
    *result_p = c->self.kind == JINJA_BOOL ? treadle_jinja_int(c->self.truth) : c->self;
    return TREADLE_OK;
  }
  PASS(read_float(m, c->self, &read, &real));
  if (!read || isnan(real) || isinf(real)) {
    if (c->self.kind == JINJA_FLOAT && isinf(real)) REFUSE("infinity cannot be made an int");
    return TREADLE_OK;
  }
  return treadle_jinja_to_whole(m, real, result_p);
}

static treadle_status to_float(machine *m, call *c, value *result_p) {
  bool read;
  double real;
  PASS(read_float(m, c->self, &read, &real));
  *result_p = c->bound[0].kind == JINJA_ABSENT ? treadle_jinja_float(0) : c->bound[0];
  if (read) *result_p = treadle_jinja_float(real);
  return TREADLE_OK;
}

/* floor or ceil of value * 10 ** digits, over 10 ** digits. */
static treadle_status round_to_side(machine *m, value v, int64_t digits, bool up, value *result_p) {
  value power, scaled, whole;
  double real;
  PASS(treadle_jinja_reckon(m, '^', treadle_jinja_int(10), treadle_jinja_int(digits), &power));
  PASS(treadle_jinja_reckon(m, '*', v, power, &scaled));
  whole = scaled;
  if (scaled.kind == JINJA_FLOAT) {
    real = up ? ceil(scaled.real) : floor(scaled.real);
    PASS(treadle_jinja_to_whole(m, real, &whole));
  }
  return treadle_jinja_reckon(m, '/', whole, power, result_p);
}

static treadle_status round_number(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *method = NULL;
  int64_t digits;
  PASS(treadle_jinja_whole_argument(c->bound[0], "precision", 0, &digits));
  if (c->bound[1].kind != JINJA_ABSENT) PASS(treadle_jinja_text_argument(c->bound[1], "method", &method));
  if (!treadle_jinja_is_number(c->self)) return treadle_jinja_unfit(c->self, "rounded");
  if (!method || treadle_jinja_equals(method, "common"))
    return treadle_jinja_round(m, c->self, digits, result_p);
  bool up = treadle_jinja_equals(method, "ceil");
  if (!up && !treadle_jinja_equals(method, "floor")) REFUSE("the method of round is common, ceil or floor");
  return round_to_side(m, c->self, digits, up, result_p);
}

static treadle_status to_string(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  *result_p = treadle_jinja_of_text(text);
  return TREADLE_OK;
}

static treadle_status attribute(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *name;
  char buffer[256];
  PASS(treadle_jinja_text_argument(c->bound[0], "name", &name));
  if (name->length >= sizeof buffer || memchr(name->bytes, 0, name->length))
    return treadle_jinja_undefined_in(m, c->self, c->bound[0], false, result_p);
  memcpy(buffer, name->bytes, name->length);
  buffer[name->length] = 0;
  return treadle_jinja_attribute_only(m, c->self, buffer, result_p);
}

/* ---- tojson --------------------------------------------------------------------------------------------- */

/* separators=(item, key) */
static treadle_status set_separators(machine *m, value given, treadle_jinja_dump *how) {
  const value *items;
  size_t count;
  PASS(treadle_jinja_items(m, given, &items, &count));
  if (count != 2) REFUSE("the argument 'separators' has two texts");
  PASS(treadle_jinja_text_argument(items[0], "separators", &how->item));
  return treadle_jinja_text_argument(items[1], "separators", &how->key);
}

static treadle_status plain_text(machine *m, const char *plain, const treadle_jinja_text **text_p) {
  value v;
  PASS(treadle_jinja_plain(m, plain, &v));
  *text_p = v.text;
  return TREADLE_OK;
}

static treadle_status set_indent(machine *m, value given, treadle_jinja_dump *how) {
  int64_t width;
  value spaces;
  how->lines = given.kind != JINJA_ABSENT && given.kind != JINJA_NONE;
  if (!how->lines || given.kind == JINJA_TEXT) {
    if (how->lines) how->indent = given.text;
    return TREADLE_OK;
  }
  PASS(treadle_jinja_whole_argument(given, "indent", 0, &width));
  PASS(treadle_jinja_plain(m, " ", &spaces));
  PASS(treadle_jinja_operate(m, '*', spaces, treadle_jinja_int(width), &spaces));
  how->indent = spaces.text;
  return TREADLE_OK;
}

static treadle_status to_json(machine *m, call *c, value *result_p) {
  treadle_jinja_writer w = {0};
  treadle_jinja_dump how = {.ascii = treadle_jinja_flag(c->bound[0], false),
                            .sorted = treadle_jinja_flag(c->bound[3], false)};
  PASS(set_indent(m, c->bound[1], &how));
  PASS(plain_text(m, how.lines ? "," : ", ", &how.item));
  PASS(plain_text(m, ": ", &how.key));
  if (c->bound[2].kind != JINJA_ABSENT && c->bound[2].kind != JINJA_NONE)
    PASS(set_separators(m, c->bound[2], &how));
  PASS(treadle_jinja_dump_json(m, &w, &how, c->self));
  return treadle_jinja_written(m, &w, result_p);
}

const treadle_jinja_row treadle_jinja_value_filters[] = {
    {"abs", absolute, ""},
    {"attr", attribute, "name"},
    {"d", use_default, "default_value? boolean?"},
    {"default", use_default, "default_value? boolean?"},
    {"float", to_float, "default?"},
    {"int", to_int, "default? base?"},
    {"round", round_number, "precision? method?"},
    {"string", to_string, ""},
    {"tojson", to_json, "ensure_ascii? indent? separators? sort_keys?"},
    {NULL, NULL, NULL}};

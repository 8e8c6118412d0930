/* Tests: what stands behind `is`. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;

static treadle_status answer(bool truth, value *result_p) {
  *result_p = treadle_jinja_bool(truth);
  return TREADLE_OK;
}

/* ---- Of what type ---------------------------------------------------------------------------------------- */

#define TEST(name, condition)                                                                              \
  static treadle_status name(machine *m, call *c, value *result_p) {                                       \
    (void)m;                                                                                               \
    value v = c->self;                                                                                     \
    return answer(condition, result_p);                                                                    \
  }

TEST(is_defined, v.kind != JINJA_UNDEFINED)
TEST(is_undefined, v.kind == JINJA_UNDEFINED)
TEST(is_none, v.kind == JINJA_NONE)
TEST(is_boolean, v.kind == JINJA_BOOL)
TEST(is_true, v.kind == JINJA_BOOL && v.truth)
TEST(is_false, v.kind == JINJA_BOOL && !v.truth)
TEST(is_integer, v.kind == JINJA_INT || v.kind == JINJA_BIG)
TEST(is_float, v.kind == JINJA_FLOAT)
TEST(is_number, treadle_jinja_is_number(v))
TEST(is_string, v.kind == JINJA_TEXT)
TEST(is_mapping, v.kind == JINJA_DICT)
TEST(is_iterable, treadle_jinja_is_iterable(v))
TEST(is_callable, treadle_jinja_is_callable(v))
TEST(is_escaped, v.kind == JINJA_TEXT && v.text->safe)
TEST(is_same, treadle_jinja_is_same(v, c->bound[0]))

/* What has a length and elements; an undefined value seems to have both. */
TEST(is_sequence, v.kind == JINJA_TEXT || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE ||
                      v.kind == JINJA_DICT || v.kind == JINJA_RANGE || v.kind == JINJA_UNDEFINED)

static treadle_status is_cased(machine *m, call *c, bool upper, value *result_p) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  PASS(treadle_jinja_look(m, text));
  return answer(treadle_jinja_all_cased(text, upper), result_p);
}
static treadle_status is_upper(machine *m, call *c, value *result_p) {
  return is_cased(m, c, true, result_p);
}
static treadle_status is_lower(machine *m, call *c, value *result_p) {
  return is_cased(m, c, false, result_p);
}

static treadle_status is_name_of(call *c, const treadle_jinja_row *(*find)(const char *), value *result_p) {
  char name[64] = {0};
  bool fits = c->self.kind == JINJA_TEXT && c->self.text->length < sizeof name;
  if (c->self.kind == JINJA_LIST || c->self.kind == JINJA_DICT)
    return treadle_jinja_unfit(c->self, "a name");
  if (fits) memcpy(name, c->self.text->bytes, c->self.text->length);
  return answer(fits && strlen(name) == c->self.text->length && find(name), result_p);
}
static treadle_status is_filter(machine *m, call *c, value *result_p) {
  (void)m;
  return is_name_of(c, treadle_jinja_filter, result_p);
}
static treadle_status is_test(machine *m, call *c, value *result_p) {
  (void)m;
  return is_name_of(c, treadle_jinja_test, result_p);
}

/* ---- Numbers --------------------------------------------------------------------------------------------- */

/* Is value % by == rest? The value may be a text, which % formats: then it is not. */
static treadle_status has_rest(machine *m, value v, value by, int64_t rest, value *result_p) {
  value got;
  bool equal;
  PASS(treadle_jinja_operate(m, '%', v, by, &got));
  PASS(treadle_jinja_equal(m, got, treadle_jinja_int(rest), &equal));
  return answer(equal, result_p);
}
static treadle_status is_odd(machine *m, call *c, value *result_p) {
  return has_rest(m, c->self, treadle_jinja_int(2), 1, result_p);
}
static treadle_status is_even(machine *m, call *c, value *result_p) {
  return has_rest(m, c->self, treadle_jinja_int(2), 0, result_p);
}
static treadle_status is_divisible(machine *m, call *c, value *result_p) {
  return has_rest(m, c->self, c->bound[0], 0, result_p);
}

/* ---- Comparing ------------------------------------------------------------------------------------------- */

static treadle_status compare(machine *m, call *c, const char *op, value *result_p) {
  bool holds;
  PASS(treadle_jinja_compare(m, op, c->self, c->bound[0], &holds));
  return answer(holds, result_p);
}
static treadle_status is_equal(machine *m, call *c, value *result_p) {
  return compare(m, c, "==", result_p);
}
static treadle_status is_other(machine *m, call *c, value *result_p) {
  return compare(m, c, "!=", result_p);
}
static treadle_status is_less(machine *m, call *c, value *result_p) { return compare(m, c, "<", result_p); }
static treadle_status is_most(machine *m, call *c, value *result_p) {
  return compare(m, c, "<=", result_p);
}
static treadle_status is_greater(machine *m, call *c, value *result_p) {
  return compare(m, c, ">", result_p);
}
static treadle_status is_least(machine *m, call *c, value *result_p) {
  return compare(m, c, ">=", result_p);
}

static treadle_status is_in(machine *m, call *c, value *result_p) {
  bool found;
  PASS(treadle_jinja_contains(m, c->bound[0], c->self, &found));
  return answer(found, result_p);
}

const treadle_jinja_row *treadle_jinja_test(const char *name) {
  static const treadle_jinja_row rows[] = {{"defined", is_defined, ""},
                                           {"undefined", is_undefined, ""},
                                           {"none", is_none, ""},
                                           {"boolean", is_boolean, ""},
                                           {"true", is_true, ""},
                                           {"false", is_false, ""},
                                           {"integer", is_integer, ""},
                                           {"float", is_float, ""},
                                           {"number", is_number, ""},
                                           {"string", is_string, ""},
                                           {"mapping", is_mapping, ""},
                                           {"iterable", is_iterable, ""},
                                           {"sequence", is_sequence, ""},
                                           {"callable", is_callable, ""},
                                           {"escaped", is_escaped, ""},
                                           {"sameas", is_same, "other"},
                                           {"upper", is_upper, ""},
                                           {"lower", is_lower, ""},
                                           {"filter", is_filter, ""},
                                           {"test", is_test, ""},
                                           {"odd", is_odd, ""},
                                           {"even", is_even, ""},
                                           {"divisibleby", is_divisible, "num"},
                                           {"in", is_in, "seq"},
                                           {"==", is_equal, "/b"},
                                           {"eq", is_equal, "/b"},
                                           {"equalto", is_equal, "/b"},
                                           {"!=", is_other, "/b"},
                                           {"ne", is_other, "/b"},
                                           {"<", is_less, "/b"},
                                           {"lt", is_less, "/b"},
                                           {"lessthan", is_less, "/b"},
                                           {"<=", is_most, "/b"},
                                           {"le", is_most, "/b"},
                                           {">", is_greater, "/b"},
                                           {"gt", is_greater, "/b"},
                                           {"greaterthan", is_greater, "/b"},
                                           {">=", is_least, "/b"},
                                           {"ge", is_least, "/b"},
                                           {NULL, NULL, NULL}};
  return treadle_jinja_row_of(rows, name);
}

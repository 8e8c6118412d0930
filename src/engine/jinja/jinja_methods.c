/* Methods of lists, tuples, ranges, dicts, numbers and cyclers: those that change nothing. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <math.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;

static treadle_status count_items(machine *m, call *c, value *result_p) {
  const value *items;
  size_t count;
  int64_t found = 0;
  PASS(treadle_jinja_items(m, c->self, &items, &count));
  for (size_t i = 0; i < count; i++) {
    bool equal;
    PASS(treadle_jinja_equal(m, items[i], c->bound[0], &equal));
    found += equal;
  }
  *result_p = treadle_jinja_int(found);
  return TREADLE_OK;
}

/* A bound from the end, if it is below 0. */
static treadle_status bound(value v, const char *what, int64_t otherwise, int64_t length,
                            int64_t *bound_p) {
  PASS(treadle_jinja_whole_argument(v, what, otherwise, bound_p));
  if (*bound_p < 0) *bound_p = *bound_p < -length ? 0 : *bound_p + length;
  return TREADLE_OK;
}

static treadle_status index_of(machine *m, call *c, value *result_p) {
  const value *items;
  size_t count;
  int64_t from, to;
  PASS(treadle_jinja_items(m, c->self, &items, &count));
  PASS(bound(c->bound[1], "start", 0, (int64_t)count, &from));
  PASS(bound(c->bound[2], "stop", INT64_MAX, (int64_t)count, &to));
  for (int64_t i = from; i < to && i < (int64_t)count; i++) {
    bool equal;
    PASS(treadle_jinja_equal(m, items[i], c->bound[0], &equal));
    if (!equal) continue;
    *result_p = treadle_jinja_int(i);
    return TREADLE_OK;
  }
  REFUSE("index: the value is not among the items");
}

static treadle_status itself(machine *m, call *c, value *result_p) {
  (void)m;
  *result_p = c->self;
  return TREADLE_OK;
}

const treadle_jinja_row treadle_jinja_list_methods[] = {{"copy", itself, "/"},
                                                        {"count", count_items, "/value"},
                                                        {"index", index_of, "/value start? stop?"},
                                                        {NULL, NULL, NULL}};

/* ---- Dicts ------------------------------------------------------------------------------------------------ */

static treadle_status get(machine *m, call *c, value *result_p) {
  int64_t index;
  PASS(treadle_jinja_dict_find(m, c->self.dict, c->bound[0], &index));
  *result_p = index >= 0                         ? c->self.dict->values[index]
              : c->bound[1].kind != JINJA_ABSENT ? c->bound[1]
                                                 : treadle_jinja_none();
  return TREADLE_OK;
}

static treadle_status view(call *c, treadle_jinja_kind kind, value *result_p) {
  *result_p = (value){.kind = kind, .dict = c->self.dict};
  return TREADLE_OK;
}
static treadle_status keys(machine *m, call *c, value *result_p) {
  (void)m;
  return view(c, JINJA_KEYS, result_p);
}
static treadle_status values(machine *m, call *c, value *result_p) {
  (void)m;
  return view(c, JINJA_VALUES, result_p);
}
static treadle_status items(machine *m, call *c, value *result_p) {
  (void)m;
  return view(c, JINJA_ITEMS, result_p);
}

static treadle_status from_keys(machine *m, call *c, value *result_p) {
  const value *all;
  size_t count;
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_items(m, c->bound[0], &all, &count));
  PASS(treadle_jinja_dict_make(m, count, &dict));
  value v = c->bound[1].kind == JINJA_ABSENT ? treadle_jinja_none() : c->bound[1];
  for (size_t i = 0; i < count; i++) PASS(treadle_jinja_dict_put(m, dict, all[i], v));
  *result_p = (value){.kind = JINJA_DICT, .dict = dict};
  return TREADLE_OK;
}

const treadle_jinja_row treadle_jinja_dict_methods[] = {{"copy", itself, "/"},
                                                        {"fromkeys", from_keys, "/iterable value?"},
                                                        {"get", get, "/key default?"},
                                                        {"items", items, "/"},
                                                        {"keys", keys, "/"},
                                                        {"values", values, "/"},
                                                        {NULL, NULL, NULL}};

/* ---- Numbers ---------------------------------------------------------------------------------------------- */

static treadle_status is_integer(machine *m, call *c, value *result_p) {
  (void)m;
  *result_p = treadle_jinja_bool(floor(c->self.real) == c->self.real);
  return TREADLE_OK;
}

static treadle_status bit_length(machine *m, call *c, value *result_p) {
  treadle_jinja_writer bits = {0};
  value size = c->self;
  if (treadle_jinja_compare_numbers(size, treadle_jinja_int(0)) < 0)
    PASS(treadle_jinja_negate(m, size, &size));
  PASS(treadle_jinja_write_whole(m, &bits, size, 2));
  *result_p = treadle_jinja_int(bits.bytes[0] == '0' ? 0 : (int64_t)bits.length);
  return TREADLE_OK;
}

const treadle_jinja_row treadle_jinja_int_methods[] = {
    {"bit_length", bit_length, "/"}, {"conjugate", itself, "/"}, {NULL, NULL, NULL}};
const treadle_jinja_row treadle_jinja_float_methods[] = {
    {"is_integer", is_integer, "/"}, {"conjugate", itself, "/"}, {"hex", NULL, "*"}, {NULL, NULL, NULL}};

/* ---- Cyclers ----------------------------------------------------------------------------------------------- */

static treadle_status next(machine *m, call *c, value *result_p) {
  (void)m;
  treadle_jinja_cycler *cycler = c->self.cycler;
  *result_p = cycler->items[cycler->at];
  cycler->at = (cycler->at + 1) % cycler->count;
  return TREADLE_OK;
}

static treadle_status reset(machine *m, call *c, value *result_p) {
  (void)m;
  c->self.cycler->at = 0;
  *result_p = treadle_jinja_none();
  return TREADLE_OK;
}

const treadle_jinja_row treadle_jinja_cycler_methods[] = {
    {"next", next, ""}, {"reset", reset, ""}, {NULL, NULL, NULL}};

/* Comparing values as Python does: numbers by value, whatever their types; texts by code points, which is the order of their bytes;
 * lists and tuples item by item. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;

static treadle_status equal_lists(machine *m, value a, value b, bool *equal_p) {
  *equal_p = a.list->count == b.list->count;
  for (size_t i = 0; *equal_p && i < a.list->count; i++)
    PASS(treadle_jinja_equal(m, a.list->items[i], b.list->items[i], equal_p));
  return TREADLE_OK;
}

static treadle_status equal_dicts(machine *m, const treadle_jinja_dict *a, const treadle_jinja_dict *b,
                                  bool *equal_p) {
  *equal_p = a->count == b->count;
  for (size_t i = 0; *equal_p && i < a->count; i++) {
    int64_t index;
    PASS(treadle_jinja_dict_find(m, b, a->keys[i], &index));
    *equal_p = index >= 0;
    if (*equal_p) PASS(treadle_jinja_equal(m, a->values[i], b->values[index], equal_p));
  }
  return TREADLE_OK;
}

static bool equal_ranges(const treadle_jinja_range *a, const treadle_jinja_range *b) {
  if (a->count != b->count) return false;
  return a->count == 0 || (a->start == b->start && (a->count == 1 || a->step == b->step));
}

/* Large ones are compared limb by limb. */
static treadle_status count_numbers(machine *m, value a, value b) {
  return a.kind == JINJA_BIG || b.kind == JINJA_BIG ? treadle_jinja_step(m, 8) : TREADLE_OK;
}

static treadle_status equal(machine *m, value a, value b, bool *equal_p) {
  *equal_p = false;
  if (treadle_jinja_is_number(a) && treadle_jinja_is_number(b)) {
    PASS(count_numbers(m, a, b));
    *equal_p = treadle_jinja_compare_numbers(a, b) == 0;
    return TREADLE_OK;
  }
  if (a.kind != b.kind) return TREADLE_OK;
  switch (a.kind) {
  case JINJA_UNDEFINED:
  case JINJA_NONE: *equal_p = true; return TREADLE_OK;
  case JINJA_TEXT:
    if (a.text->length != b.text->length) return TREADLE_OK;
    PASS(treadle_jinja_work(m, a.text->length));
    *equal_p = a.text == b.text || memcmp(a.text->bytes, b.text->bytes, a.text->length) == 0;
    return TREADLE_OK;
  case JINJA_LIST:
  case JINJA_TUPLE: return equal_lists(m, a, b, equal_p);
  case JINJA_DICT:
  case JINJA_KEYS:
  case JINJA_ITEMS:
    if (a.dict != b.dict) return equal_dicts(m, a.dict, b.dict, equal_p);
    *equal_p = true;
    return TREADLE_OK;
  case JINJA_RANGE: *equal_p = equal_ranges(a.range, b.range); return TREADLE_OK;
  case JINJA_METHOD: return TREADLE_OK;
  default: *equal_p = a.list == b.list; return TREADLE_OK; /* the same object */
  }
}

treadle_status treadle_jinja_equal(machine *m, value a, value b, bool *equal_p) {
  PASS(treadle_jinja_step(m, 1));
  PASS(treadle_jinja_enter(m));
  treadle_status status = equal(m, a, b, equal_p);
  m->depth--;
  return status;
}

static bool holds(const char *op, int order) {
  if (order == 2) return false;
  if (op[1] == '=' && order == 0) return true;
  return op[0] == '<' ? order < 0 : order > 0;
}

static int order_texts(const treadle_jinja_text *a, const treadle_jinja_text *b) {
  size_t common = a->length < b->length ? a->length : b->length;
  int order = common ? memcmp(a->bytes, b->bytes, common) : 0;
  return order ? order : (a->length > b->length) - (a->length < b->length);
}

static treadle_status order(machine *m, const char *op, value a, value b, bool *holds_p);

/* The first items that differ decide. */
static treadle_status order_lists(machine *m, const char *op, value a, value b, bool *holds_p) {
  size_t common = a.list->count < b.list->count ? a.list->count : b.list->count;
  for (size_t i = 0; i < common; i++) {
    bool same;
    PASS(treadle_jinja_equal(m, a.list->items[i], b.list->items[i], &same));
    if (!same) return order(m, op, a.list->items[i], b.list->items[i], holds_p);
  }
  *holds_p = holds(op, (a.list->count > b.list->count) - (a.list->count < b.list->count));
  return TREADLE_OK;
}

static treadle_status order(machine *m, const char *op, value a, value b, bool *holds_p) {
  PASS(treadle_jinja_step(m, 1));
  if (treadle_jinja_is_number(a) && treadle_jinja_is_number(b)) {
    PASS(count_numbers(m, a, b));
    *holds_p = holds(op, treadle_jinja_compare_numbers(a, b));
    return TREADLE_OK;
  }
  if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT) {
    PASS(treadle_jinja_work(m, a.text->length < b.text->length ? a.text->length : b.text->length));
    *holds_p = holds(op, order_texts(a.text, b.text));
    return TREADLE_OK;
  }
  if ((a.kind == JINJA_LIST || a.kind == JINJA_TUPLE) && a.kind == b.kind) {
    PASS(treadle_jinja_enter(m));
    treadle_status status = order_lists(m, op, a, b, holds_p);
    m->depth--;
    return status;
  }
  PASS(treadle_jinja_defined(a));
  PASS(treadle_jinja_defined(b));
  REFUSE("'%s' does not compare values of types %s and %s", op, treadle_jinja_type(a),
         treadle_jinja_type(b));
}

treadle_status treadle_jinja_compare(machine *m, const char *op, value a, value b, bool *holds_p) {
  if (op[0] == '<' || op[0] == '>') return order(m, op, a, b, holds_p);
  PASS(treadle_jinja_equal(m, a, b, holds_p));
  if (op[0] == '!') *holds_p = !*holds_p;
  return TREADLE_OK;
}

static treadle_status contains_text(machine *m, value container, value item, bool *found_p) {
  if (item.kind != JINJA_TEXT) {
    PASS(treadle_jinja_defined(item));
    REFUSE("'in' looks for a str in a str, not for a value of type %s", treadle_jinja_type(item));
  }
  size_t found;
  PASS(treadle_jinja_find(m, container.text, item.text, 0, container.text->length, &found));
  *found_p = found != SIZE_MAX;
  return TREADLE_OK;
}

treadle_status treadle_jinja_contains(machine *m, value container, value item, bool *found_p) {
  treadle_jinja_iterator *it;
  int64_t index;
  value one;
  bool got;
  if (container.kind == JINJA_TEXT) return contains_text(m, container, item, found_p);
  if (container.kind == JINJA_DICT || container.kind == JINJA_KEYS) {
    PASS(treadle_jinja_dict_find(m, container.dict, item, &index));
    *found_p = index >= 0;
    return TREADLE_OK;
  }
  *found_p = false;
  if (!treadle_jinja_is_iterable(container)) return treadle_jinja_unfit(container, "searched by 'in'");
  PASS(treadle_jinja_iterate(m, container, &it));
  while (!*found_p) {
    PASS(treadle_jinja_next_of(m, it, &one, &got));
    if (!got) break;
    *found_p =
        one.kind == item.kind && one.kind > JINJA_TEXT && one.list == item.list; /* the same object */
    if (!*found_p) PASS(treadle_jinja_equal(m, one, item, found_p));
  }
  return TREADLE_OK;
}

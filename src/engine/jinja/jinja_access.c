/* value.name and value[key], in the sandbox: methods that would change a list or a dict, and names with underscores in front, give an
 * undefined value that refuses to be used. A dict's methods come before its keys where a '.' stands, behind them where
 * brackets stand. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <math.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;

typedef enum found { NOT_FOUND, FOUND, FORBIDDEN } found;

static treadle_status make_method(machine *m, value self, const treadle_jinja_row *row, value *value_p) {
  treadle_jinja_method *method;
  PASS(treadle_jinja_alloc(m, 1, sizeof *method, &method));
  *method = (treadle_jinja_method){self, row};
  *value_p = (value){.kind = JINJA_METHOD, .method = method};
  return TREADLE_OK;
}

static bool is_among(const char *const *words, const char *name) {
  for (; *words; words++)
    if (strcmp(*words, name) == 0) return true;
  return false;
}

/* A method that changes its value. */
static bool is_forbidden(value v, const char *name) {
  static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
  static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                        "sort",   "extend", "remove", NULL};
  size_t length = strlen(name);
  if (length > 4 && strncmp(name, "__", 2) == 0 && strcmp(name + length - 2, "__") == 0) return true;
  if (v.kind == JINJA_DICT) return is_among(of_dict, name);
  return v.kind == JINJA_LIST && is_among(of_list, name);
}

static const treadle_jinja_row *methods_of(value v) {
  switch (v.kind) {
  case JINJA_TEXT: return treadle_jinja_text_methods;
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_RANGE: return treadle_jinja_list_methods;
  case JINJA_DICT: return treadle_jinja_dict_methods;
  case JINJA_BOOL:
  case JINJA_INT:
  case JINJA_BIG: return treadle_jinja_int_methods;
  case JINJA_FLOAT: return treadle_jinja_float_methods;
  case JINJA_LOOP: return treadle_jinja_loop_methods;
  case JINJA_CYCLER: return treadle_jinja_cycler_methods;
  default: return NULL;
  }
}

/* Attributes that are no methods. */
static treadle_status get_field(machine *m, value v, const char *name, bool *got_p, value *value_p) {
  const value *member;
  *got_p = false;
  switch (v.kind) {
  case JINJA_NAMESPACE:
    member = treadle_jinja_dict_get(v.names, name);
    *got_p = member != NULL;
    if (member) *value_p = *member;
    return TREADLE_OK;
  case JINJA_TUPLE:
    *got_p = v.list->group && (strcmp(name, "grouper") == 0 || strcmp(name, "list") == 0);
    if (*got_p) *value_p = v.list->items[*name == 'l'];
    return TREADLE_OK;
  case JINJA_RANGE:
    *got_p = strcmp(name, "start") == 0 || strcmp(name, "stop") == 0 || strcmp(name, "step") == 0;
    *value_p = treadle_jinja_int(name[2] == 'a'   ? v.range->start
                                 : name[2] == 'o' ? v.range->stop
                                                  : v.range->step);
    return TREADLE_OK;
  case JINJA_BOOL:
  case JINJA_INT:
  case JINJA_BIG:
    *got_p = strcmp(name, "real") == 0 || strcmp(name, "numerator") == 0 || strcmp(name, "imag") == 0 ||
             strcmp(name, "denominator") == 0;
    if (v.kind == JINJA_BOOL) v = treadle_jinja_int(v.truth);
    *value_p = *name == 'i' ? treadle_jinja_int(0) : *name == 'd' ? treadle_jinja_int(1) : v;
    return TREADLE_OK;
  case JINJA_FLOAT:
    *got_p = strcmp(name, "real") == 0 || strcmp(name, "imag") == 0;
    *value_p = *name == 'i' ? treadle_jinja_float(0) : v;
    return TREADLE_OK;
  case JINJA_CYCLER:
    *got_p = strcmp(name, "current") == 0;
    if (*got_p) *value_p = v.cycler->items[v.cycler->at];
    return TREADLE_OK;
  case JINJA_JOINER:
    *got_p = strcmp(name, "sep") == 0 || strcmp(name, "used") == 0;
    *value_p = *name == 's' ? v.joiner->separator : treadle_jinja_bool(v.joiner->used);
    return TREADLE_OK;
  case JINJA_MACRO: return treadle_jinja_macro_attribute(m, v.macro, name, got_p, value_p);
  case JINJA_LOOP: return treadle_jinja_loop_attribute(m, v, name, got_p, value_p);
  default: return TREADLE_OK;
  }
}

static treadle_status find_attribute(machine *m, value v, const char *name, found *found_p,
                                     value *value_p) {
  bool got;
  *found_p = NOT_FOUND;
  static const char *const of_all[] = {"__class__", "__doc__", "__init__", NULL};
  if (v.kind == JINJA_UNDEFINED && !is_among(of_all, name)) return treadle_jinja_defined(v);
  PASS(get_field(m, v, name, &got, value_p));
  const treadle_jinja_row *methods = methods_of(v),
                          *row = got || !methods ? NULL : treadle_jinja_row_of(methods, name);
  if (row && methods == treadle_jinja_list_methods && v.kind != JINJA_LIST && strcmp(name, "copy") == 0)
    row = NULL;
  if (row) PASS(make_method(m, v, row, value_p));
  if (got || row) *found_p = *name == '_' ? FORBIDDEN : FOUND;
  if (!got && !row && is_forbidden(v, name)) *found_p = FORBIDDEN;
  return TREADLE_OK;
}

/* value[key] alone. */
static treadle_status find_element(machine *m, value v, value key, bool *got_p, value *value_p) {
  int64_t index, length = treadle_jinja_length(v);
  *got_p = false;
  if (v.kind == JINJA_UNDEFINED) return treadle_jinja_defined(v);
  if (v.kind == JINJA_DICT) {
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT) return TREADLE_OK;
    PASS(treadle_jinja_dict_find(m, v.dict, key, &index));
    *got_p = index >= 0;
    if (*got_p) *value_p = v.dict->values[index];
    return TREADLE_OK;
  }
  bool sequence =
      v.kind == JINJA_TEXT || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_RANGE;
  if (!sequence || key.kind == JINJA_BIG || !treadle_jinja_to_index(key, &index)) return TREADLE_OK;
  if (index < 0) index += length;
  *got_p = index >= 0 && index < length;
  return *got_p ? treadle_jinja_item(m, v, index, value_p) : TREADLE_OK;
}

treadle_status treadle_jinja_attribute(machine *m, value v, const char *name, value *result_p) {
  found how;
  bool got;
  value key;
  PASS(find_attribute(m, v, name, &how, result_p));
  if (how == FOUND) return TREADLE_OK;
  PASS(treadle_jinja_plain(m, name, &key));
  if (how == NOT_FOUND) {
    PASS(find_element(m, v, key, &got, result_p));
    if (got) return TREADLE_OK;
  }
  return treadle_jinja_undefined_in(m, v, key, how == FORBIDDEN, result_p);
}

/* A text as a name that ends with a 0 byte; NULL where it has one inside or is too long for a name. */
static const char *name_of(const treadle_jinja_text *text, char to[256]) {
  if (text->length >= 256 || memchr(text->bytes, 0, text->length)) return NULL;
  memcpy(to, text->bytes, text->length);
  to[text->length] = 0;
  return to;
}

treadle_status treadle_jinja_element(machine *m, value v, value key, value *result_p) {
  found how = NOT_FOUND;
  bool got;
  char buffer[256];
  PASS(find_element(m, v, key, &got, result_p));
  if (got) return TREADLE_OK;
  const char *name = key.kind == JINJA_TEXT ? name_of(key.text, buffer) : NULL;
  if (name) PASS(find_attribute(m, v, name, &how, result_p));
  if (how == FOUND) return TREADLE_OK;
  return treadle_jinja_undefined_in(m, v, key, how == FORBIDDEN, result_p);
}

treadle_status treadle_jinja_attribute_only(machine *m, value v, const char *name, value *result_p) {
  found how;
  value key;
  PASS(find_attribute(m, v, name, &how, result_p));
  if (how == FOUND) return TREADLE_OK;
  PASS(treadle_jinja_copy(m, name, strlen(name), &key));
  return treadle_jinja_undefined_in(m, v, key, how == FORBIDDEN, result_p);
}

/* ---- Slices ------------------------------------------------------------------------------------------- */

static treadle_status bound_of(value v, int64_t otherwise, int64_t *bound_p) {
  *bound_p = otherwise;
  if (v.kind == JINJA_NONE || treadle_jinja_to_index(v, bound_p)) return TREADLE_OK;
  REFUSE("a bound of a slice is an int or none, not a value of type %s", treadle_jinja_type(v));
}

static int64_t clamp(int64_t bound, int64_t length, int64_t least, int64_t most) {
  if (bound < 0) bound = bound < -length ? least : bound + length;
  return bound < least ? least : bound > most ? most : bound;
}

/* Which items: start, step and how many. */
static treadle_status reckon_slice(const value bounds[3], int64_t length, treadle_jinja_range *range) {
  int64_t step, start, stop;
  PASS(bound_of(bounds[2], 1, &step));
  if (step == 0) REFUSE("the step of a slice is 0");
  if (step < -INT64_MAX) step = -INT64_MAX;
  bool back = step < 0;
  PASS(bound_of(bounds[0], back ? INT64_MAX : 0, &start));
  PASS(bound_of(bounds[1], back ? INT64_MIN : INT64_MAX, &stop));
  start = clamp(start, length, back ? -1 : 0, back ? length - 1 : length);
  stop = clamp(stop, length, back ? -1 : 0, back ? length - 1 : length);
  int64_t count = back ? (start - stop - 1) / -step + 1 : (stop - start - 1) / step + 1;
  *range = (treadle_jinja_range){start, stop, step, (back ? start > stop : stop > start) ? count : 0};
  return TREADLE_OK;
}

static treadle_status slice_text(machine *m, const treadle_jinja_text *text,
                                 const treadle_jinja_range *range, value *result_p) {
  if (range->step == 1) {
    if (text->points < text->length) PASS(treadle_jinja_scan(m, 2 * text->length));
    size_t from = treadle_jinja_offset(text, (size_t)range->start);
    size_t to = treadle_jinja_offset(text, (size_t)(range->start + range->count));
    return treadle_jinja_part(m, text, from, to, result_p);
  }
  treadle_jinja_writer w = {0};
  size_t *offsets, at = 0; /* where each character begins */
  PASS(treadle_jinja_alloc(m, text->points + 1, sizeof *offsets, &offsets));
  PASS(treadle_jinja_scan(m, text->length));
  for (size_t i = 0; i < text->length; i++)
    if (((unsigned char)text->bytes[i] & 0xc0) != 0x80) offsets[at++] = i;
  offsets[at] = text->length;
  for (int64_t i = 0; i < range->count; i++) {
    size_t one = (size_t)(range->start + i * range->step);
    PASS(treadle_jinja_write(m, &w, text->bytes + offsets[one], offsets[one + 1] - offsets[one]));
  }
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, text->safe, result_p);
}

static treadle_status slice_range(machine *m, const treadle_jinja_range *of, const treadle_jinja_range *cut,
                                  value *result_p) {
  treadle_jinja_range *range;
  PASS(treadle_jinja_alloc(m, 1, sizeof *range, &range));
  range->start = of->start + cut->start * of->step;
  range->stop = of->start + cut->stop * of->step;
  range->step = of->step * cut->step;
  range->count = cut->count;
  *result_p = (value){.kind = JINJA_RANGE, .range = range};
  return TREADLE_OK;
}

treadle_status treadle_jinja_slice(machine *m, value v, const value bounds[3], value *result_p) {
  treadle_jinja_range range = {0};
  value *items;
  bool list = v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
  if (!list && v.kind != JINJA_TEXT && v.kind != JINJA_RANGE)
    return treadle_jinja_unfit(v, "cut into slices");
  PASS(reckon_slice(bounds, treadle_jinja_length(v), &range));
  if (v.kind == JINJA_TEXT) return slice_text(m, v.text, &range, result_p);
  if (v.kind == JINJA_RANGE) return slice_range(m, v.range, &range, result_p);
  if (range.step == 1)
    return treadle_jinja_list_of(m, v.kind, v.list->items + range.start, (size_t)range.count, result_p);
  PASS(treadle_jinja_alloc(m, (size_t)range.count, sizeof *items, &items));
  for (int64_t i = 0; i < range.count; i++) items[i] = v.list->items[range.start + i * range.step];
  return treadle_jinja_list_of(m, v.kind, items, (size_t)range.count, result_p);
}

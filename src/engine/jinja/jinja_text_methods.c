/* Methods of str. */
#include "jinja/jinja_format.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;
typedef treadle_jinja_text text;

#define METHOD(name) static treadle_status name(machine *m, call *c, value *result_p)

/* ---- Cases and classes of characters ----------------------------------------------------------------------- */

#define CASE(name, how)                                                                                    \
  METHOD(name) { return treadle_jinja_change_case(m, c->self.text, how, result_p); }
CASE(upper, JINJA_UPPER)
CASE(lower, JINJA_LOWER)
CASE(title, JINJA_TITLE)
CASE(capitalize, JINJA_CAPITAL)
CASE(swapcase, JINJA_SWAP)
CASE(casefold, JINJA_FOLD)

/* All characters are of the class; there is one at least, unless `empty`. */
static treadle_status all_are(machine *m, const call *c, treadle_jinja_class which, bool empty,
                              value *result_p) {
  const text *t = c->self.text;
  uint32_t code;
  bool all = empty || t->length > 0;
  PASS(treadle_jinja_look(m, t));
  for (size_t at = 0; all && at < t->length;) {
    at += treadle_utf8_decode(t->bytes + at, &code);
    all = treadle_jinja_is(which, code);
  }
  *result_p = treadle_jinja_bool(all);
  return TREADLE_OK;
}

#define CLASS(name, which, empty)                                                                          \
  METHOD(name) { return all_are(m, c, which, empty, result_p); }
CLASS(is_alnum, JINJA_IS_ALNUM, false)
CLASS(is_alpha, JINJA_IS_ALPHA, false)
CLASS(is_decimal, JINJA_IS_DECIMAL, false)
CLASS(is_digit, JINJA_IS_DIGIT, false)
CLASS(is_numeric, JINJA_IS_NUMERIC, false)
CLASS(is_printable, JINJA_IS_PRINTABLE, true)
CLASS(is_space, JINJA_IS_SPACE, false)

#define QUESTION(name, condition)                                                                          \
  METHOD(name) {                                                                                           \
    const text *t = c->self.text;                                                                          \
    PASS(treadle_jinja_look(m, t));                                                                        \
    *result_p = treadle_jinja_bool(condition);                                                             \
    return TREADLE_OK;                                                                                     \
  }
QUESTION(is_ascii, t->length == t->points)
QUESTION(is_lower, treadle_jinja_all_cased(t, false))
QUESTION(is_upper, treadle_jinja_all_cased(t, true))
QUESTION(is_title, treadle_jinja_is_title(t))

/* ---- Ends ---------------------------------------------------------------------------------------------------- */

static treadle_status strip_sides(machine *m, call *c, int sides, value *result_p) {
  const text *set = NULL;
  size_t from, to;
  if (c->bound[0].kind != JINJA_ABSENT && c->bound[0].kind != JINJA_NONE)
    PASS(treadle_jinja_text_argument(c->bound[0], "chars", &set));
  PASS(treadle_jinja_strip(m, c->self.text->bytes, c->self.text->length, sides, set, &from, &to));
  return treadle_jinja_part(m, c->self.text, from, to, result_p);
}
METHOD(strip) { return strip_sides(m, c, JINJA_LEFT | JINJA_RIGHT, result_p); }
METHOD(lstrip) { return strip_sides(m, c, JINJA_LEFT, result_p); }
METHOD(rstrip) { return strip_sides(m, c, JINJA_RIGHT, result_p); }

/* The part of the text that start and stop leave, in bytes; *order_p false: start lies behind the end or behind stop. */
static treadle_status bounds(machine *m, const call *c, int first, size_t *from_p, size_t *to_p,
                             bool *order_p) {
  const text *t = c->self.text;
  int64_t length = (int64_t)t->points, start, stop;
  value begin = c->bound[first], end = c->bound[first + 1];
  if (begin.kind == JINJA_NONE) begin.kind = JINJA_ABSENT;
  if (end.kind == JINJA_NONE) end.kind = JINJA_ABSENT;
  PASS(treadle_jinja_whole_argument(begin, "start", 0, &start));
  PASS(treadle_jinja_whole_argument(end, "end", length, &stop));
  if (start < 0) start = start < -length ? 0 : start + length;
  if (stop < 0) stop = stop < -length ? 0 : stop + length;
  if (stop > length) stop = length;
  *order_p = start <= stop;
  if (t->points < t->length) PASS(treadle_jinja_scan(m, 2 * t->length));
  *from_p = treadle_jinja_offset(t, (size_t)(*order_p ? start : 0));
  *to_p = treadle_jinja_offset(t, (size_t)(*order_p ? stop : 0));
  return TREADLE_OK;
}

static bool has_end(const text *t, size_t from, size_t to, const text *part, bool last) {
  if (part->length > to - from) return false;
  return part->length == 0 ||
         memcmp(t->bytes + (last ? to - part->length : from), part->bytes, part->length) == 0;
}

/* One text, or a tuple of which one is enough. */
static treadle_status ends(machine *m, call *c, bool last, value *result_p) {
  size_t from, to, count = 1;
  const value *parts = &c->bound[0];
  const text *part;
  bool order, found = false;
  PASS(bounds(m, c, 1, &from, &to, &order));
  if (parts->kind == JINJA_TUPLE) {
    count = parts->list->count;
    parts = parts->list->items;
  }
  for (size_t i = 0; i < count && !found; i++) {
    PASS(treadle_jinja_text_argument(parts[i], "prefix", &part));
    PASS(treadle_jinja_scan(m, part->length));
    found = order && has_end(c->self.text, from, to, part, last);
  }
  *result_p = treadle_jinja_bool(found);
  return TREADLE_OK;
}
METHOD(startswith) { return ends(m, c, false, result_p); }
METHOD(endswith) { return ends(m, c, true, result_p); }

static treadle_status remove_end(machine *m, call *c, bool last, value *result_p) {
  const text *t = c->self.text, *part;
  PASS(treadle_jinja_text_argument(c->bound[0], "prefix", &part));
  PASS(treadle_jinja_scan(m, part->length));
  bool has = has_end(t, 0, t->length, part, last);
  return treadle_jinja_part(m, t, has && !last ? part->length : 0,
                            t->length - (has && last ? part->length : 0), result_p);
}
METHOD(removeprefix) { return remove_end(m, c, false, result_p); }
METHOD(removesuffix) { return remove_end(m, c, true, result_p); }

/* ---- Finding ------------------------------------------------------------------------------------------------- */

static treadle_status find_any(machine *m, call *c, bool last, bool needed, value *result_p) {
  const text *t = c->self.text, *part;
  size_t from, to, found = SIZE_MAX;
  bool order;
  PASS(treadle_jinja_text_argument(c->bound[0], "sub", &part));
  PASS(bounds(m, c, 1, &from, &to, &order));
  if (order)
    PASS(last ? treadle_jinja_find_last(m, t, part, from, to, &found)
              : treadle_jinja_find(m, t, part, from, to, &found));
  PASS(treadle_jinja_scan(m, found == SIZE_MAX ? 0 : found));
  if (found == SIZE_MAX && needed) REFUSE("the text that is looked for is not there");
  *result_p = treadle_jinja_int(found == SIZE_MAX ? -1 : (int64_t)treadle_jinja_points(t->bytes, found));
  return TREADLE_OK;
}
METHOD(find) { return find_any(m, c, false, false, result_p); }
METHOD(rfind) { return find_any(m, c, true, false, result_p); }
METHOD(index_of) { return find_any(m, c, false, true, result_p); }
METHOD(last_index_of) { return find_any(m, c, true, true, result_p); }

METHOD(count) {
  const text *t = c->self.text, *part;
  size_t from, to, at;
  bool order;
  int64_t found = 0;
  PASS(treadle_jinja_text_argument(c->bound[0], "sub", &part));
  PASS(bounds(m, c, 1, &from, &to, &order));
  if (order && part->length == 0) PASS(treadle_jinja_scan(m, to - from));
  if (order && part->length == 0) found = (int64_t)treadle_jinja_points(t->bytes + from, to - from) + 1;
  while (order && part->length) {
    PASS(treadle_jinja_find(m, t, part, from, to, &at));
    if (at == SIZE_MAX) break;
    found++;
    from = at + part->length;
  }
  *result_p = treadle_jinja_int(found);
  return TREADLE_OK;
}

METHOD(replace) {
  const text *from, *to;
  int64_t times;
  PASS(treadle_jinja_text_argument(c->bound[0], "old", &from));
  PASS(treadle_jinja_text_argument(c->bound[1], "new", &to));
  PASS(treadle_jinja_whole_argument(c->bound[2], "count", -1, &times));
  return treadle_jinja_replace(m, c->self.text, from, to, times, result_p);
}

/* ---- Cutting and joining -------------------------------------------------------------------------------------- */

static treadle_status split_any(machine *m, call *c, bool from_right, value *result_p) {
  const text *by = NULL;
  int64_t most;
  if (c->bound[0].kind != JINJA_ABSENT && c->bound[0].kind != JINJA_NONE)
    PASS(treadle_jinja_text_argument(c->bound[0], "sep", &by));
  PASS(treadle_jinja_whole_argument(c->bound[1], "maxsplit", -1, &most));
  return treadle_jinja_split(m, c->self.text, by, most, from_right, result_p);
}
METHOD(split) { return split_any(m, c, false, result_p); }
METHOD(rsplit) { return split_any(m, c, true, result_p); }
METHOD(splitlines) {
  int64_t keep;
  PASS(treadle_jinja_whole_argument(c->bound[0], "keepends", 0, &keep));
  return treadle_jinja_split_lines(m, c->self.text, keep != 0, result_p);
}

/* The text before a separator, the separator, the text behind it. */
static treadle_status partition_any(machine *m, call *c, bool last, value *result_p) {
  const text *t = c->self.text, *by;
  value *parts;
  PASS(treadle_jinja_text_argument(c->bound[0], "sep", &by));
  if (by->length == 0) REFUSE("a text is parted at an empty text");
  PASS(treadle_jinja_alloc(m, 3, sizeof *parts, &parts));
  size_t found;
  PASS(last ? treadle_jinja_find_last(m, t, by, 0, t->length, &found)
            : treadle_jinja_find(m, t, by, 0, t->length, &found));
  bool none = found == SIZE_MAX;
  size_t before = none ? (last ? 0 : t->length) : found, behind = none ? before : found + by->length;
  PASS(treadle_jinja_part(m, t, 0, before, &parts[0]));
  PASS(treadle_jinja_part(m, t, before, behind, &parts[1]));
  PASS(treadle_jinja_part(m, t, behind, t->length, &parts[2]));
  return treadle_jinja_list_of(m, JINJA_TUPLE, parts, 3, result_p);
}
METHOD(partition) { return partition_any(m, c, false, result_p); }
METHOD(rpartition) { return partition_any(m, c, true, result_p); }

METHOD(join) {
  const value *items;
  const text *item;
  size_t number;
  PASS(treadle_jinja_items(m, c->bound[0], &items, &number));
  for (size_t i = 0; i < number; i++) PASS(treadle_jinja_text_argument(items[i], "iterable", &item));
  return treadle_jinja_join_texts(m, c->self.text, items, number, result_p);
}

/* ---- Fields ---------------------------------------------------------------------------------------------------- */

static treadle_status justify(machine *m, call *c, char how, value *result_p) {
  static const text space = {" ", 1, 1, false};
  const text *fill = &space, *t = c->self.text;
  int64_t width;
  PASS(treadle_jinja_whole_argument(c->bound[0], "width", 0, &width));
  if (c->bound[1].kind != JINJA_ABSENT) PASS(treadle_jinja_text_argument(c->bound[1], "fillchar", &fill));
  if (fill->points != 1) REFUSE("a field is filled with one character");
  size_t places = width > (int64_t)t->points ? (size_t)width - t->points : 0;
  size_t before = how == '<' ? 0 : how == '>' ? places : places / 2 + (places & (size_t)width & 1);
  return treadle_jinja_pad(m, t, before, places - before, fill, result_p);
}
METHOD(center) { return justify(m, c, '^', result_p); }
METHOD(ljust) { return justify(m, c, '<', result_p); }
METHOD(rjust) { return justify(m, c, '>', result_p); }

/* Zeros behind a sign. */
METHOD(zfill) {
  static const text zero = {"0", 1, 1, false};
  const text *t = c->self.text;
  int64_t width;
  value sign, rest;
  PASS(treadle_jinja_whole_argument(c->bound[0], "width", 0, &width));
  size_t places = width > (int64_t)t->points ? (size_t)width - t->points : 0;
  size_t signs = t->length && (*t->bytes == '-' || *t->bytes == '+');
  PASS(treadle_jinja_part(m, t, 0, signs, &sign));
  PASS(treadle_jinja_part(m, t, signs, t->length, &rest));
  PASS(treadle_jinja_pad(m, rest.text, places, 0, &zero, &rest));
  return treadle_jinja_operate(m, '+', sign, rest, result_p);
}

METHOD(expandtabs) {
  const text *t = c->self.text;
  treadle_jinja_writer w = {0};
  int64_t size, column = 0;
  uint32_t code;
  PASS(treadle_jinja_whole_argument(c->bound[0], "tabsize", 8, &size));
  PASS(treadle_jinja_look(m, t));
  for (size_t at = 0, next; at < t->length; at = next) {
    next = at + treadle_utf8_decode(t->bytes + at, &code);
    int64_t spaces = code == '\t' && size > 0 ? size - column % size : 0;
    for (int64_t i = 0; i < spaces; i++) PASS(treadle_jinja_write_plain(m, &w, " "));
    if (code != '\t') PASS(treadle_jinja_write(m, &w, t->bytes + at, next - at));
    column = code == '\n' || code == '\r' ? 0 : column + (code == '\t' ? spaces : 1);
  }
  return treadle_jinja_written(m, &w, result_p);
}

/* ---- format ------------------------------------------------------------------------------------------------------ */

METHOD(format) {
  value items, names = {.kind = JINJA_DICT};
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_list_of(m, JINJA_TUPLE, c->items, c->count, &items));
  PASS(treadle_jinja_dict_make(m, c->named_count, &dict));
  for (size_t i = 0; i < c->named_count; i++)
    PASS(treadle_jinja_dict_put(m, dict, c->names[i], c->named[i]));
  names.dict = dict;
  return treadle_jinja_format(m, c->self.text, items, names, result_p);
}

METHOD(format_map) {
  value items;
  PASS(treadle_jinja_list_of(m, JINJA_TUPLE, NULL, 0, &items));
  return treadle_jinja_format(m, c->self.text, items, c->bound[0], result_p);
}

/* Rows without a function: methods of Python that make bytes or need tables. */
const treadle_jinja_row treadle_jinja_text_methods[] = {{"capitalize", capitalize, "/"},
                                                        {"casefold", casefold, "/"},
                                                        {"center", center, "/width fillchar?"},
                                                        {"count", count, "/sub start? end?"},
                                                        {"encode", NULL, "*"},
                                                        {"endswith", endswith, "/suffix start? end?"},
                                                        {"expandtabs", expandtabs, "tabsize?"},
                                                        {"find", find, "/sub start? end?"},
                                                        {"format", format, "*"},
                                                        {"format_map", format_map, "/mapping"},
                                                        {"index", index_of, "/sub start? end?"},
                                                        {"isalnum", is_alnum, "/"},
                                                        {"isalpha", is_alpha, "/"},
                                                        {"isascii", is_ascii, "/"},
                                                        {"isdecimal", is_decimal, "/"},
                                                        {"isdigit", is_digit, "/"},
                                                        {"isidentifier", NULL, "*"},
                                                        {"islower", is_lower, "/"},
                                                        {"isnumeric", is_numeric, "/"},
                                                        {"isprintable", is_printable, "/"},
                                                        {"isspace", is_space, "/"},
                                                        {"istitle", is_title, "/"},
                                                        {"isupper", is_upper, "/"},
                                                        {"join", join, "/iterable"},
                                                        {"ljust", ljust, "/width fillchar?"},
                                                        {"lower", lower, "/"},
                                                        {"lstrip", lstrip, "/chars?"},
                                                        {"maketrans", NULL, "*"},
                                                        {"partition", partition, "/sep"},
                                                        {"removeprefix", removeprefix, "/prefix"},
                                                        {"removesuffix", removesuffix, "/suffix"},
                                                        {"replace", replace, "/old new count?"},
                                                        {"rfind", rfind, "/sub start? end?"},
                                                        {"rindex", last_index_of, "/sub start? end?"},
                                                        {"rjust", rjust, "/width fillchar?"},
                                                        {"rpartition", rpartition, "/sep"},
                                                        {"rsplit", rsplit, "sep? maxsplit?"},
                                                        {"rstrip", rstrip, "/chars?"},
                                                        {"split", split, "sep? maxsplit?"},
                                                        {"splitlines", splitlines, "keepends?"},
                                                        {"startswith", startswith, "/prefix start? end?"},
                                                        {"strip", strip, "/chars?"},
                                                        {"swapcase", swapcase, "/"},
                                                        {"title", title, "/"},
                                                        {"translate", NULL, "*"},
                                                        {"upper", upper, "/"},
                                                        {"zfill", zfill, "/width"},
                                                        {NULL, NULL, NULL}};

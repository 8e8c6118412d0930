/* Operators between values. Markup escapes what is added to it and what is put into it. */
#include "jinja/jinja_number.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_writer writer;

static bool is_list(value v) { return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE; }

static treadle_status write_part(machine *m, writer *w, const treadle_jinja_text *text, bool escaped) {
  if (escaped && !text->safe) return treadle_jinja_escape(m, w, text);
  return treadle_jinja_write(m, w, text->bytes, text->length);
}

static treadle_status add_texts(machine *m, const treadle_jinja_text *a, const treadle_jinja_text *b,
                                value *result_p) {
  writer w = {0};
  bool safe = a->safe || b->safe;
  PASS(write_part(m, &w, a, safe));
  PASS(write_part(m, &w, b, safe));
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, safe, result_p);
}

static treadle_status add_lists(machine *m, value a, value b, value *result_p) {
  value *items;
  size_t count = a.list->count + b.list->count;
  PASS(treadle_jinja_alloc(m, count, sizeof *items, &items));
  if (a.list->count) memcpy(items, a.list->items, a.list->count * sizeof *items);
  if (b.list->count) memcpy(items + a.list->count, b.list->items, b.list->count * sizeof *items);
  return treadle_jinja_list_of(m, a.kind, items, count, result_p);
}

/* A text or list this many times. */
static treadle_status repeat(machine *m, value v, value times, value *result_p) {
  int64_t count;
  treadle_jinja_to_index(times, &count);
  if (count < 0) count = 0;
  size_t length = v.kind == JINJA_TEXT ? v.text->length : v.list->count;
  size_t each = v.kind == JINJA_TEXT ? 1 : sizeof(value);
  if (length && (uint64_t)count > ((uint64_t)1 << 40) / length)
    count = INT64_C(1) << 40; /* refused by the memory's limit */
  char *all;
  const void *one = v.kind == JINJA_TEXT ? (const void *)v.text->bytes : (const void *)v.list->items;
  size_t times_length = length * (size_t)count;
  PASS(treadle_jinja_alloc(m, times_length, each, &all));
  for (size_t at = 0; at < times_length; at += length) memcpy(all + at * each, one, length * each);
  if (v.kind != JINJA_TEXT)
    return treadle_jinja_list_of(m, v.kind, (const void *)all, times_length, result_p);
  PASS(treadle_jinja_share(m, all, times_length, result_p));
  return treadle_jinja_mark(m, result_p->text, v.text->safe, result_p);
}

static treadle_status refuse(char op, value a, value b) {
  const char word[] = {op, 0};
  PASS(treadle_jinja_defined(a));
  PASS(treadle_jinja_defined(b));
  REFUSE("'%s' does not take values of types %s and %s",
         op == '^'   ? "**"
         : op == '|' ? "//"
                     : word,
         treadle_jinja_type(a), treadle_jinja_type(b));
}

treadle_status treadle_jinja_operate(machine *m, char op, value a, value b, value *result_p) {
  if (treadle_jinja_is_number(a) && treadle_jinja_is_number(b))
    return treadle_jinja_reckon(m, op, a, b, result_p);
  if (op == '%' && a.kind == JINJA_TEXT) return treadle_jinja_percent(m, a.text, b, result_p);
  if (op == '+' && a.kind == JINJA_TEXT && b.kind == JINJA_TEXT)
    return add_texts(m, a.text, b.text, result_p);
  if (op == '+' && is_list(a) && a.kind == b.kind) return add_lists(m, a, b, result_p);
  if (op == '*' && (a.kind == JINJA_TEXT || is_list(a)) && treadle_jinja_is_whole(b))
    return repeat(m, a, b, result_p);
  if (op == '*' && (b.kind == JINJA_TEXT || is_list(b)) && treadle_jinja_is_whole(a))
    return repeat(m, b, a, result_p);
  return refuse(op, a, b);
}

/* Filters that go through all items at once. */
#include "jinja/jinja_filters.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_sort.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;

static treadle_status length(machine *m, call *c, value *result_p) {
  int64_t count = treadle_jinja_length(c->self);
  if (c->self.kind == JINJA_LOOP) PASS(treadle_jinja_loop_length(m, c->self.loop, &count));
  if (count < 0) return treadle_jinja_unfit(c->self, "counted");
  *result_p = treadle_jinja_int(count);
  return TREADLE_OK;
}

static treadle_status first(machine *m, call *c, value *result_p) {
  treadle_jinja_iterator *it;
  bool got;
  PASS(treadle_jinja_iterate(m, c->self, &it));
  PASS(treadle_jinja_next_of(m, it, result_p, &got));
  return got ? TREADLE_OK
             : treadle_jinja_undefined_since(m, "there is no first item of an empty sequence", result_p);
}

static treadle_status last(machine *m, call *c, value *result_p) {
  int64_t count = treadle_jinja_length(c->self);
  if (count < 0) return treadle_jinja_unfit(c->self, "read from its end");
  if (count == 0)
    return treadle_jinja_undefined_since(m, "there is no last item of an empty sequence", result_p);
  return treadle_jinja_item(m, c->self, count - 1, result_p);
}

static treadle_status to_list(machine *m, call *c, value *result_p) {
  const value *items;
  size_t count;
  PASS(treadle_jinja_items(m, c->self, &items, &count));
  return treadle_jinja_list_of(m, JINJA_LIST, items, count, result_p);
}

treadle_status treadle_jinja_join_texts(machine *m, const treadle_jinja_text *between, const value *items,
                                        size_t count, value *result_p) {
  treadle_jinja_writer w = {0};
  for (size_t i = 0; i < count; i++) {
    const treadle_jinja_text *text;
    PASS(treadle_jinja_to_text(m, items[i], &text));
    if (i) PASS(treadle_jinja_write(m, &w, between->bytes, between->length));
    if (between->safe && !text->safe)
      PASS(treadle_jinja_escape(m, &w, text));
    else
      PASS(treadle_jinja_write(m, &w, text->bytes, text->length));
  }
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, between->safe, result_p);
}

static treadle_status join(machine *m, call *c, value *result_p) {
  const value *items;
  value *texts, between;
  size_t count;
  treadle_jinja_key key = {.attribute = c->bound[1]};
  const treadle_jinja_text *text;
  PASS(treadle_jinja_items(m, c->self, &items, &count));
  PASS(treadle_jinja_alloc(m, count, sizeof *texts, &texts));
  for (size_t i = 0; i < count; i++) PASS(treadle_jinja_key_of(m, &key, items[i], &texts[i]));
  PASS(treadle_jinja_plain(m, "", &between));
  if (c->bound[0].kind != JINJA_ABSENT) between = c->bound[0];
  PASS(treadle_jinja_to_text(m, between, &text));
  PASS(treadle_jinja_mark(m, text, false, &between)); /* without autoescape a join is a str */
  return treadle_jinja_join_texts(m, between.text, texts, count, result_p);
}

static treadle_status sum(machine *m, call *c, value *result_p) {
  treadle_jinja_iterator *it;
  treadle_jinja_key key = {.attribute = c->bound[0]};
  value item, start = c->bound[1].kind == JINJA_ABSENT ? treadle_jinja_int(0) : c->bound[1];
  bool got;
  if (start.kind == JINJA_TEXT) REFUSE("sum does not add texts: join does");
  PASS(treadle_jinja_iterate(m, c->self, &it));
  *result_p = start;
  for (;;) {
    PASS(treadle_jinja_next_of(m, it, &item, &got));
    if (!got) return TREADLE_OK;
    PASS(treadle_jinja_key_of(m, &key, item, &item));
    PASS(treadle_jinja_operate(m, '+', *result_p, item, result_p));
  }
}

/* The first of the least, or of the largest. */
static treadle_status extreme(machine *m, call *c, const char *op, value *result_p) {
  treadle_jinja_iterator *it;
  treadle_jinja_key key = {.attribute = c->bound[1], .folded = !treadle_jinja_flag(c->bound[0], false)};
  value item, best, now;
  bool got, better;
  PASS(treadle_jinja_iterate(m, c->self, &it));
  PASS(treadle_jinja_next_of(m, it, result_p, &got));
  if (!got)
    return treadle_jinja_undefined_since(m, "an empty sequence has no least and no largest item", result_p);
  PASS(treadle_jinja_key_of(m, &key, *result_p, &best));
  for (;;) {
    PASS(treadle_jinja_next_of(m, it, &item, &got));
    if (!got) return TREADLE_OK;
    PASS(treadle_jinja_key_of(m, &key, item, &now));
    PASS(treadle_jinja_compare(m, op, now, best, &better));
    if (!better) continue;
    best = now;
    *result_p = item;
  }
}

static treadle_status least(machine *m, call *c, value *result_p) { return extreme(m, c, "<", result_p); }
static treadle_status largest(machine *m, call *c, value *result_p) { return extreme(m, c, ">", result_p); }

const treadle_jinja_row treadle_jinja_list_filters[] = {{"count", length, ""},
                                                        {"first", first, ""},
                                                        {"join", join, "d? attribute?"},
                                                        {"last", last, ""},
                                                        {"length", length, ""},
                                                        {"list", to_list, ""},
                                                        {"max", largest, "case_sensitive? attribute?"},
                                                        {"min", least, "case_sensitive? attribute?"},
                                                        {"sum", sum, "attribute? start?"},
                                                        {NULL, NULL, NULL}};

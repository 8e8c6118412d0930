/* Filters that lay text out: fields, lines, lengths. */
#include "jinja/jinja_filters.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_sort.h"
#include "jinja/jinja_text.h"

#include <stdio.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;
typedef treadle_jinja_writer writer;

treadle_status treadle_jinja_pad(machine *m, const treadle_jinja_text *text, size_t before, size_t behind,
                                 const treadle_jinja_text *fill, value *result_p) {
  writer w = {0};
  for (size_t i = 0; i < before; i++) PASS(treadle_jinja_write(m, &w, fill->bytes, fill->length));
  PASS(treadle_jinja_write(m, &w, text->bytes, text->length));
  for (size_t i = 0; i < behind; i++) PASS(treadle_jinja_write(m, &w, fill->bytes, fill->length));
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, text->safe, result_p);
}

static treadle_status center(machine *m, call *c, value *result_p) {
  static const treadle_jinja_text space = {" ", 1, 1, false};
  const treadle_jinja_text *text;
  int64_t width;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  PASS(treadle_jinja_whole_argument(c->bound[0], "width", 80, &width));
  size_t places = width > (int64_t)text->points ? (size_t)width - text->points : 0;
  size_t before =
      places / 2 + (places & (size_t)width & 1); /* where the odd place goes is Python's choice */
  return treadle_jinja_pad(m, text, before, places - before, &space, result_p);
}

/* A newline is added first, so that a text that ends with one keeps it. */
static treadle_status indent(machine *m, call *c, value *result_p) {
  static const treadle_jinja_text space = {" ", 1, 1, false}, newline = {"\n", 1, 1, false};
  value lines, prefix = c->bound[0], longer;
  int64_t width;
  writer w = {0};
  if (c->self.kind != JINJA_TEXT) return treadle_jinja_unfit(c->self, "indented");
  bool first = treadle_jinja_flag(c->bound[1], false), blank = treadle_jinja_flag(c->bound[2], false);
  if (prefix.kind != JINJA_TEXT) {
    PASS(treadle_jinja_whole_argument(prefix, "width", 4, &width));
    PASS(treadle_jinja_operate(m, '*', treadle_jinja_of_text(&space), treadle_jinja_int(width), &prefix));
  }
  PASS(treadle_jinja_operate(m, '+', c->self, treadle_jinja_of_text(&newline), &longer));
  PASS(treadle_jinja_split_lines(m, longer.text, false, &lines));
  for (size_t i = 0; i < lines.list->count; i++) {
    const treadle_jinja_text *line = lines.list->items[i].text;
    if (i) PASS(treadle_jinja_write_plain(m, &w, "\n"));
    if (i ? blank || line->length : first)
      PASS(treadle_jinja_write(m, &w, prefix.text->bytes, prefix.text->length));
    PASS(treadle_jinja_write(m, &w, line->bytes, line->length));
  }
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, c->self.text->safe, result_p);
}

static treadle_status truncate(machine *m, call *c, value *result_p) {
  static const treadle_jinja_text dots = {"...", 3, 3, false};
  const treadle_jinja_text *end = &dots, *text = c->self.text;
  int64_t length, leeway;
  if (c->self.kind != JINJA_TEXT) return treadle_jinja_unfit(c->self, "truncated");
  if (c->bound[3].kind == JINJA_NONE) c->bound[3].kind = JINJA_ABSENT;
  PASS(treadle_jinja_whole_argument(c->bound[0], "length", 255, &length));
  PASS(treadle_jinja_whole_argument(c->bound[3], "leeway", 5, &leeway));
  if (c->bound[2].kind != JINJA_ABSENT) PASS(treadle_jinja_text_argument(c->bound[2], "end", &end));
  if (length < (int64_t)end->points) REFUSE("truncate leaves less than the length of its end");
  if (leeway < 0) REFUSE("the leeway of truncate is below 0");
  *result_p = c->self;
  if ((int64_t)text->points - length <= leeway) return TREADLE_OK;
  PASS(treadle_jinja_scan(m, text->length));
  size_t cut = treadle_jinja_offset(text, (size_t)length - end->points);
  for (size_t at = cut; at > 0 && !treadle_jinja_flag(c->bound[1], false); at--) { /* whole words */
    if (text->bytes[at - 1] != ' ') continue;
    cut = at - 1;
    break;
  }
  PASS(treadle_jinja_part(m, text, 0, cut, result_p));
  return treadle_jinja_operate(m, '+', *result_p, treadle_jinja_of_text(end), result_p);
}

static treadle_status file_size(machine *m, call *c, value *result_p) {
  static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  const char *const *units = treadle_jinja_flag(c->bound[0], false) ? binary : decimal;
  double base = units == binary ? 1024 : 1000, bytes = 0, unit;
  char number[TREADLE_REAL_BYTES], text[TREADLE_REAL_BYTES + 16];
  bool read = treadle_jinja_is_number(c->self);
  PASS(treadle_jinja_step(m, 150));
  if (read)
    PASS(treadle_jinja_to_double(c->self, &bytes));
  else if (c->self.kind == JINJA_TEXT)
    PASS(treadle_jinja_read_float(m, c->self.text, &read, &bytes));
  if (!read) return treadle_jinja_unfit(c->self, "read as a size");
  if (bytes == 1) return treadle_jinja_plain(m, "1 Byte", result_p);
  int which = 0;
  if (bytes < base) {
    treadle_real_print(number, 'f', 0, false, (double)(int64_t)bytes);
    snprintf(text, sizeof text, "%s Bytes", number);
  } else {
    for (unit = base * base; which < 7 && bytes >= unit; which++) unit *= base;
    treadle_real_print(number, 'f', 1, false, base * bytes / unit);
    snprintf(text, sizeof text, "%s %s", number, units[which]);
  }
  return treadle_jinja_copy(m, text, strlen(text), result_p);
}

/* As repr, with sorted keys; what Python would lay out over several lines is refused. */
static treadle_status sorted_copy(machine *m, value v, value *copy_p) {
  enum { MOST = 100 };
  *copy_p = v;
  if (v.kind != JINJA_DICT && v.kind != JINJA_LIST && v.kind != JINJA_TUPLE) return TREADLE_OK;
  size_t count = (size_t)treadle_jinja_length(v), *places = NULL;
  if (count > MOST) REFUSE("pprint of a value that needs more than one line is not supported");
  value *items;
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_step(m, 1));
  PASS(treadle_jinja_enter(m));
  if (v.kind == JINJA_DICT) {
    PASS(treadle_jinja_dict_make(m, count, &dict));
    PASS(treadle_jinja_sort(m, v.dict->keys, count, false, &places));
    for (size_t i = 0; i < count; i++) {
      value item;
      PASS(sorted_copy(m, v.dict->values[places[i]], &item));
      PASS(treadle_jinja_dict_put(m, dict, v.dict->keys[places[i]], item));
    }
    *copy_p = (value){.kind = JINJA_DICT, .dict = dict};
  } else {
    PASS(treadle_jinja_alloc(m, count, sizeof *items, &items));
    for (size_t i = 0; i < count; i++) PASS(sorted_copy(m, v.list->items[i], &items[i]));
    PASS(treadle_jinja_list_of(m, v.kind, items, count, copy_p));
  }
  m->depth--;
  return TREADLE_OK;
}

static treadle_status pretty(machine *m, call *c, value *result_p) {
  writer w = {0};
  value sorted;
  PASS(sorted_copy(m, c->self, &sorted));
  PASS(treadle_jinja_represent(m, &w, sorted));
  PASS(treadle_jinja_written(m, &w, result_p));
  if (result_p->text->points > 80)
    REFUSE("pprint of a value that needs more than one line is not supported");
  return TREADLE_OK;
}

const treadle_jinja_row treadle_jinja_layout_filters[] = {
    {"center", center, "width?"},
    {"filesizeformat", file_size, "binary?"},
    {"indent", indent, "width? first? blank?"},
    {"pprint", pretty, ""},
    {"truncate", truncate, "length? killwords? end? leeway?"},
    {"wordwrap", NULL, "*"},
    {NULL, NULL, NULL}};

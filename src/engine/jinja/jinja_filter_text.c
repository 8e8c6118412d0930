/* Filters of texts. What is not a text is printed first, as Python's str() does. */
#include "jinja/jinja_filters.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;

static treadle_status change(machine *m, call *c, treadle_jinja_case how, value *result_p) {
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  return treadle_jinja_change_case(m, text, how, result_p);
}

static treadle_status upper(machine *m, call *c, value *result_p) {
  return change(m, c, JINJA_UPPER, result_p);
}
static treadle_status lower(machine *m, call *c, value *result_p) {
  return change(m, c, JINJA_LOWER, result_p);
}
static treadle_status capitalize(machine *m, call *c, value *result_p) {
  return change(m, c, JINJA_CAPITAL, result_p);
}

static bool parts_words(uint32_t code) {
  return treadle_jinja_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' ||
         code == '<';
}

static treadle_status write_cased(machine *m, treadle_jinja_writer *w, const treadle_jinja_text *text,
                                  size_t from, size_t to, treadle_jinja_case how) {
  value part;
  PASS(treadle_jinja_part(m, text, from, to, &part));
  PASS(treadle_jinja_change_case(m, part.text, how, &part));
  return treadle_jinja_write(m, w, part.text->bytes, part.text->length);
}

/* The first character of each word in upper case (not title case), the others in lower case; words end at - ( { [ < and space. */
static treadle_status title(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text;
  treadle_jinja_writer w = {0};
  uint32_t code;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  PASS(treadle_jinja_look(m, text));
  for (size_t at = 0; at < text->length;) {
    size_t end = at, one = treadle_utf8_decode(text->bytes + at, &code);
    bool mark = parts_words(code);
    while (end < text->length && parts_words(code) == mark) {
      end += treadle_utf8_decode(text->bytes + end, &code);
      if (end < text->length) treadle_utf8_decode(text->bytes + end, &code);
    }
    PASS(write_cased(m, &w, text, at, at + one, JINJA_UPPER));
    PASS(write_cased(m, &w, text, at + one, end, JINJA_LOWER));
    at = end;
  }
  return treadle_jinja_written(m, &w, result_p);
}

static treadle_status trim(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text, *set = NULL;
  size_t from, to;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  if (c->bound[0].kind != JINJA_ABSENT && c->bound[0].kind != JINJA_NONE)
    PASS(treadle_jinja_text_argument(c->bound[0], "chars", &set));
  PASS(treadle_jinja_strip(m, text->bytes, text->length, JINJA_LEFT | JINJA_RIGHT, set, &from, &to));
  return treadle_jinja_part(m, text, from, to, result_p);
}

static treadle_status replace(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text, *from, *to;
  int64_t count;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  PASS(treadle_jinja_to_text(m, c->bound[0], &from));
  PASS(treadle_jinja_to_text(m, c->bound[1], &to));
  if (c->bound[2].kind == JINJA_NONE) c->bound[2].kind = JINJA_ABSENT;
  PASS(treadle_jinja_whole_argument(c->bound[2], "count", -1, &count));
  PASS(treadle_jinja_replace(m, text, from, to, count, result_p));
  return treadle_jinja_mark(m, result_p->text, false, result_p);
}

/* Runs of letters, digits and underscores. */
static treadle_status count_words(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text;
  int64_t words = 0;
  bool inside = false;
  uint32_t code;
  PASS(treadle_jinja_to_text(m, c->self, &text));
  PASS(treadle_jinja_look(m, text));
  for (size_t at = 0; at < text->length;) {
    at += treadle_utf8_decode(text->bytes + at, &code);
    bool word = code == '_' || treadle_jinja_is(JINJA_IS_ALNUM, code);
    words += word && !inside;
    inside = word;
  }
  *result_p = treadle_jinja_int(words);
  return TREADLE_OK;
}

/* text % arguments */
static treadle_status format(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *text;
  value values;
  treadle_jinja_dict *dict;
  if (c->count && c->named_count) REFUSE("format takes arguments by place or by name, not both");
  PASS(treadle_jinja_to_text(m, c->self, &text));
  PASS(treadle_jinja_list_of(m, JINJA_TUPLE, c->items, c->count, &values));
  if (c->named_count) {
    PASS(treadle_jinja_dict_make(m, c->named_count, &dict));
    for (size_t i = 0; i < c->named_count; i++)
      PASS(treadle_jinja_dict_put(m, dict, c->names[i], c->named[i]));
    values = (value){.kind = JINJA_DICT, .dict = dict};
  }
  return treadle_jinja_percent(m, text, values, result_p);
}

const treadle_jinja_row treadle_jinja_text_filters[] = {{"capitalize", capitalize, ""},
                                                        {"format", format, "*"},
                                                        {"lower", lower, ""},
                                                        {"replace", replace, "old new count?"},
                                                        {"title", title, ""},
                                                        {"trim", trim, "chars?"},
                                                        {"upper", upper, ""},
                                                        {"wordcount", count_words, ""},
                                                        {NULL, NULL, NULL}};

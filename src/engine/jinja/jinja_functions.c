/* Functions that every template has. */
#include "base/checked.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"
#include "jinja/jinja_time.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;

enum { MAX_RANGE = 100000 }; /* of Jinja's sandbox */

/* The template's own refusal: its text is the message. */
static treadle_status raise(machine *m, call *c, value *result_p) {
  (void)result_p;
  const treadle_jinja_text *text;
  PASS(treadle_jinja_to_text(m, c->bound[0], &text));
  REFUSE("%.*s", (int)(text->length < 4000 ? text->length : 4000), text->bytes);
}

static treadle_status time_now(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *format;
  PASS(treadle_jinja_text_argument(c->bound[0], "format", &format));
  return treadle_jinja_time(m, format, result_p);
}

static treadle_status make_range(machine *m, call *c, value *result_p) {
  int64_t numbers[3] = {0, 0, 1};
  treadle_jinja_range *range;
  if (c->named_count || c->count < 1 || c->count > 3) REFUSE("range takes 1 to 3 numbers");
  for (size_t i = 0; i < c->count; i++)
    PASS(treadle_jinja_whole_argument(c->items[i], "range", 0, &numbers[c->count == 1 ? 1 : i]));
  treadle_wide start = numbers[0], stop = numbers[1], step = numbers[2];
  if (step == 0) REFUSE("the step of a range is 0");
  treadle_wide count = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  if (count < 0) count = 0;
  if (count > MAX_RANGE) REFUSE("a range has more than %d numbers", MAX_RANGE);
  PASS(treadle_jinja_alloc(m, 1, sizeof *range, &range));
  *range = (treadle_jinja_range){numbers[0], numbers[1], numbers[2], (int64_t)count};
  *result_p = (value){.kind = JINJA_RANGE, .range = range};
  return TREADLE_OK;
}

/* dict(pairs or dict, name=value, ...) */
static treadle_status fill_dict(machine *m, const call *c, treadle_jinja_dict *dict) {
  const value *items, *pair;
  size_t count, two;
  if (c->count > 1) REFUSE("dict takes one argument by place");
  if (c->count == 1) PASS(treadle_jinja_defined(c->items[0]));
  if (c->count == 1 && c->items[0].kind == JINJA_DICT)
    PASS(treadle_jinja_dict_put_all(m, dict, c->items[0].dict));
  else if (c->count == 1) {
    PASS(treadle_jinja_items(m, c->items[0], &items, &count));
    for (size_t i = 0; i < count; i++) {
      PASS(treadle_jinja_items(m, items[i], &pair, &two));
      if (two != 2) REFUSE("dict takes pairs of a key and a value");
      PASS(treadle_jinja_dict_put(m, dict, pair[0], pair[1]));
    }
  }
  for (size_t i = 0; i < c->named_count; i++)
    PASS(treadle_jinja_dict_put(m, dict, c->names[i], c->named[i]));
  return TREADLE_OK;
}

static treadle_status make_dict(machine *m, call *c, value *result_p) {
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_dict_make(m, c->named_count, &dict));
  PASS(fill_dict(m, c, dict));
  *result_p = (value){.kind = JINJA_DICT, .dict = dict};
  return TREADLE_OK;
}

static treadle_status make_namespace(machine *m, call *c, value *result_p) {
  treadle_jinja_dict *dict;
  PASS(treadle_jinja_dict_make(m, c->named_count, &dict));
  PASS(fill_dict(m, c, dict));
  for (size_t i = 0; i < dict->count; i++)
    if (dict->keys[i].kind == JINJA_TEXT && dict->keys[i].text->length && *dict->keys[i].text->bytes == '_')
      REFUSE("a name in a namespace does not begin with '_'");
  *result_p = (value){.kind = JINJA_NAMESPACE, .names = dict};
  return TREADLE_OK;
}

static treadle_status make_cycler(machine *m, call *c, value *result_p) {
  treadle_jinja_cycler *cycler;
  if (c->count == 0 || c->named_count) REFUSE("cycler takes one value or more");
  PASS(treadle_jinja_alloc(m, 1, sizeof *cycler, &cycler));
  *cycler = (treadle_jinja_cycler){c->items, c->count, 0};
  *result_p = (value){.kind = JINJA_CYCLER, .cycler = cycler};
  return TREADLE_OK;
}

static treadle_status make_joiner(machine *m, call *c, value *result_p) {
  treadle_jinja_joiner *joiner;
  PASS(treadle_jinja_alloc(m, 1, sizeof *joiner, &joiner));
  joiner->separator = c->bound[0];
  if (joiner->separator.kind == JINJA_ABSENT) PASS(treadle_jinja_plain(m, ", ", &joiner->separator));
  *result_p = (value){.kind = JINJA_JOINER, .joiner = joiner};
  return TREADLE_OK;
}

/* lipsum makes random text. */
const treadle_jinja_row treadle_jinja_functions[] = {{"raise_exception", raise, "message"},
                                                     {"strftime_now", time_now, "format"},
                                                     {"range", make_range, "*"},
                                                     {"dict", make_dict, "*"},
                                                     {"namespace", make_namespace, "*"},
                                                     {"cycler", make_cycler, "*"},
                                                     {"joiner", make_joiner, "sep?"},
                                                     {"lipsum", NULL, "*"},
                                                     {NULL, NULL, NULL}};

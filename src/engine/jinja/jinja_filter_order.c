/* Filters that order and group. */
#include "jinja/jinja_filters.h"
#include "jinja/jinja_sort.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;

/* Items in the order of their keys. */
static treadle_status ordered(machine *m, const value *items, const value *keys, size_t count, bool reverse,
                              value *result_p) {
  size_t *places;
  value *sorted;
  PASS(treadle_jinja_sort(m, keys, count, reverse, &places));
  PASS(treadle_jinja_alloc(m, count, sizeof *sorted, &sorted));
  for (size_t i = 0; i < count; i++) sorted[i] = items[places[i]];
  return treadle_jinja_list_of(m, JINJA_LIST, sorted, count, result_p);
}

/* "a,b": a list of the keys of both. */
static treadle_status keys_of(machine *m, const treadle_jinja_key *key, value item, value *key_p) {
  treadle_jinja_key one = *key;
  value parts[16];
  size_t count = 0;
  const treadle_jinja_text *names = key->attribute.kind == JINJA_TEXT ? key->attribute.text : NULL;
  PASS(treadle_jinja_scan(m, names ? names->length : 0));
  if (!names || !memchr(names->bytes, ',', names->length)) return treadle_jinja_key_of(m, key, item, key_p);
  for (size_t from = 0; from <= names->length;) {
    const char *comma = memchr(names->bytes + from, ',', names->length - from);
    size_t end = comma ? (size_t)(comma - names->bytes) : names->length;
    if (count == sizeof parts / sizeof *parts) REFUSE("sort takes not more than 16 attributes");
    PASS(treadle_jinja_part(m, names, from, end, &one.attribute));
    PASS(treadle_jinja_key_of(m, &one, item, &parts[count++]));
    from = end + 1;
  }
  value *kept;
  PASS(treadle_jinja_alloc(m, count, sizeof *kept, &kept));
  memcpy(kept, parts, count * sizeof *kept);
  return treadle_jinja_list_of(m, JINJA_LIST, kept, count, key_p);
}

static treadle_status sort(machine *m, call *c, value *result_p) {
  const value *items;
  value *keys;
  size_t count;
  treadle_jinja_key key = {.attribute = c->bound[2], .folded = !treadle_jinja_flag(c->bound[1], false)};
  PASS(treadle_jinja_items(m, c->self, &items, &count));
  PASS(treadle_jinja_alloc(m, count, sizeof *keys, &keys));
  for (size_t i = 0; i < count; i++) PASS(keys_of(m, &key, items[i], &keys[i]));
  return ordered(m, items, keys, count, treadle_jinja_flag(c->bound[0], false), result_p);
}

static treadle_status sort_dict(machine *m, call *c, value *result_p) {
  const treadle_jinja_text *by = NULL;
  value *items, *keys;
  treadle_jinja_key key = {.folded = !treadle_jinja_flag(c->bound[0], false)};
  if (c->self.kind != JINJA_DICT) return treadle_jinja_unfit(c->self, "sorted as a dict");
  if (c->bound[1].kind != JINJA_ABSENT) PASS(treadle_jinja_text_argument(c->bound[1], "by", &by));
  bool by_value = by && treadle_jinja_equals(by, "value");
  if (by && !by_value && !treadle_jinja_equals(by, "key")) REFUSE("dictsort sorts by 'key' or 'value'");
  const treadle_jinja_dict *dict = c->self.dict;
  PASS(treadle_jinja_alloc(m, dict->count, sizeof *items, &items));
  PASS(treadle_jinja_alloc(m, dict->count, sizeof *keys, &keys));
  for (size_t i = 0; i < dict->count; i++) {
    PASS(treadle_jinja_pair(m, dict->keys[i], dict->values[i], &items[i]));
    PASS(treadle_jinja_key_of(m, &key, by_value ? dict->values[i] : dict->keys[i], &keys[i]));
  }
  return ordered(m, items, keys, dict->count, treadle_jinja_flag(c->bound[2], false), result_p);
}

/* Items of one key, with the key of the first as it was before it was put in lower case. */
static treadle_status make_group(machine *m, const treadle_jinja_key *key, const value *items, size_t count,
                                 value *group_p) {
  treadle_jinja_list *list;
  value *pair;
  PASS(treadle_jinja_alloc(m, 1, sizeof *list, &list));
  PASS(treadle_jinja_alloc(m, 2, sizeof *pair, &pair));
  PASS(treadle_jinja_key_of(m, key, items[0], &pair[0]));
  PASS(treadle_jinja_list_of(m, JINJA_LIST, items, count, &pair[1]));
  *list = (treadle_jinja_list){pair, 2, true};
  *group_p = (value){.kind = JINJA_TUPLE, .list = list};
  return TREADLE_OK;
}

static treadle_status group(machine *m, call *c, value *result_p) {
  const value *items;
  value *keys, *groups, sorted;
  size_t count, *places, group_count = 0;
  treadle_jinja_key key = {.attribute = c->bound[0],
                           .otherwise = c->bound[1],
                           .folded = !treadle_jinja_flag(c->bound[2], false)};
  PASS(treadle_jinja_items(m, c->self, &items, &count));
  PASS(treadle_jinja_alloc(m, count, sizeof *keys, &keys));
  PASS(treadle_jinja_alloc(m, count, sizeof *groups, &groups));
  for (size_t i = 0; i < count; i++) PASS(treadle_jinja_key_of(m, &key, items[i], &keys[i]));
  PASS(ordered(m, items, keys, count, false, &sorted));
  PASS(treadle_jinja_sort(m, keys, count, false, &places));
  key.folded = false;
  for (size_t from = 0, to; from < count; from = to) {
    bool same = true;
    for (to = from + 1; to < count; to++) {
      PASS(treadle_jinja_equal(m, keys[places[from]], keys[places[to]], &same));
      if (!same) break;
    }
    PASS(make_group(m, &key, sorted.list->items + from, to - from, &groups[group_count++]));
  }
  return treadle_jinja_list_of(m, JINJA_LIST, groups, group_count, result_p);
}

static treadle_status reverse(machine *m, call *c, value *result_p) {
  const value bounds[] = {treadle_jinja_none(), treadle_jinja_none(), treadle_jinja_int(-1)};
  const value *items;
  value *turned;
  size_t count;
  treadle_jinja_iterator *it;
  if (c->self.kind == JINJA_TEXT) return treadle_jinja_slice(m, c->self, bounds, result_p);
  PASS(treadle_jinja_items(m, c->self, &items, &count));
  PASS(treadle_jinja_alloc(m, count, sizeof *turned, &turned));
  for (size_t i = 0; i < count; i++) turned[i] = items[count - 1 - i];
  PASS(treadle_jinja_list_of(m, JINJA_LIST, turned, count, result_p));
  if (treadle_jinja_length(c->self) < 0) return TREADLE_OK; /* of an iterator: a list */
  PASS(treadle_jinja_iterate(m, *result_p, &it));
  *result_p = (value){.kind = JINJA_ITERATOR, .iterator = it};
  return TREADLE_OK;
}

const treadle_jinja_row treadle_jinja_order_filters[] = {
    {"dictsort", sort_dict, "case_sensitive? by? reverse?"},
    {"groupby", group, "attribute default? case_sensitive?"},
    {"reverse", reverse, ""},
    {"sort", sort, "reverse? case_sensitive? attribute?"},
    {NULL, NULL, NULL}};

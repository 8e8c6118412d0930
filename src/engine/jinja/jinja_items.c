/* Going through the items of lists, dicts, ranges and texts. */
#include "jinja/jinja_ops.h"

#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_iterator iterator;

treadle_status treadle_jinja_list_of(machine *m, treadle_jinja_kind kind, const value *items, size_t count,
                                     value *value_p) {
  treadle_jinja_list *list;
  PASS(treadle_jinja_alloc(m, 1, sizeof *list, &list));
  *list = (treadle_jinja_list){items, count, false};
  *value_p = (value){.kind = kind, .list = list};
  return TREADLE_OK;
}

treadle_status treadle_jinja_pair(machine *m, value a, value b, value *value_p) {
  value *items;
  PASS(treadle_jinja_alloc(m, 2, sizeof *items, &items));
  items[0] = a;
  items[1] = b;
  return treadle_jinja_list_of(m, JINJA_TUPLE, items, 2, value_p);
}

bool treadle_jinja_is_iterable(value v) {
  return treadle_jinja_length(v) >= 0 || v.kind == JINJA_ITERATOR || v.kind == JINJA_LOOP;
}

treadle_status treadle_jinja_item(machine *m, value v, int64_t index, value *item_p) {
  size_t i = (size_t)index;
  switch (v.kind) {
  case JINJA_LIST:
  case JINJA_TUPLE: *item_p = v.list->items[i]; return TREADLE_OK;
  case JINJA_DICT:
  case JINJA_KEYS: *item_p = v.dict->keys[i]; return TREADLE_OK;
  case JINJA_VALUES: *item_p = v.dict->values[i]; return TREADLE_OK;
  case JINJA_ITEMS: return treadle_jinja_pair(m, v.dict->keys[i], v.dict->values[i], item_p);
  case JINJA_RANGE: *item_p = treadle_jinja_int(v.range->start + index * v.range->step); return TREADLE_OK;
  default: break;
  }
  if (v.text->points < v.text->length) PASS(treadle_jinja_scan(m, 2 * v.text->length));
  size_t from = treadle_jinja_offset(v.text, i);
  size_t to = v.text->points == v.text->length ? from + 1 : treadle_jinja_offset(v.text, i + 1);
  return treadle_jinja_part(m, v.text, from, to, item_p);
}

static treadle_status next_item(machine *m, iterator *it, value *item_p, bool *got_p) {
  *got_p = (int64_t)it->at < treadle_jinja_length(it->over);
  return *got_p && it->over.kind != JINJA_UNDEFINED
             ? treadle_jinja_item(m, it->over, (int64_t)it->at++, item_p)
             : TREADLE_OK;
}

static treadle_status next_character(machine *m, iterator *it, value *item_p, bool *got_p) {
  const treadle_jinja_text *text = it->over.text;
  uint32_t code;
  *got_p = it->at < text->length;
  if (!*got_p) return TREADLE_OK;
  size_t from = it->at;
  it->at += treadle_utf8_decode(text->bytes + from, &code);
  return treadle_jinja_part(m, text, from, it->at, item_p);
}

treadle_status treadle_jinja_iterate(machine *m, value v, iterator **iterator_p) {
  if (v.kind == JINJA_ITERATOR) {
    *iterator_p = v.iterator;
    return TREADLE_OK;
  }
  if (treadle_jinja_length(v) < 0) return treadle_jinja_unfit(v, "gone through item by item");
  PASS(treadle_jinja_alloc(m, 1, sizeof **iterator_p, iterator_p));
  (*iterator_p)->next = v.kind == JINJA_TEXT ? next_character : next_item;
  (*iterator_p)->over = v;
  return TREADLE_OK;
}

treadle_status treadle_jinja_next_of(machine *m, iterator *it, value *item_p, bool *got_p) {
  PASS(treadle_jinja_step(m, 1));
  PASS(treadle_jinja_enter(m)); /* iterators lie over each other */
  treadle_status status = it->next(m, it, item_p, got_p);
  m->depth--;
  return status;
}

treadle_status treadle_jinja_items(machine *m, value v, const value **items_p, size_t *count_p) {
  iterator *it;
  value *items, item;
  bool got;
  size_t count = 0;
  if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) {
    *items_p = v.list->items;
    *count_p = v.list->count;
    return TREADLE_OK;
  }
  int64_t length = treadle_jinja_length(v);
  size_t capacity = length < 0 ? 16 : (size_t)length;
  PASS(treadle_jinja_iterate(m, v, &it));
  PASS(treadle_jinja_alloc(m, capacity, sizeof *items, &items));
  for (;;) {
    PASS(treadle_jinja_next_of(m, it, &item, &got));
    if (!got) break;
    if (count == capacity) {
      value *more;
      capacity = 2 * capacity + 16;
      PASS(treadle_jinja_alloc(m, capacity, sizeof *more, &more));
      if (count) memcpy(more, items, count * sizeof *more);
      items = more;
    }
    items[count++] = item;
  }
  *items_p = items;
  *count_p = count;
  return TREADLE_OK;
}

/* Filters that make their items one by one, when they are asked for: Python's generators. Such a value is true even where it has no
 * items, has no length, and can be gone through once. */
#include "jinja/jinja_filters.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_sort.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_call call;
typedef treadle_jinja_iterator iterator;

/* What the filters below keep. */
typedef struct work {
  value over; /* what is gone through; its iterator is made with the first item */
  treadle_jinja_key key;
  const char *name; /* of a filter or a test; NULL: none */
  const treadle_jinja_row *row;
  call arguments; /* its arguments */
  bool test, negated, attribute;
  treadle_jinja_dict *seen; /* of unique */
  int64_t width;
  value fill;
  int64_t at;
  const value *items;
  size_t count;
} work;

static treadle_status make(machine *m, treadle_jinja_next next, const work *state, value *result_p) {
  iterator *it;
  work *kept;
  PASS(treadle_jinja_alloc(m, 1, sizeof *it, &it));
  PASS(treadle_jinja_alloc(m, 1, sizeof *kept, &kept));
  *kept = *state;
  *it = (iterator){.next = next, .state = kept};
  *result_p = (value){.kind = JINJA_ITERATOR, .iterator = it};
  return TREADLE_OK;
}

/* map, select and the like take what is not true for empty: none, too. */
static value or_empty(value v) { return treadle_jinja_is_true(v) ? v : (value){.kind = JINJA_UNDEFINED}; }

/* The next item below. */
static treadle_status pull(machine *m, iterator *it, value *item_p, bool *got_p) {
  const work *state = it->state;
  if (!it->from) PASS(treadle_jinja_iterate(m, state->over, &it->from));
  return treadle_jinja_next_of(m, it->from, item_p, got_p);
}

/* ---- map, select, reject ---------------------------------------------------------------------------------- */

/* The name of a filter or test among the arguments, at `place`; the arguments behind it are its own. */
static treadle_status take_name(machine *m, const call *c, size_t place, bool test, work *state) {
  const treadle_jinja_text *name;
  char *plain;
  state->test = test;
  if (c->count <= place) return TREADLE_OK;
  PASS(treadle_jinja_text_argument(c->items[place], "name", &name));
  PASS(treadle_jinja_alloc(m, name->length + 1, 1, &plain));
  memcpy(plain, name->bytes, name->length);
  state->name = plain;
  state->row = test ? treadle_jinja_test(plain) : treadle_jinja_filter(plain);
  state->arguments.items = c->items + place + 1;
  state->arguments.count = c->count - place - 1;
  state->arguments.names = c->names;
  state->arguments.named = c->named;
  state->arguments.named_count = c->named_count;
  return TREADLE_OK;
}

static treadle_status apply(machine *m, const work *state, value item, value *result_p) {
  call *c;
  if (!state->row) REFUSE("there is no %s named '%.60s'", state->test ? "test" : "filter", state->name);
  PASS(treadle_jinja_alloc(m, 1, sizeof *c, &c));
  *c = state->arguments;
  c->self = item;
  return treadle_jinja_run(m, state->row, c, result_p);
}

static treadle_status next_mapped(machine *m, iterator *it, value *item_p, bool *got_p) {
  const work *state = it->state;
  PASS(pull(m, it, item_p, got_p));
  if (!*got_p) return TREADLE_OK;
  if (state->attribute) return treadle_jinja_key_of(m, &state->key, *item_p, item_p);
  return apply(m, state, *item_p, item_p);
}

/* Nothing is looked at before the first item is: an argument that is wrong is an error then. */
static treadle_status map(machine *m, call *c, value *result_p) {
  work state = {.over = or_empty(c->self)};
  const value *attribute = treadle_jinja_named(c, "attribute"),
              *otherwise = treadle_jinja_named(c, "default");
  state.attribute = c->count == 0 && attribute;
  if (state.attribute) {
    state.key.attribute = *attribute;
    if (otherwise) state.key.otherwise = *otherwise;
    if (c->named_count > (size_t)(otherwise ? 2 : 1))
      REFUSE("map takes attribute and default alone by name");
  } else {
    if (c->count == 0 && treadle_jinja_is_true(c->self))
      REFUSE("map takes the name of a filter, or attribute=");
    PASS(take_name(m, c, 0, false, &state));
  }
  return make(m, next_mapped, &state, result_p);
}

static treadle_status next_selected(machine *m, iterator *it, value *item_p, bool *got_p) {
  const work *state = it->state;
  for (;;) {
    value looked;
    PASS(pull(m, it, item_p, got_p));
    if (!*got_p) return TREADLE_OK;
    looked = *item_p;
    if (state->attribute) PASS(treadle_jinja_key_of(m, &state->key, looked, &looked));
    if (state->name) PASS(apply(m, state, looked, &looked));
    if (treadle_jinja_is_true(looked) != state->negated) return TREADLE_OK;
  }
}

static treadle_status select_any(machine *m, call *c, bool attribute, bool negated, value *result_p) {
  work state = {.over = or_empty(c->self), .attribute = attribute, .negated = negated};
  if (attribute && c->count == 0 && treadle_jinja_is_true(c->self))
    REFUSE("the name of an attribute is missing");
  if (attribute && c->count) state.key.attribute = c->items[0];
  PASS(take_name(m, c, attribute, true, &state));
  return make(m, next_selected, &state, result_p);
}

static treadle_status accept(machine *m, call *c, value *result_p) {
  return select_any(m, c, false, false, result_p);
}
static treadle_status reject(machine *m, call *c, value *result_p) {
  return select_any(m, c, false, true, result_p);
}
static treadle_status select_attribute(machine *m, call *c, value *result_p) {
  return select_any(m, c, true, false, result_p);
}
static treadle_status reject_attribute(machine *m, call *c, value *result_p) {
  return select_any(m, c, true, true, result_p);
}

/* ---- unique, items, batch, slice ---------------------------------------------------------------------------- */

static treadle_status next_unique(machine *m, iterator *it, value *item_p, bool *got_p) {
  work *state = it->state;
  for (;;) {
    value key;
    int64_t index;
    PASS(pull(m, it, item_p, got_p));
    if (!*got_p) return TREADLE_OK;
    PASS(treadle_jinja_key_of(m, &state->key, *item_p, &key));
    PASS(treadle_jinja_dict_find(m, state->seen, key, &index));
    if (index >= 0) continue;
    return treadle_jinja_dict_put(m, state->seen, key, treadle_jinja_none());
  }
}

static treadle_status unique(machine *m, call *c, value *result_p) {
  work state = {.over = c->self};
  state.key.folded = !treadle_jinja_flag(c->bound[0], false);
  state.key.attribute = c->bound[1];
  PASS(treadle_jinja_dict_make(m, 0, &state.seen));
  return make(m, next_unique, &state, result_p);
}

static treadle_status next_pair(machine *m, iterator *it, value *item_p, bool *got_p) {
  const work *state = it->state;
  if (state->over.kind != JINJA_ITEMS && state->over.kind != JINJA_UNDEFINED)
    return treadle_jinja_unfit(state->over, "read as pairs of a dict");
  return pull(m, it, item_p, got_p);
}

static treadle_status items(machine *m, call *c, value *result_p) {
  work state = {.over = c->self};
  if (state.over.kind == JINJA_DICT) state.over.kind = JINJA_ITEMS;
  return make(m, next_pair, &state, result_p);
}

static treadle_status next_batch(machine *m, iterator *it, value *item_p, bool *got_p) {
  const work *state = it->state;
  value *row = NULL, item;
  size_t count = 0, capacity = 0;
  bool got = true;
  while ((int64_t)count < state->width || count == 0) {
    PASS(pull(m, it, &item, &got));
    if (!got) break;
    if (count == capacity) {
      value *more;
      capacity = 2 * capacity + 4;
      PASS(treadle_jinja_alloc(m, capacity, sizeof *more, &more));
      if (count) memcpy(more, row, count * sizeof *more);
      row = more;
    }
    row[count++] = item;
  }
  *got_p = count > 0;
  if (!*got_p) return TREADLE_OK;
  size_t filled = count;
  if (!got && state->fill.kind != JINJA_ABSENT && state->fill.kind != JINJA_NONE &&
      (int64_t)count < state->width)
    filled = (size_t)state->width;
  value *all;
  PASS(treadle_jinja_alloc(m, filled, sizeof *all, &all));
  for (size_t i = 0; i < filled; i++) all[i] = i < count ? row[i] : state->fill;
  return treadle_jinja_list_of(m, JINJA_LIST, all, filled, item_p);
}

static treadle_status batch(machine *m, call *c, value *result_p) {
  work state = {.over = c->self, .fill = c->bound[1]};
  PASS(treadle_jinja_whole_argument(c->bound[0], "linecount", 0, &state.width));
  return make(m, next_batch, &state, result_p);
}

/* Column `at` of `width`; the first ones have one item more. */
static treadle_status next_column(machine *m, iterator *it, value *item_p, bool *got_p) {
  work *state = it->state;
  if (state->at == 0) PASS(treadle_jinja_items(m, state->over, &state->items, &state->count));
  if (state->width == 0) REFUSE("slice is asked for 0 columns");
  *got_p = state->at < state->width;
  if (!*got_p) return TREADLE_OK;
  int64_t each = (int64_t)state->count / state->width, extra = (int64_t)state->count % state->width,
          at = state->at++;
  size_t from = (size_t)(at * each + (at < extra ? at : extra)), count = (size_t)(each + (at < extra));
  bool filled = at >= extra && state->fill.kind != JINJA_ABSENT && state->fill.kind != JINJA_NONE;
  value *column;
  PASS(treadle_jinja_alloc(m, count + filled, sizeof *column, &column));
  if (count) memcpy(column, state->items + from, count * sizeof *column);
  if (filled) column[count] = state->fill;
  return treadle_jinja_list_of(m, JINJA_LIST, column, count + filled, item_p);
}

static treadle_status slice(machine *m, call *c, value *result_p) {
  work state = {.over = c->self, .fill = c->bound[1]};
  PASS(treadle_jinja_whole_argument(c->bound[0], "slices", 0, &state.width));
  return make(m, next_column, &state, result_p);
}

const treadle_jinja_row treadle_jinja_lazy_filters[] = {{"batch", batch, "linecount fill_with?"},
                                                        {"items", items, ""},
                                                        {"map", map, "*"},
                                                        {"reject", reject, "*"},
                                                        {"rejectattr", reject_attribute, "*"},
                                                        {"select", accept, "*"},
                                                        {"selectattr", select_attribute, "*"},
                                                        {"slice", slice, "slices fill_with?"},
                                                        {"unique", unique, "case_sensitive? attribute?"},
                                                        {NULL, NULL, NULL}};

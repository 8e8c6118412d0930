/* Dicts keep the order of their keys. Beyond a few keys a table of slots finds them: open addressing, at most half full. Keys that
 * Python takes for equal (1, 1.0 and True) are one key, so that numbers are hashed by value. */
#include "jinja/jinja_ops.h"

#include "base/hash.h"
#include "jinja/jinja_text.h"

#include <math.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_dict dict;

enum { FEW = 8 };

/* Tuples may hold the same tuple many times, so that their items count and not their memory. */
static treadle_status hash_of(machine *m, value key, uint64_t *hash_p) {
  int64_t number;
  PASS(treadle_jinja_step(m, 1));
  switch (key.kind) {
  case JINJA_TEXT:
    PASS(treadle_jinja_work(m, key.text->length));
    *hash_p = treadle_hash_bytes(key.text->bytes, key.text->length, 0);
    break;
  case JINJA_FLOAT:
    number = fabs(key.real) < 0x1p62 ? (int64_t)key.real : 0;
    *hash_p = treadle_mix64((uint64_t)number);
    break;
  case JINJA_BOOL:
  case JINJA_INT:
    number = key.kind == JINJA_BOOL ? key.truth : key.number;
    *hash_p =
        treadle_mix64(number > -(INT64_C(1) << 62) && number < INT64_C(1) << 62 ? (uint64_t)number : 0);
    break;
  case JINJA_TUPLE:
    *hash_p = key.list->count;
    PASS(treadle_jinja_enter(m));
    for (size_t i = 0; i < key.list->count; i++) {
      uint64_t more;
      PASS(hash_of(m, key.list->items[i], &more));
      *hash_p = treadle_hash_more(*hash_p, more);
    }
    m->depth--;
    break;
  case JINJA_LIST:
  case JINJA_DICT: REFUSE("a value of type %s cannot be a key", treadle_jinja_type(key));
  default: *hash_p = treadle_mix64((uint64_t)key.kind); break;
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_dict_make(machine *m, size_t capacity, dict **dict_p) {
  dict *d;
  PASS(treadle_jinja_alloc(m, 1, sizeof *d, &d));
  PASS(treadle_jinja_alloc(m, capacity, sizeof *d->keys, &d->keys));
  PASS(treadle_jinja_alloc(m, capacity, sizeof *d->values, &d->values));
  d->capacity = capacity;
  *dict_p = d;
  return TREADLE_OK;
}

/* *slot_p: that of the key, or the free one where it belongs. */
static treadle_status look(machine *m, const dict *d, value key, int64_t *index_p, size_t *slot_p) {
  uint64_t hash;
  bool equal;
  PASS(hash_of(m, key, &hash));
  *index_p = -1;
  for (size_t i = 0; !d->slots && i < d->count; i++) {
    PASS(treadle_jinja_equal(m, d->keys[i], key, &equal));
    if (!equal) continue;
    *index_p = (int64_t)i;
    return TREADLE_OK;
  }
  for (size_t at = hash & (d->slot_count - 1); d->slots; at = (at + 1) & (d->slot_count - 1)) {
    *slot_p = at;
    if (d->slots[at] == 0) return TREADLE_OK;
    PASS(treadle_jinja_equal(m, d->keys[d->slots[at] - 1], key, &equal));
    PASS(treadle_jinja_step(m, 1));
    if (!equal) continue;
    *index_p = (int64_t)d->slots[at] - 1;
    return TREADLE_OK;
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_dict_find(machine *m, const dict *d, value key, int64_t *index_p) {
  size_t slot;
  return look(m, d, key, index_p, &slot);
}

const value *treadle_jinja_dict_get(const dict *d, const char *key) {
  uint64_t hash = treadle_hash_bytes(key, strlen(key), 0);
  for (size_t i = 0; !d->slots && i < d->count; i++)
    if (d->keys[i].kind == JINJA_TEXT && treadle_jinja_equals(d->keys[i].text, key)) return &d->values[i];
  for (size_t at = hash & (d->slot_count - 1); d->slots && d->slots[at];
       at = (at + 1) & (d->slot_count - 1)) {
    size_t i = d->slots[at] - 1;
    if (d->keys[i].kind == JINJA_TEXT && treadle_jinja_equals(d->keys[i].text, key)) return &d->values[i];
  }
  return NULL;
}

/* A table for all present keys, with room for twice as many. */
static treadle_status make_slots(machine *m, dict *d) {
  d->slot_count = 4 * FEW;
  while (d->slot_count < 4 * d->capacity) d->slot_count *= 2;
  PASS(treadle_jinja_alloc(m, d->slot_count, sizeof *d->slots, &d->slots));
  for (size_t i = 0; i < d->count; i++) {
    uint64_t hash;
    PASS(hash_of(m, d->keys[i], &hash));
    size_t at = hash & (d->slot_count - 1);
    while (d->slots[at]) at = (at + 1) & (d->slot_count - 1);
    d->slots[at] = (uint32_t)i + 1;
  }
  return TREADLE_OK;
}

static treadle_status grow(machine *m, dict *d) {
  size_t capacity = d->capacity ? 2 * d->capacity : FEW;
  value *keys, *values;
  PASS(treadle_jinja_alloc(m, capacity, sizeof *keys, &keys));
  PASS(treadle_jinja_alloc(m, capacity, sizeof *values, &values));
  if (d->count) {
    memcpy(keys, d->keys, d->count * sizeof *keys);
    memcpy(values, d->values, d->count * sizeof *values);
  }
  d->keys = keys;
  d->values = values;
  d->capacity = capacity;
  return TREADLE_OK;
}

treadle_status treadle_jinja_dict_put(machine *m, dict *d, value key, value v) {
  int64_t index;
  size_t slot = 0;
  if (d->count == d->capacity) PASS(grow(m, d));
  if (d->count >= FEW && (!d->slots || d->slot_count < 2 * d->count + 2)) PASS(make_slots(m, d));
  PASS(look(m, d, key, &index, &slot));
  if (index >= 0) {
    d->values[index] = v;
    return TREADLE_OK;
  }
  d->keys[d->count] = key;
  d->values[d->count++] = v;
  if (d->slots) d->slots[slot] = (uint32_t)d->count;
  return TREADLE_OK;
}

treadle_status treadle_jinja_dict_put_all(machine *m, dict *d, const dict *from) {
  for (size_t i = 0; i < from->count; i++)
    PASS(treadle_jinja_dict_put(m, d, from->keys[i], from->values[i]));
  return TREADLE_OK;
}

/* Sorting by keys: stable, by '<' alone, as Python's sorted() is. */
#ifndef TREADLE_JINJA_JINJA_SORT_H
#define TREADLE_JINJA_JINJA_SORT_H

#include "jinja/jinja_ops.h"

/* *places_p[i] is the place of the key that comes i-th; equal keys stay in their order, reversed or not. */
treadle_status treadle_jinja_sort(treadle_jinja_machine *machine, const treadle_jinja_value *keys,
                                  size_t count, bool reverse, size_t **places_p);

/* Keys that filters take of items: an attribute with dots ("a.b.0"), in lower case if case does not count. */
typedef struct treadle_jinja_key {
  treadle_jinja_value attribute; /* ABSENT or NONE: the item itself */
  treadle_jinja_value otherwise; /* in place of undefined ones; ABSENT or NONE: none */
  bool folded;
} treadle_jinja_key;
treadle_status treadle_jinja_key_of(treadle_jinja_machine *machine, const treadle_jinja_key *key,
                                    treadle_jinja_value item, treadle_jinja_value *value_p);

#endif

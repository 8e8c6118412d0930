/* Values of templates: Python's, as far as Jinja shows them.
 *
 * A value is a small struct that is passed by value; what it points to lies in the arena of the machine that renders (or of the
 * template, for constants) and never changes once it is made, so that values may share it. Only namespaces, loops, iterators,
 * cyclers and joiners have a state.
 *
 * Texts are UTF-8 with a length, and may hold a character 0. Python counts code points; `points` is their number. */
#ifndef TREADLE_JINJA_JINJA_VALUE_H
#define TREADLE_JINJA_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum treadle_jinja_kind {
  JINJA_ABSENT, /* no value at all: an optional argument that was not given */
  JINJA_UNDEFINED,
  JINJA_NONE,
  JINJA_BOOL,
  JINJA_INT,
  JINJA_BIG, /* an integer beyond 64 bits */
  JINJA_FLOAT,
  JINJA_TEXT,
  JINJA_LIST,
  JINJA_TUPLE,
  JINJA_DICT,
  JINJA_KEYS, /* views of a dict */
  JINJA_VALUES,
  JINJA_ITEMS,
  JINJA_RANGE,
  JINJA_ITERATOR,
  JINJA_FUNCTION, /* of the environment */
  JINJA_METHOD,
  JINJA_MACRO,
  JINJA_NAMESPACE,
  JINJA_LOOP,
  JINJA_CYCLER,
  JINJA_JOINER,
  JINJA_KINDS
} treadle_jinja_kind;

typedef struct treadle_jinja_text {
  const char *bytes;
  size_t length, points;
  bool safe; /* Markup: escaped already */
} treadle_jinja_text;

typedef struct treadle_jinja_value {
  treadle_jinja_kind kind;
  union {
    bool truth;
    int64_t number;
    double real;
    const treadle_jinja_text *text;
    const struct treadle_jinja_list *list; /* also of a tuple */
    const struct treadle_jinja_dict *dict; /* also of its views */
    const struct treadle_jinja_big *big;
    const struct treadle_jinja_missing *missing; /* of an undefined value */
    const struct treadle_jinja_range *range;
    struct treadle_jinja_iterator *iterator;
    const struct treadle_jinja_row *function;
    const struct treadle_jinja_method *method;
    const struct treadle_jinja_macro *macro;
    struct treadle_jinja_dict *names; /* of a namespace */
    struct treadle_jinja_loop *loop;
    struct treadle_jinja_cycler *cycler;
    struct treadle_jinja_joiner *joiner;
  };
} treadle_jinja_value;

typedef struct treadle_jinja_list {
  const treadle_jinja_value *items;
  size_t count;
  bool group; /* a tuple of groupby, with .grouper and .list */
} treadle_jinja_list;

/* Keys in the order in which they came, with a hash table beside them (jinja_dict.c). */
typedef struct treadle_jinja_dict {
  treadle_jinja_value *keys, *values;
  size_t count, capacity;
  uint32_t *slots; /* index + 1; 0 is free. NULL where there are few keys */
  size_t slot_count;
} treadle_jinja_dict;

/* Why a value is undefined. */
typedef struct treadle_jinja_missing {
  const char *reason; /* a sentence; NULL: made of the others */
  const char *of;     /* the type of the value that lacks it; NULL: a variable */
  treadle_jinja_value name;
  bool forbidden; /* the sandbox does not give it */
} treadle_jinja_missing;

typedef struct treadle_jinja_range {
  int64_t start, stop, step, count;
} treadle_jinja_range;

typedef struct treadle_jinja_joiner {
  treadle_jinja_value separator;
  bool used;
} treadle_jinja_joiner;

typedef struct treadle_jinja_cycler {
  const treadle_jinja_value *items;
  size_t count, at;
} treadle_jinja_cycler;

static inline treadle_jinja_value treadle_jinja_none(void) {
  return (treadle_jinja_value){.kind = JINJA_NONE};
}
static inline treadle_jinja_value treadle_jinja_bool(bool truth) {
  return (treadle_jinja_value){.kind = JINJA_BOOL, .truth = truth};
}
static inline treadle_jinja_value treadle_jinja_int(int64_t number) {
  return (treadle_jinja_value){.kind = JINJA_INT, .number = number};
}
static inline treadle_jinja_value treadle_jinja_float(double real) {
  return (treadle_jinja_value){.kind = JINJA_FLOAT, .real = real};
}
static inline treadle_jinja_value treadle_jinja_of_text(const treadle_jinja_text *text) {
  return (treadle_jinja_value){.kind = JINJA_TEXT, .text = text};
}

/* The name of its type in Python: "str", "NoneType". */
const char *treadle_jinja_type(treadle_jinja_value value);

/* bool, int or a larger one. */
static inline bool treadle_jinja_is_whole(treadle_jinja_value value) {
  return value.kind == JINJA_BOOL || value.kind == JINJA_INT || value.kind == JINJA_BIG;
}
static inline bool treadle_jinja_is_number(treadle_jinja_value value) {
  return treadle_jinja_is_whole(value) || value.kind == JINJA_FLOAT;
}

bool treadle_jinja_is_true(treadle_jinja_value value);

/* Items, characters or keys; -1 where Python's len() has none. */
int64_t treadle_jinja_length(treadle_jinja_value value);

/* Is it the same object (Python's `is`)? */
bool treadle_jinja_is_same(treadle_jinja_value a, treadle_jinja_value b);

#endif

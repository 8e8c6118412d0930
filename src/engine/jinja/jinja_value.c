/* Types, truth and lengths. */
#include "jinja/jinja_value.h"

#include "jinja/jinja_machine.h"

#include <string.h>

const char *treadle_jinja_type(treadle_jinja_value value) {
  static const char *const names[JINJA_KINDS] = {
      [JINJA_ABSENT] = "nothing",
      [JINJA_UNDEFINED] = "Undefined",
      [JINJA_NONE] = "NoneType",
      [JINJA_BOOL] = "bool",
      [JINJA_INT] = "int",
      [JINJA_BIG] = "int",
      [JINJA_FLOAT] = "float",
      [JINJA_TEXT] = "str",
      [JINJA_LIST] = "list",
      [JINJA_TUPLE] = "tuple",
      [JINJA_DICT] = "dict",
      [JINJA_KEYS] = "dict_keys",
      [JINJA_VALUES] = "dict_values",
      [JINJA_ITEMS] = "dict_items",
      [JINJA_RANGE] = "range",
      [JINJA_ITERATOR] = "generator",
      [JINJA_FUNCTION] = "function",
      [JINJA_METHOD] = "method",
      [JINJA_MACRO] = "Macro",
      [JINJA_NAMESPACE] = "Namespace",
      [JINJA_LOOP] = "LoopContext",
      [JINJA_CYCLER] = "Cycler",
      [JINJA_JOINER] = "Joiner",
  };
  return value.kind == JINJA_TEXT && value.text->safe ? "Markup" : names[value.kind];
}

int64_t treadle_jinja_length(treadle_jinja_value value) {
  switch (value.kind) {
  case JINJA_UNDEFINED: return 0;
  case JINJA_TEXT: return (int64_t)value.text->points;
  case JINJA_LIST:
  case JINJA_TUPLE: return (int64_t)value.list->count;
  case JINJA_DICT:
  case JINJA_KEYS:
  case JINJA_VALUES:
  case JINJA_ITEMS: return (int64_t)value.dict->count;
  case JINJA_RANGE: return value.range->count;
  default: return -1;
  }
}

bool treadle_jinja_is_true(treadle_jinja_value value) {
  switch (value.kind) {
  case JINJA_ABSENT:
  case JINJA_UNDEFINED:
  case JINJA_NONE: return false;
  case JINJA_BOOL: return value.truth;
  case JINJA_INT: return value.number != 0;
  case JINJA_FLOAT: return value.real != 0;
  default: return treadle_jinja_length(value) != 0;
  }
}

/* Numbers have no place of their own here: equal ones are the same, as small integers of Python are. */
bool treadle_jinja_is_same(treadle_jinja_value a, treadle_jinja_value b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case JINJA_NONE: return true;
  case JINJA_BOOL: return a.truth == b.truth;
  case JINJA_INT: return a.number == b.number;
  case JINJA_FLOAT: return memcmp(&a.real, &b.real, sizeof a.real) == 0;
  default: return a.list == b.list; /* whichever of the pointers it is */
  }
}

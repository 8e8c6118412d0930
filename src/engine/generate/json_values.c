/* Values of JSON with their types checked. */
#include "generate/json_values.h"

#include "base/json.h"

#include <string.h>

/* "a text", "a list", .. */
static const char *name_of(const json_t *value) {
  switch (json_typeof(value)) {
  case JSON_OBJECT: return "an object";
  case JSON_ARRAY: return "a list";
  case JSON_STRING: return "a text";
  case JSON_INTEGER: return "a whole number";
  case JSON_REAL: return "a number with a fraction";
  case JSON_NULL: return "null";
  default: return json_is_true(value) ? "true" : "false";
  }
}

/* value: NULL: the key is not there. */
static treadle_status refuse(const char *what, const char *key, const char *wanted, const json_t *value) {
  if (!value) REFUSE("%s: has no %s, which must be %s", what, key, wanted);
  if (treadle_json_odd(value)) REFUSE("%s: %s must be %s%s", what, key, wanted, treadle_json_note(value));
  REFUSE("%s: %s must be %s, not %s", what, key, wanted, name_of(value));
}

treadle_status treadle_json_real(const char *what, const char *key, const json_t *value, double *real_p) {
  if (!json_is_number(value)) return refuse(what, key, "a number", value);
  *real_p = json_number_value(value);
  return TREADLE_OK;
}

treadle_status treadle_json_whole(const char *what, const char *key, const json_t *value,
                                  int64_t *whole_p) {
  if (!json_is_integer(value)) return refuse(what, key, "a whole number", value);
  *whole_p = json_integer_value(value);
  return TREADLE_OK;
}

treadle_status treadle_json_truth(const char *what, const char *key, const json_t *value, bool *truth_p) {
  if (!json_is_boolean(value)) return refuse(what, key, "true or false", value);
  *truth_p = json_is_true(value);
  return TREADLE_OK;
}

treadle_status treadle_json_text(const char *what, const char *key, const json_t *value,
                                 treadle_arena *arena, treadle_text *text_p) {
  if (!json_is_string(value)) return refuse(what, key, "a text", value);
  size_t count = json_string_length(value);
  char *bytes = treadle_arena_alloc(arena, count + 1);
  if (!bytes) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %s of %zu bytes", what, key, count);
  memcpy(bytes, json_string_value(value), count + 1);
  *text_p = (treadle_text){bytes, count};
  return TREADLE_OK;
}

treadle_status treadle_json_tokens(const char *what, const char *key, const json_t *value,
                                   treadle_arena *arena, int32_t **tokens_p, int64_t *count_p) {
  bool is_list = json_is_array(value);
  size_t count = is_list ? json_array_size(value) : 1;
  int32_t *tokens = treadle_arena_alloc_array(arena, count + 1, sizeof *tokens);
  if (!tokens) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %s of %zu ids", what, key, count);
  for (size_t i = 0; i < count; i++) {
    const json_t *item = is_list ? json_array_get(value, i) : value;
    if (!json_is_integer(item)) return refuse(what, key, "token ids", item);
    long long id = json_integer_value(item);
    if (id < 0 || id > INT32_MAX) REFUSE("%s: %s: %lld is not a token", what, key, id);
    tokens[i] = (int32_t)id;
  }
  *tokens_p = tokens;
  *count_p = (int64_t)count;
  return TREADLE_OK;
}

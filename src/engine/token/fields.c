/* Fields of JSON objects. */
#include "token/fields.h"

#include "base/json.h"
#include "base/utf8.h"
#include "token/unicode.h"

#include <string.h>

/* NULL: not there, or null. */
static const json_t *get(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  return json_is_null(value) ? NULL : value;
}

treadle_status treadle_field_bool(const json_t *object, const char *name, bool otherwise, bool *value_p) {
  const json_t *value = get(object, name);
  if (value && !json_is_boolean(value))
    REFUSE("%s is neither true nor false%s", name, treadle_json_note(value));
  *value_p = value ? json_is_true(value) : otherwise;
  return TREADLE_OK;
}

treadle_status treadle_field_text(const json_t *object, const char *name, const char **text_p) {
  const json_t *value = get(object, name);
  if (value && !json_is_string(value)) REFUSE("%s is not a text%s", name, treadle_json_note(value));
  *text_p = value ? json_string_value(value) : NULL;
  return TREADLE_OK;
}

treadle_status treadle_field_needed_text(const json_t *object, const char *name, const char **text_p) {
  treadle_status status = treadle_field_text(object, name, text_p);
  if (!status && !*text_p) REFUSE("%s is missing", name);
  return status;
}

treadle_status treadle_field_number(const json_t *object, const char *name, int64_t low, int64_t high,
                                    int64_t *value_p) {
  const json_t *value = get(object, name);
  if (!value) REFUSE("%s is missing", name);
  if (!json_is_integer(value)) REFUSE("%s is not a whole number%s", name, treadle_json_note(value));
  *value_p = json_integer_value(value);
  if (*value_p < low || *value_p > high)
    REFUSE("%s is %lld, and must be from %lld to %lld", name, (long long)*value_p, (long long)low,
           (long long)high);
  return TREADLE_OK;
}

treadle_status treadle_field_character(const json_t *object, const char *name, uint32_t *code_p) {
  const char *text;
  treadle_status status = treadle_field_text(object, name, &text);
  *code_p = 0;
  if (status || !text) return status;
  if (!*text || text[treadle_utf8_decode(text, code_p)])
    REFUSE("%s is not one character: '%s'", name, text);
  return TREADLE_OK;
}

treadle_status treadle_field_word(const json_t *object, const char *name, const char *const *words,
                                  int otherwise, int *word_p) {
  const char *text;
  treadle_status status = treadle_field_text(object, name, &text);
  if (status) return status;
  *word_p = otherwise;
  if (!text && otherwise < 0) REFUSE("%s is missing", name);
  if (!text) return TREADLE_OK;
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], text) == 0) {
      *word_p = i;
      return TREADLE_OK;
    }
  REFUSE("%s is '%s', which is not known here", name, text);
}

treadle_status treadle_field_list(const json_t *object, const char *name, const json_t **list_p) {
  *list_p = get(object, name);
  if (*list_p && !json_is_array(*list_p)) REFUSE("%s is not a list%s", name, treadle_json_note(*list_p));
  return TREADLE_OK;
}

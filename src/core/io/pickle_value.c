/* Looking at the values of a pickle. */
#include "io/pickle.h"

#include <stdio.h>
#include <string.h>

const char *treadle_value_text(const treadle_value *value) {
  if (!value || value->type != TREADLE_VALUE_TEXT) return NULL;
  return strlen(value->is.bytes.at) == value->is.bytes.count ? value->is.bytes.at : NULL;
}

bool treadle_value_int(const treadle_value *value, int64_t *integer_p) {
  if (!value || value->type != TREADLE_VALUE_INT) return false;
  *integer_p = value->is.integer;
  return true;
}

bool treadle_value_is_global(const treadle_value *value, const char *module, const char *name) {
  return value && value->type == TREADLE_VALUE_GLOBAL && strcmp(value->is.global.module, module) == 0 &&
         strcmp(value->is.global.name, name) == 0;
}

const treadle_pickle_call *treadle_value_call_of(const treadle_value *value, const char *module,
                                                 const char *name) {
  if (!value || value->type != TREADLE_VALUE_CALL) return NULL;
  return treadle_value_is_global(value->is.call->callee, module, name) ? value->is.call : NULL;
}

const treadle_pickle_items *treadle_value_sequence(const treadle_value *value) {
  const treadle_pickle_call *size = treadle_value_call_of(value, "torch", "Size");
  if (size) { /* torch.Size((2, 3)) */
    const treadle_value *arguments = size->arguments;
    if (arguments->type != TREADLE_VALUE_TUPLE || arguments->is.items.count != 1) return NULL;
    value = arguments->is.items.values[0];
  }
  bool has_items = value && (value->type == TREADLE_VALUE_TUPLE || value->type == TREADLE_VALUE_LIST);
  return has_items ? &value->is.items : NULL;
}

bool treadle_value_numbers(const treadle_value *value, int64_t numbers[8], int *count_p) {
  const treadle_pickle_items *items = treadle_value_sequence(value);
  if (!items || items->count > 8) return false;
  for (uint32_t i = 0; i < items->count; i++)
    if (!treadle_value_int(items->values[i], &numbers[i]) || numbers[i] < 0) return false;
  *count_p = (int)items->count;
  return true;
}

const treadle_pickle_items *treadle_value_pairs(const treadle_value *value) {
  if (value && value->type == TREADLE_VALUE_DICT) return &value->is.items;
  const treadle_pickle_call *ordered = treadle_value_call_of(value, "collections", "OrderedDict");
  if (!ordered || ordered->appended.count) return NULL;
  const treadle_pickle_items *arguments = treadle_value_sequence(ordered->arguments);
  return arguments && arguments->count == 0 ? &ordered->pairs : NULL;
}

const treadle_value *treadle_pairs_get(const treadle_pickle_items *pairs, const char *key) {
  for (uint32_t i = pairs ? pairs->count : 0; i >= 2; i -= 2) {
    const char *text = treadle_value_text(pairs->values[i - 2]);
    if (text && strcmp(text, key) == 0) return pairs->values[i - 1];
  }
  return NULL;
}

const char *treadle_value_words(const treadle_value *value, char *buffer, size_t bytes) {
  static const char *const words[] = {
      [TREADLE_VALUE_NONE] = "None",      [TREADLE_VALUE_BOOL] = "a bool",
      [TREADLE_VALUE_INT] = "a number",   [TREADLE_VALUE_BIG] = "a number",
      [TREADLE_VALUE_FLOAT] = "a number", [TREADLE_VALUE_TEXT] = "a text",
      [TREADLE_VALUE_BYTES] = "bytes",    [TREADLE_VALUE_TUPLE] = "a tuple",
      [TREADLE_VALUE_LIST] = "a list",    [TREADLE_VALUE_SET] = "a set",
      [TREADLE_VALUE_DICT] = "a dict",    [TREADLE_VALUE_GLOBAL] = "the class or function",
      [TREADLE_VALUE_CALL] = "a call of", [TREADLE_VALUE_PERSISTENT] = "a storage",
  };
  if (!value) return "nothing";
  const treadle_value *named = value->type == TREADLE_VALUE_CALL ? value->is.call->callee : value;
  if (named->type == TREADLE_VALUE_GLOBAL)
    snprintf(buffer, bytes, "%s %.100s.%.100s", words[value->type], named->is.global.module,
             named->is.global.name);
  else
    snprintf(buffer, bytes, "%s%s", words[value->type],
             value->type == TREADLE_VALUE_CALL ? " something that is made by a call" : "");
  return buffer;
}

/* The text form of layouts, parsed into keys and values. */
#include "layout/settings.h"

#include "base/text.h"

#include <string.h>

treadle_status treadle_settings_parse(const char *text, treadle_arena *arena, treadle_settings *words) {
  memset(words, 0, sizeof *words);
  words->text = treadle_arena_copy_text(arena, text);
  char *at = treadle_arena_copy_text(arena, text);
  if (!words->text || !at) return treadle_fail(TREADLE_NO_MEMORY, "layout text: memory is out");
  words->type = at;
  at += strcspn(at, ":");
  bool more = *at == ':';
  *at = 0;
  if (!*words->type) return treadle_fail(TREADLE_REFUSED, "layout '%s': it begins with no type", text);
  if (more && at[1] == '@') {
    words->file = at + 2;
    more = false;
  }
  while (more) {
    char *key = ++at;
    at += strcspn(at, "=,\"");
    if (*at != '=' || at == key)
      return treadle_fail(TREADLE_REFUSED, "layout '%s': expected key=value at '%s'", text, key);
    *at++ = 0;
    char *value = at;
    if (*at == '"') {
      value = ++at;
      at += strcspn(at, "\"");
      if (*at != '"') return treadle_fail(TREADLE_REFUSED, "layout '%s': a quote is not closed", text);
      *at++ = 0;
    } else {
      at += strcspn(at, ",");
    }
    more = *at == ',';
    if (*at && !more)
      return treadle_fail(TREADLE_REFUSED, "layout '%s': expected a comma at '%s'", text, at);
    *at = 0;
    if (!*value) return treadle_fail(TREADLE_REFUSED, "layout '%s': %s has no value", text, key);
    for (int i = 0; i < words->count; i++)
      if (strcmp(words->words[i].key, key) == 0)
        return treadle_fail(TREADLE_REFUSED, "layout '%s': %s is given twice", text, key);
    if (words->count == TREADLE_MAX_SETTINGS)
      return treadle_fail(TREADLE_REFUSED, "layout '%s': more than %d keys", text, TREADLE_MAX_SETTINGS);
    words->words[words->count++] = (treadle_setting){.key = key, .value = value};
  }
  return TREADLE_OK;
}

const char *treadle_settings_get(treadle_settings *words, const char *key) {
  for (int i = 0; i < words->count; i++)
    if (strcmp(words->words[i].key, key) == 0) {
      words->words[i].used = true;
      return words->words[i].value;
    }
  return NULL;
}

treadle_status treadle_settings_size(treadle_settings *words, const char *key, int64_t otherwise,
                                     int64_t *value_p) {
  const char *text = treadle_settings_get(words, key);
  *value_p = otherwise;
  if (!text) return TREADLE_OK;
  if (!treadle_text_to_int64(text, value_p) || *value_p < 1 || *value_p > INT64_C(1) << 40)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': %s=%s is not a whole number from 1 to 2^40",
                        words->text, key, text);
  return TREADLE_OK;
}

treadle_status treadle_settings_flag(treadle_settings *words, const char *key, bool *value_p) {
  const char *text = treadle_settings_get(words, key);
  *value_p = text && strcmp(text, "on") == 0;
  if (text && !*value_p && strcmp(text, "off") != 0)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': %s=%s is neither on nor off", words->text, key,
                        text);
  return TREADLE_OK;
}

treadle_status treadle_settings_list(treadle_settings *words, const char *key, int max, int64_t *values,
                                     int *count_p) {
  const char *text = treadle_settings_get(words, key);
  *count_p = 0;
  while (text) {
    char number[24];
    size_t length = strcspn(text, ",");
    const char *begin = text;
    while (length > 0 && *begin == ' ') begin++, length--; /* the engines accept spaces */
    while (length > 0 && begin[length - 1] == ' ') length--;
    bool fits = length < sizeof number;
    if (!fits) length = sizeof number - 1;
    memcpy(number, begin, length);
    number[length] = 0;
    int64_t value;
    if (!fits || !treadle_text_to_int64(number, &value) || value < 0 || value > INT64_C(1) << 40)
      return treadle_fail(TREADLE_REFUSED, "layout '%s': %s: '%s' is not a whole number from 0",
                          words->text, key, number);
    if (*count_p == max)
      return treadle_fail(TREADLE_REFUSED, "layout '%s': %s has more than %d numbers", words->text, key,
                          max);
    values[(*count_p)++] = value;
    text += strcspn(text, ",");
    text = *text ? text + 1 : NULL;
  }
  return TREADLE_OK;
}

treadle_status treadle_settings_finish(const treadle_settings *words, const char *const *known) {
  for (int i = 0; i < words->count; i++) {
    if (words->words[i].used) continue;
    const char *key = words->words[i].key, *nearest = NULL;
    int best = 1 << 30;
    for (const char *const *name = known; *name; name++) {
      int distance = treadle_text_distance(key, *name);
      if (distance < best) best = distance, nearest = *name;
    }
    return treadle_fail(TREADLE_REFUSED, "layout '%s': %s is not a key of %s%s%s%s", words->text, key,
                        words->type, nearest ? " (nearest: " : "", nearest ? nearest : "",
                        nearest ? ")" : "");
  }
  return TREADLE_OK;
}

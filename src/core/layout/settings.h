/* The text form of layouts: type:key=value,... with values that hold commas in double quotes. */
#ifndef TREADLE_LAYOUT_SETTINGS_H
#define TREADLE_LAYOUT_SETTINGS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

enum { TREADLE_MAX_SETTINGS = 32 };

typedef struct treadle_setting {
  const char *key, *value;
  bool used;
} treadle_setting;

typedef struct treadle_settings {
  const char *text; /* the whole, for messages */
  const char *type;
  const char *file; /* of the form type:@file; NULL otherwise */
  int count;
  treadle_setting words[TREADLE_MAX_SETTINGS];
} treadle_settings;

treadle_status treadle_settings_parse(const char *text, treadle_arena *arena, treadle_settings *words);

/* The value of a key; NULL when it is not there. Marks it used. */
const char *treadle_settings_get(treadle_settings *words, const char *key);
/* A whole number of at least 1; `otherwise` when the key is not there. */
treadle_status treadle_settings_size(treadle_settings *words, const char *key, int64_t otherwise,
                                     int64_t *value_p);
/* on or off. */
treadle_status treadle_settings_flag(treadle_settings *words, const char *key, bool *value_p);
/* Whole numbers of at least 0 with commas, at most max. */
treadle_status treadle_settings_list(treadle_settings *words, const char *key, int max, int64_t *values,
                                     int *count_p);
/* Refuses keys that nobody asked for, naming the nearest of `known` (ended by NULL). */
treadle_status treadle_settings_finish(const treadle_settings *words, const char *const *known);

#endif

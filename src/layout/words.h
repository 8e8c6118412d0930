/* The text form of layouts: kind:key=value,... with values that hold commas in double quotes. */
#ifndef TREADLE_LAYOUT_WORDS_H
#define TREADLE_LAYOUT_WORDS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

enum { TREADLE_MAX_WORDS = 32 };

typedef struct treadle_word {
  const char *key, *value;
  bool used;
} treadle_word;

typedef struct treadle_words {
  const char *text; /* the whole, for messages */
  const char *kind;
  const char *file; /* of the form kind:@file; NULL otherwise */
  int count;
  treadle_word words[TREADLE_MAX_WORDS];
} treadle_words;

treadle_status treadle_words_parse(const char *text, treadle_arena *arena, treadle_words *words);

/* The value of a key; NULL when it is not there. Marks it used. */
const char *treadle_words_get(treadle_words *words, const char *key);
/* A whole number of at least 1; `otherwise` when the key is not there. */
treadle_status treadle_words_size(treadle_words *words, const char *key, int64_t otherwise,
                                  int64_t *value_p);
/* on or off. */
treadle_status treadle_words_flag(treadle_words *words, const char *key, bool *value_p);
/* Whole numbers of at least 0 with commas, at most max. */
treadle_status treadle_words_list(treadle_words *words, const char *key, int max, int64_t *values,
                                  int *count_p);
/* Refuses keys that nobody asked for, naming the nearest of `known` (ended by NULL). */
treadle_status treadle_words_finish(const treadle_words *words, const char *const *known);

#endif

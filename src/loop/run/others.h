/* The keys of MindSpeed-RL, of verl and of RLinf, as facts: each with its default there, its unit, and whether it changes results. One that
 * does is heard, or refused with a value that treadle has nothing for; the others are named in one warning. One that stands in none of the
 * tables is refused: nobody here knows what it does. */
#ifndef TREADLE_RUN_OTHERS_H
#define TREADLE_RUN_OTHERS_H

#include <stddef.h>

typedef enum treadle_key_effect {
  TREADLE_EFFECT_HEARD,
  TREADLE_EFFECT_LIMITED, /* to what treadle does anyway */
  TREADLE_EFFECT_NONE
} treadle_key_effect;

typedef struct treadle_key_info {
  const char *path;      /* of a key; or a section, for all paths below it that have no row of their own */
  const char *otherwise; /* its default; NULL: null, or there is none */
  const char *unit;      /* "" where there is none */
  treadle_key_effect effect;
  const char *as; /* HEARD: treadle's key; NULL: the table of keys has the name, or a rule hears it */
} treadle_key_info;

typedef struct treadle_key_set {
  const char *whose;
  const treadle_key_info *rows; /* [count] by path */
  size_t count;
} treadle_key_set;

extern const treadle_key_set treadle_train_others_mindspeed, treadle_train_others_verl,
    treadle_train_others_rlinf;

enum { TREADLE_TRAIN_OTHERS = 3 };
extern const treadle_key_set *const treadle_train_others_all[TREADLE_TRAIN_OTHERS];

/* The row of this very path; NULL: there is none. Of two projects that have it, the one whose row is heard. */
const treadle_key_info *treadle_train_other_find(const char *path);
/* The row of a project, by its name; NULL: it has no such key. */
const treadle_key_info *treadle_train_other_of(const char *whose, const char *path);

#endif

/* The keys of MindSpeed-RL, of verl and of RLinf, as facts: each with its default there, its unit, and whether it changes results. One that
 * does is heard, or refused with a value that treadle has nothing for; the others are named in one warning. One that stands in none of the
 * tables is refused: nobody here knows what it does. */
#ifndef TREADLE_TRAIN_OTHERS_H
#define TREADLE_TRAIN_OTHERS_H

#include <stddef.h>

typedef enum treadle_train_effect {
  TREADLE_EFFECT_HEARD,
  TREADLE_EFFECT_LIMITED, /* to what treadle does anyway */
  TREADLE_EFFECT_NONE
} treadle_train_effect;

typedef struct treadle_train_other {
  const char *path;      /* of a key; or a section, for all paths below it that have no row of their own */
  const char *otherwise; /* its default; NULL: null, or there is none */
  const char *unit;      /* "" where there is none */
  treadle_train_effect effect;
  const char *as; /* HEARD: treadle's key; NULL: the table of keys has the name, or a rule hears it */
} treadle_train_other;

typedef struct treadle_train_others {
  const char *whose;
  const treadle_train_other *rows; /* [count] by path */
  size_t count;
} treadle_train_others;

extern const treadle_train_others treadle_train_others_mindspeed, treadle_train_others_verl,
    treadle_train_others_rlinf;

enum { TREADLE_TRAIN_OTHERS = 3 };
extern const treadle_train_others *const treadle_train_others_all[TREADLE_TRAIN_OTHERS];

/* The row of this very path; NULL: there is none. Of two projects that have it, the one whose row is heard. */
const treadle_train_other *treadle_train_other_find(const char *path);
/* The row of a project, by its name; NULL: it has no such key. */
const treadle_train_other *treadle_train_other_of(const char *whose, const char *path);

#endif

/* What the files that translate patterns say to each other. */
#ifndef TREADLE_TOKEN_ONIGURUMA_PARTS_H
#define TREADLE_TOKEN_ONIGURUMA_PARTS_H

#include "token/oniguruma.h"

/* Sets, as they stand inside of a class. */
#define SPACES                                                                                             \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
  "3000}"

/* A pattern while it is read. */
typedef struct treadle_oniguruma {
  const char *at, *end;
  int depth; /* of classes */
} treadle_oniguruma;

/* At \\: is it an escape that stands for a set (*done_p)? Then what stands inside of a class for it, and whether that is turned round;
 * t->at is behind it. `alone`: it stands in no class. */
treadle_status treadle_oniguruma_set(treadle_oniguruma *t, bool alone, treadle_text_bytes *to,
                                     bool *negated_p, bool *done_p);
/* Is the escape, whose letter t->at is behind, one that stands for a character (*done_p)? Then it is appended. */
treadle_status treadle_oniguruma_character(treadle_oniguruma *t, char letter, treadle_text_bytes *to,
                                           bool *done_p);
/* What stands inside of a class for \\w. Where it stands `alone`, Oniguruma counts small and broken numbers of Latin-1, too. */
treadle_status treadle_oniguruma_word(bool alone, treadle_text_bytes *to);
/* At [: the class, as a pattern that takes one character. t->at is behind it then. */
treadle_status treadle_oniguruma_class(treadle_oniguruma *t, treadle_text_bytes *to);

#endif

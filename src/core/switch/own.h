/* Own tensors: memory of the caller that a switch reads and writes where it is. They are taken and checked here (own.c). */
#ifndef TREADLE_SWITCH_OWN_H
#define TREADLE_SWITCH_OWN_H

#include "carry/carry.h"
#include "switch/place.h"

/* ---- own.c ---- */

/* That the ranks agree on what own tensors ask for: params stay where there are own train tensors, nothing is aliased. From what each
 * has said, a treadle_own_words. */
typedef struct treadle_own_words {
  uint64_t count[2]; /* by mode */
  uint64_t leaves, host, kept;
} treadle_own_words;
treadle_own_words treadle_own_say(const treadle_switch_options *options);
treadle_status treadle_own_settle(const treadle_group *group, treadle_terms *terms, treadle_own *own);
/* Takes the own tensors of the options, once. */
treadle_status treadle_own_take(treadle_switch *sw);
void treadle_own_release(treadle_switch *sw);
/* Is all of their memory still there? */
treadle_status treadle_own_check(const treadle_switch *sw);
/* The own tensor that memory overlaps, as a text for messages; NULL: none. Returns room. */
const char *treadle_own_overlaps(const treadle_switch *sw, const void *memory, size_t bytes, char *room,
                                 size_t room_bytes);
/* Bytes of the pages that a window has, holes left out; of its layout, before it is arranged. */
size_t treadle_own_held_bytes(const treadle_switch *sw, treadle_mode mode);

#endif

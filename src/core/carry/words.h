/* The shared words (64-bit variables) by which the ranks of a switch publish how far they are, and the outcome. switch/epoch.c, switch/arrows.c, run.c and staging.c
 * write them.
 *
 * A group gives each rank words that only it writes, one text, and one word for all (group/group.h). Here is what
 * they mean to a switch. Epochs are counted in a group, over all of its switches. */
#ifndef TREADLE_CARRY_WORDS_H
#define TREADLE_CARRY_WORDS_H

#include "group/link.h"
#include "group/outcome.h"
#include "plan/plan.h"

typedef struct treadle_carry treadle_carry;

/* A rank's words. */
typedef enum treadle_setting {
  TREADLE_WORD_DONE = 0,  /* treadle_done_of the wave that it finished last */
  TREADLE_WORD_WAY,       /* mode, version and aim with which it enters, */
  TREADLE_WORD_ENTERED,   /* epochs: it has entered it, */
  TREADLE_WORD_RECLAIMED, /* is about to write on pages of the old mode, or of the old version, */
  TREADLE_WORD_VERIFIED,  /* has written every byte once, */
  TREADLE_WORD_STOPPED,   /* reads and writes no window of it any more */
  TREADLE_WORD_STAGED,    /* treadle_done_of the wave whose boxes of own tensors lie in its staging */
  TREADLE_WORD_FREE,      /* no process holds its infer window any more */
  TREADLE_WORD_ARRIVED, /* treadle_done_of the wave of which all that comes from other nodes is in its window */
  TREADLE_WORD_PROVED, /* has written every byte of a version that lies beside the present one */
  TREADLE_WORDS
} treadle_setting;

_Static_assert((int)TREADLE_WORDS <= (int)TREADLE_GROUP_WORDS_OF_CARRY, "a group has as many");

enum { TREADLE_DONE_STEP = 8192 };
_Static_assert((int)TREADLE_DONE_STEP > (int)TREADLE_MAX_WAVES, "waves of two epochs are no neighbours");

/* Grows from wave to wave and from epoch to epoch. */
static inline uint64_t treadle_done_of(uint64_t epoch, int32_t wave) {
  return epoch * TREADLE_DONE_STEP + 1 + (uint64_t)wave;
}

static inline uint64_t treadle_word_of(const treadle_group *group, int rank, treadle_setting which) {
  return atomic_load(&group->control->lines[rank].words[which]);
}

/* The epoch that this rank is in, or was in last. */
static inline uint64_t treadle_epoch_now(const treadle_group *group) {
  return treadle_word_of(group, group->rank, TREADLE_WORD_ENTERED);
}

/* Says a word of this rank, and wakes who waits for it. */
void treadle_word_say(treadle_group *group, treadle_setting which, uint64_t value);

/* treadle_group_wait and treadle_group_meet, in an epoch: they end as treadle_carry_check does. 0: none. Messages move on meanwhile. */
treadle_status treadle_word_wait(treadle_carry *c, int rank, treadle_setting which, uint64_t value,
                                 uint64_t epoch, double deadline, const char *what);
treadle_status treadle_carry_meet(const treadle_carry *c, uint64_t epoch, const char *what);

/* TREADLE_PEER with the failed rank's message when the epoch has failed; also when a later one was begun and this one was not committed, and
 * when this rank has left the group. */
treadle_status treadle_outcome_check(treadle_group *group, uint64_t epoch);
/* May this rank go on with the epoch? TREADLE_CANCELLED when it is to stop; else what treadle_outcome_check says. */
treadle_status treadle_carry_check(const treadle_carry *c, uint64_t epoch);

#endif

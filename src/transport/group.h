/* A group: the ranks that switch together, on one node, and the little they share.
 *
 * Each kind of group (self, shared memory between processes, threads of one process for tests) is one
 * file and one row; all give the same things: a control block that all ranks map, in which each rank has a
 * line of words, and the exchange of memory. Everything that waits looks at the outcome word, at the
 * liveness of the rank it waits for and at the time limit, and names that rank. No MPI call is made after
 * the group was created.
 *
 * A rank whose barrier or gather fails has left the group for good: the others are told, and every later
 * call fails at once. A failure inside a switch (an epoch) is told through the outcome word instead; when
 * all ranks have settled it, the group goes on. */
#ifndef TREADLE_TRANSPORT_GROUP_H
#define TREADLE_TRANSPORT_GROUP_H

#include "treadle_testing.h" /* treadle_group_last_words and what is with it */

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

enum { TREADLE_GROUP_PAYLOAD = 4096, TREADLE_GROUP_MAX = 1024, TREADLE_GROUP_MESSAGE = 512 };

/* One rank's line of the control block. Words have one writer, the rank itself; but pid and
 * start_time come from whoever makes the group, and `waiters` from those who wait. */
typedef struct treadle_line {
  /* Of the switch that runs. */
  _Alignas(64) _Atomic uint64_t done; /* epoch * 8192 + 1 + finished wave: see switch/ */
  _Atomic uint64_t way;               /* mode, version and aim with which it enters, */
  _Atomic uint64_t entered;           /* epochs: the rank has entered it, */
  _Atomic uint64_t reclaimed;         /* is about to write on pages of the old mode, */
  _Atomic uint64_t verified;          /* has written every byte once, */
  _Atomic uint64_t stopped;           /* reads and writes no window of it any more */
  /* Of the group. */
  _Alignas(64) _Atomic uint64_t arrived; /* barriers entered */
  _Atomic uint32_t bell;                 /* counts changes of this line; a futex */
  _Atomic uint32_t waiters;              /* how many ranks sleep on the bell: written by those */
  _Atomic uint32_t left;                 /* TREADLE_LEFT_*  */
  _Atomic int32_t waits_for;             /* 1 + the rank that this one waits for; 0: none */
  _Atomic int32_t pid;
  _Atomic uint64_t start_time;                /* of the process, against reused pids */
  _Atomic uint64_t last_words;                /* 1: they stand in payload[0] */
  char left_message[TREADLE_GROUP_MESSAGE];   /* why, written before left becomes TREADLE_LEFT_FAILED */
  char failed_message[TREADLE_GROUP_MESSAGE]; /* why an epoch failed, written before the outcome */
  char payload[2][TREADLE_GROUP_PAYLOAD];     /* what treadle_group_gather gives, two generations */
} treadle_line;

enum { TREADLE_LEFT_NOT = 0, TREADLE_LEFT_CLOSED = 1, TREADLE_LEFT_FAILED = 2 };

/* The one word: epoch << 12 | failed rank << 2 | state. It only grows with the epoch, and in an epoch it
 * goes from open to one of the others, once. */
enum { TREADLE_OPEN = 0, TREADLE_COMMITTED = 1, TREADLE_FAILED = 2 };

typedef struct treadle_control {
  _Alignas(64) _Atomic uint64_t outcome;
  treadle_line lines[]; /* one a rank */
} treadle_control;

/* Memory of a rank that the others may read. */
typedef struct treadle_shared {
  const void *base; /* NULL: none */
  size_t bytes;
} treadle_shared;

typedef struct treadle_group_ops {
  const char *name;
  /* Every rank gives a descriptor, where it has mapped it, and its size; gets those of all ranks, mapped
   * read only; its own as it is. Collective. On failure `all` is empty. */
  treadle_status (*share)(treadle_group *group, int descriptor, const void *base, size_t bytes,
                          treadle_shared *all);
  void (*unshare)(treadle_group *group, treadle_shared *all); /* local */
  bool (*alive)(treadle_group *group, int rank); /* is that rank's process (or thread) still there? */
  void (*destroy)(treadle_group *group);         /* ends `kind` and the control block */
} treadle_group_ops;

struct treadle_group {
  const treadle_group_ops *ops;
  int rank, size;
  double timeout_seconds; /* of each call that waits */
  treadle_control *control;
  uint64_t barriers;                               /* entered by this rank */
  uint64_t epochs;                                 /* switches entered by this rank, the same on all */
  void (*delay)(void *context, const char *where); /* tests: called at every wait; NULL */
  void *delay_context;
  void *kind;
};

/* Bytes of a control block for `size` ranks. */
size_t treadle_control_bytes(int size);

/* Makes a group around a control block. On failure `kind` and the control block stay the caller's. */
treadle_status treadle_group_make(const treadle_group_ops *ops, int rank, int size, double timeout_seconds,
                                  treadle_control *control, void *kind, treadle_group **group_p);

/* This rank's line. */
treadle_line *treadle_group_line(treadle_group *group);

/* Stores a word of this rank's line and wakes who waits for it. */
void treadle_group_publish(treadle_group *group, _Atomic uint64_t *word, uint64_t value);

/* Wakes everybody, wherever they sleep: something about all has changed. */
void treadle_group_ring_all(treadle_group *group);

/* TREADLE_PEER when the rank has left the group, with its message when it failed. */
treadle_status treadle_group_check_rank(const treadle_group *group, int rank, const char *what);

/* When a call that begins now has waited long enough, of treadle_clock_seconds(). */
double treadle_group_deadline(const treadle_group *group);

/* Waits until *word >= value for a word of the line of `rank`, not longer than until the deadline (a word that is there is
 * seen, whatever the time); the clock is looked at from the begin. A call that waits for several ranks gives each wait the same
 * deadline, that of treadle_group_deadline() when it began. `what` is for the message ("wave 3"). Looks at the outcome of `epoch` (0: does not look): TREADLE_PEER with the failed rank's message when it says
 * failed. TREADLE_TIMEOUT and TREADLE_PEER (dead, left) name the rank; when that one waits for another itself,
 * and so on, those too: the last of them holds up all. */
treadle_status treadle_group_wait(treadle_group *group, int rank, const _Atomic uint64_t *word,
                                  uint64_t value, uint64_t epoch, double deadline, const char *what);

/* As treadle_group_barrier, but a failure is not final: the caller tells the others. */
treadle_status treadle_group_meet(treadle_group *group, uint64_t epoch, const char *what);

/* The two halves of a gather without memory of the caller: says `bytes` bytes and waits for all; what a
 * rank has said can then be read in place until the next call that meets. Collective. */
treadle_status treadle_group_say(treadle_group *group, const void *mine, size_t bytes);
const void *treadle_group_said(const treadle_group *group, int rank);

/* This rank has failed, and leaves for good; the present treadle_error_message() says why. */
void treadle_group_fail(treadle_group *group);

/* The outcome word. Open: all ranks are in the epoch. Settle: false when another outcome stands already;
 * for TREADLE_FAILED the present treadle_error_message() is what the others will say. */
void treadle_outcome_open(treadle_group *group, uint64_t epoch);
bool treadle_outcome_settle(treadle_group *group, uint64_t epoch, int state);
/* TREADLE_PEER with the failed rank's message when the epoch has failed; also when a later one was begun and this rank had not
 * verified it (so it cannot have been committed), and when this rank has left the group. */
treadle_status treadle_outcome_check(treadle_group *group, uint64_t epoch);
/* Was the epoch committed? Asked only after treadle_outcome_check said that it has not failed. */
bool treadle_outcome_committed(const treadle_group *group, uint64_t epoch);

/* For tests: makes `size` groups that live in one process, one for each thread. Memory is shared at the
 * addresses of its owner, so that TSan sees who reads it. */
treadle_status treadle_group_threads(int size, double timeout_seconds, treadle_group **groups);

#endif

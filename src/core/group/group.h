/* A group: the ranks that switch together, and the little they share.
 *
 * Each type of group (self, shared memory between processes, several nodes, threads of one process for tests) is one
 * file and one row; all give the same things: a control block that all ranks of a node map, in which each rank of the group has a
 * line of words, and a link by which memory of the same node is read (link.h). Between nodes lines are kept up to date by messages
 * (courier.h). Everything that waits looks at the
 * liveness of the rank it waits for, at the time limit and at what the caller watches, and names that rank. No MPI call is
 * made after the group was created. What is said in the words is the business of who uses the group.
 *
 * A rank whose barrier or gather fails has left the group for good: the others are told, and every later
 * call fails at once. A failure that the caller tells the others by a word of its own is none of the group's. */
#ifndef TREADLE_GROUP_GROUP_H
#define TREADLE_GROUP_GROUP_H

#include "treadle_testing.h" /* treadle_group_last_words and what is with it */

#include "base/nodes.h"

#include <stdatomic.h>
#include <stdint.h>

enum { TREADLE_GROUP_PAYLOAD = 4096, TREADLE_GROUP_MAX = 1024, TREADLE_GROUP_MESSAGE = 512 };

/* Words of a rank. Those of carry/words.h come first, the last two belong to control/mailbox.h. */
enum { TREADLE_GROUP_WORDS = 16, TREADLE_GROUP_WORDS_OF_CARRY = 14 };

/* One rank's line of the control block. Words have one writer, the rank itself; but pid and
 * start_time come from whoever makes the group, and `waiters` from those who wait. */
typedef struct treadle_rank_line {
  /* Of who uses the group. */
  _Alignas(64) _Atomic uint64_t words[TREADLE_GROUP_WORDS];
  /* Of the group. */
  _Alignas(64) _Atomic uint64_t arrived; /* barriers entered */
  _Atomic uint32_t bell;                 /* counts changes of this line; a futex */
  _Atomic uint32_t waiters;              /* how many ranks sleep on the bell: written by those */
  _Atomic uint32_t left;                 /* TREADLE_LEFT_*  */
  _Atomic int32_t waits_for;             /* 1 + the rank that this one waits for; 0: none */
  _Atomic int32_t pid;
  _Atomic uint32_t gone;       /* of a rank on another node: it has died, or cannot be reached */
  _Atomic uint64_t start_time; /* of the process, against reused pids */
  _Atomic uint64_t last_words; /* 1: they stand in payload[0] */
  char left_message[TREADLE_GROUP_MESSAGE]; /* why, written before left becomes TREADLE_LEFT_FAILED */
  char text[TREADLE_GROUP_MESSAGE];         /* beside `words`, of who uses the group */
  char payload[2][TREADLE_GROUP_PAYLOAD];   /* what treadle_group_gather gives, two generations */
} treadle_rank_line;

enum { TREADLE_LEFT_NOT = 0, TREADLE_LEFT_CLOSED = 1, TREADLE_LEFT_FAILED = 2 };

typedef struct treadle_control {
  _Alignas(64) _Atomic uint64_t word; /* the outcome (outcome.h): any rank of the node may change it */
  /* Several nodes: */
  _Alignas(64) _Atomic uint32_t posted; /* counts changes of this node's lines and of the word; a futex */
  _Atomic uint32_t courier;             /* 1: somebody carries them to other nodes */
  _Atomic uint32_t limit_ms;            /* how long a node may be silent */
  _Atomic uint32_t cut;                 /* tests: no byte passes between this node and others */
  _Atomic uint64_t adrift;              /* the last epoch whose outcome this node could not learn */
  _Atomic uint64_t committed; /* the last epoch that was committed here, of those before the word's */
  treadle_rank_line lines[];  /* one a rank */
} treadle_control;

typedef struct treadle_link treadle_link; /* link.h */

typedef struct treadle_group_ops {
  const char *name;
  const treadle_link *link;                      /* how its ranks read each other's memory */
  bool (*alive)(treadle_group *group, int rank); /* is that rank's process (or thread) still there? */
  void (*destroy)(treadle_group *group);         /* ends `state` and the control block */
} treadle_group_ops;

struct treadle_group {
  const treadle_group_ops *ops;
  const treadle_link *link;
  int rank, size;
  double timeout_seconds; /* of each call that waits */
  int32_t *called;        /* [size] the numbers by which messages name its ranks; NULL: their own */
  treadle_control *control;
  const treadle_nodes *nodes;            /* NULL: all ranks are on one */
  treadle_group *near;                   /* then NULL, too; else of this node's ranks, from the leader on */
  uint64_t job;                          /* of several nodes: what all messages say */
  const struct treadle_net_ops *net_ops; /* between nodes; NULL: "tcp" */
  void *net_context;                     /* of net_ops */
  const char *host;                      /* this node's address; NULL: not known */
  uint64_t barriers;                     /* entered by this rank */
  uint64_t objects;                      /* that have a number (agree.c) */
  void (*delay)(void *context, const char *where); /* tests: called at every wait; NULL */
  void *delay_context;
  void *state;
};

/* Bytes of a control block for `size` ranks. */
size_t treadle_control_bytes(int size);

/* Makes a group around a control block. On failure `state` and the control block stay the caller's. */
treadle_status treadle_group_make(const treadle_group_ops *ops, int rank, int size, double timeout_seconds,
                                  treadle_control *control, void *state, treadle_group **group_p);

/* Messages name its ranks, and those of groups that it is divided into, by these numbers [size] from now on: those that they have in a larger group. Copied. */
treadle_status treadle_group_call_ranks(treadle_group *group, const int32_t *numbers);
static inline int treadle_group_called(const treadle_group *group, int rank) {
  return group->called ? group->called[rank] : rank;
}

/* This rank's line. */
treadle_rank_line *treadle_group_line(treadle_group *group);

/* Is that rank on this node? */
static inline bool treadle_group_is_near(const treadle_group *group, int rank) {
  return !group->nodes || group->nodes->of[rank] == group->nodes->of[group->rank];
}
static inline int treadle_group_node_count(const treadle_group *group) {
  return group->nodes ? group->nodes->count : 1;
}

/* For tests: from now on no byte passes between this node and others. */
void treadle_group_cut(treadle_group *group);
/* Sets the time limit of calls that wait. */
void treadle_group_limit(treadle_group *group, double seconds);

/* Wakes who waits for a word of that line; the line of another node's rank tells no courier. */
void treadle_group_ring(treadle_control *control, treadle_rank_line *line, bool near);

/* Stores a word of this rank's line and wakes who waits for it. */
void treadle_group_publish(treadle_group *group, _Atomic uint64_t *word, uint64_t value);

/* Wakes everybody, wherever they sleep: something about all has changed. */
void treadle_group_ring_all(treadle_group *group);

/* TREADLE_PEER when the rank has left the group, with its message when it failed. */
treadle_status treadle_group_check_rank(const treadle_group *group, int rank, const char *what);

/* The same, and TREADLE_PEER when it has died. */
treadle_status treadle_group_look(treadle_group *group, int rank, const char *what);

/* When a call that begins now has waited long enough, of treadle_clock_seconds(). */
double treadle_group_deadline(const treadle_group *group);

/* What a wait looks at beside the word: it ends with the status of a look that is not TREADLE_OK. */
typedef struct treadle_watch {
  treadle_status (*look)(void *context);
  void *context;
} treadle_watch;

/* Waits until *word >= value for a word of the line of `rank`, not longer than until the deadline (a word that is there is
 * seen, whatever the time); the clock is looked at from the start. A call that waits for several ranks gives each wait the
 * same deadline, that of treadle_group_deadline() when it began. `what` is for the message ("wave 3"). watch: NULL: none.
 * TREADLE_TIMEOUT and TREADLE_PEER (dead, left) name the rank; when that one waits for another itself, and so on, those too:
 * the last of them holds up all. */
treadle_status treadle_group_wait(treadle_group *group, int rank, const _Atomic uint64_t *word,
                                  uint64_t value, const treadle_watch *watch, double deadline,
                                  const char *what);

/* As treadle_group_barrier, but a failure is not final: the caller tells the others. */
treadle_status treadle_group_meet(treadle_group *group, const treadle_watch *watch, const char *what);

/* The two halves of a gather without memory of the caller: says `bytes` bytes and waits for all; what a
 * rank has said can then be read in place until the next call that meets. Collective. */
treadle_status treadle_group_say(treadle_group *group, const void *mine, size_t bytes);
const void *treadle_group_said(const treadle_group *group, int rank);
/* Rank 0's text, which starts with `start`, to `text` of the others, who have `start` already: the rest is said, of less than 100 bytes.
 * Collective; NULL: there are no others. */
treadle_status treadle_group_say_rest(treadle_group *group, const char *start, char *text, size_t size);
/* Where to put what is said at the next meeting: TREADLE_GROUP_PAYLOAD bytes. */
void *treadle_group_words(treadle_group *group);
/* The other side of a treadle_group_say of `speaker`, which may come whenever it likes: says nothing, and waits for that rank as long as it
 * lives and belongs to the group. The time limit is of the wait for the others, from then on. */
treadle_status treadle_group_listen(treadle_group *group, int speaker, const char *what);

/* All ranks fared well, or everybody gets the status and the message of the first that did not: of those that failed for a reason of
 * their own, if there are any (not TREADLE_PEER). Collective. */
treadle_status treadle_group_agree(treadle_group *group, treadle_status mine);

/* A call that ranks make together, and what they must be given alike in it, as hashes. */
enum { TREADLE_GROUP_ALIKE = 4 };
typedef struct treadle_group_call {
  const char *name; /* "treadle_trainer_step" */
  uint64_t object;  /* whose call it is, by treadle_group_number; 0: nobody's */
  struct {
    const char *what; /* "rows" */
    int64_t among;    /* ranks with the same number here must have the same hash */
    uint64_t hash;
  } alike[TREADLE_GROUP_ALIKE];
  int count;
  int64_t level; /* how far this rank is */
} treadle_group_call;
/* The number of an object that all ranks make, from 1. All ask at the same place, where none can have failed alone. */
uint64_t treadle_group_number(treadle_group *group);
/* The same, and refused on all ranks: ranks in two different calls, or in calls of two objects, and two that were not given alike what must be. Where a rank has failed,
 * its hashes do not matter. Collective. */
treadle_status treadle_group_agree_on(treadle_group *group, treadle_status mine,
                                      const treadle_group_call *call);
/* After that, until ranks meet again: the least level of all. */
int64_t treadle_group_least_level(const treadle_group *group);

/* This rank has failed, and leaves for good; the present treadle_error_message() says why. */
void treadle_group_fail(treadle_group *group);

/* For tests: makes `size` groups that live in one process, one for each thread. Memory is shared at the
 * addresses of its owner, so that TSan sees who reads it. */
treadle_status treadle_group_threads(int size, double timeout_seconds, treadle_group **groups);

#endif

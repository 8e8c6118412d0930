/* A board: memory that the ranks of a group work in together. Every rank has a part of it, which it alone writes and all see.
 *
 *   treadle_board_split   divides the ranks into sets, as a mesh does: tensor parallel groups, stages, all
 *   treadle_board_meet    the ranks of one set wait for each other; sets do not disturb each other
 *   treadle_board_signal  a counter for others, such as the next stage; treadle_board_wait waits for one
 *
 * What a rank wrote before it met or signalled is seen by those who waited for that. All waits are treadle_group_wait's: they end
 * when the rank that is waited for dies or leaves, or when the group's time is over, and the message names it. Besides, a
 * board can fail: when a rank's call fails here, or it says so by treadle_board_fail, then the waits of all others end with
 * TREADLE_PEER and its message, and all later calls of all ranks fail. The group goes on.
 *
 * One thread of a rank at a time calls these functions. They take no memory after the board and its sets were made. */
#ifndef TREADLE_GROUP_BOARD_H
#define TREADLE_GROUP_BOARD_H

#include "group/group.h"

/* Splits of a board, and counters of a rank, at most. */
enum { TREADLE_BOARD_SPLITS = 32, TREADLE_BOARD_COUNTERS = 64 };

typedef struct treadle_board treadle_board;

/* Ranks that meet, in ascending order. Ended with the board. */
typedef struct treadle_board_set {
  treadle_board *board;
  int split;        /* number of the split that made it */
  int count, index; /* ranks, and which of them this one is */
  int *ranks;       /* [count] */
  uint64_t meetings;
} treadle_board_set;

/* Bytes of memory that a rank takes whose part has this many: what it tells others comes to it, and whole pages. */
uint64_t treadle_board_memory(uint64_t bytes);

/* Makes this rank's part, `bytes` bytes, touched and zero; ranks may differ in size, and have none. Refused where the machine or a
 * control group does not leave what all ranks take together. Collective: all ranks fail if one does. The group outlives the
 * board. */
treadle_status treadle_board_create(treadle_group *group, uint64_t bytes, treadle_board **board_p);
/* Local, whatever has become of the others; NULL is nothing. Among threads of one process, which read each other's memory where it
 * lies, it waits until all destroy theirs, or the group is over. */
void treadle_board_destroy(treadle_board *board);

treadle_group *treadle_board_group(const treadle_board *board);
/* A rank's part, which begins at 64 bytes; NULL where it has none. Only this rank's own is written. */
void *treadle_board_own(treadle_board *board);
const void *treadle_board_part(const treadle_board *board, int rank);
uint64_t treadle_board_bytes(const treadle_board *board, int rank);

/* Ranks that give the same colour, from 0, form a set. A rank that gives -1 is in none and gets NULL. Collective. */
treadle_status treadle_board_split(treadle_board *board, int colour, treadle_board_set **set_p);

/* Waits until all ranks of the set have come. `what` is for messages ("sum of layer 3"). */
treadle_status treadle_board_meet(treadle_board_set *set, const char *what);

/* Counters of this rank, by number; each only grows. */
void treadle_board_signal(treadle_board *board, int number, uint64_t value);
/* What that counter of `rank` is now. */
uint64_t treadle_board_value(const treadle_board *board, int rank, int number);
/* Waits until that counter of `rank` is at least `value`. */
treadle_status treadle_board_wait(treadle_board *board, int rank, int number, uint64_t value,
                                  const char *what);

/* This rank cannot go on; the present treadle_error_message() says why. */
void treadle_board_fail(treadle_board *board);
/* Has it said so, or failed in a call here? */
bool treadle_board_has_failed(const treadle_board *board);

#endif

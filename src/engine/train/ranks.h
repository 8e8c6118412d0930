/* The ranks that a trainer computes with, and the memory through which they give each other sums, logits and pieces of windows. */
#ifndef TREADLE_TRAIN_RANKS_H
#define TREADLE_TRAIN_RANKS_H

#include "group/group.h"
#include "pass/pass_steps.h"

enum { TREADLE_TRAIN_PIECE = 1 << 16 /* elements of a window that ranks add at once */ };

/* Elements that a rank brings at once; all ranks use the largest. */
typedef struct treadle_train_room {
  treadle_pass_board pass;
  uint64_t logits, pieces, rows; /* of the stage's logits; of windows; of a ring's slot */
  uint64_t expert_pieces;        /* of experts in windows; 0: they are added up with the rest */
  uint64_t context,
      head;       /* of context parallel ranks: of rows; of logits and sums over them. 0: there are none */
  int64_t slots;  /* of a ring */
  int64_t chunks; /* of a rank */
  uint64_t adapters; /* bytes of a rank's window of adapters; 0: there are none, or each has all */
} treadle_train_room;

/* All NULL: this rank is alone. */
typedef struct treadle_train_ranks {
  treadle_group *group;
  uint64_t number; /* of the group's objects */
  treadle_board *board;
  treadle_exchange *replicas;        /* ranks with the same part and other rows; NULL: there are none */
  treadle_exchange *expert_replicas; /* those with the same experts, if not all of these have; else NULL */
  treadle_exchange *ends;     /* the two stages that have halves of a tied gradient */
  treadle_train_room room;
  size_t board_bytes;
  uint64_t adapters_at; /* where windows of adapters are on each rank's part of the board */
} treadle_train_ranks;

/* The larger of both, which `room` becomes. */
void treadle_train_join_room(treadle_train_room *room, const treadle_train_room *other);

/* Of what all ranks have just said to the group, in structs that begin with an int64_t, a data parallel coordinate: that of the first rank
 * with this one; NULL: there is none. So each coordinate is taken once. */
const void *treadle_train_said(const treadle_train_ranks *ranks, int64_t coordinate);
/* All ranks of the group learn of a failure, at once. */
void treadle_train_tell(const treadle_train_ranks *ranks, treadle_status status);
/* The first failure of any rank. Collective. */
treadle_status treadle_train_agree(const treadle_train_ranks *ranks, treadle_status status);
/* The same before a call; refused where ranks make another, or were given other values. Collective. */
treadle_status treadle_train_agree_on(const treadle_train_ranks *ranks, treadle_status status,
                                      const treadle_group_call *call);

/* dx [rows, hidden] = the sum of all leaves of the stage's ranks. Those of this rank are where treadle_train_room_of says, [nodes, rows,
 * hidden]. */
float *treadle_train_room_of(const treadle_pass *pass, float *dx);
treadle_status treadle_train_sum(const treadle_pass *pass, treadle_leaf_range leaves, int64_t rows,
                                 float *dx);

#endif

/* Messages of all ranks, to rank 0 or to all. On one node each rank's lies on its part of a board, where others read it,
 * and the next one is written there. Between nodes small ones are said, and large ones go through the mailbox to rank 0, which sends what it
 * has to all others if all read. The number of barriers does not depend on the bytes, but for the first use of the mailbox. */
#ifndef TREADLE_CONTROL_GATHER_H
#define TREADLE_CONTROL_GATHER_H

#include "control/mailbox.h"
#include "control/message.h"
#include "group/board.h"

typedef struct treadle_gather {
  treadle_group *group;
  bool everywhere;          /* all ranks read; else rank 0 does */
  treadle_mailbox *mailbox; /* several nodes: the caller's */
  treadle_board *board;     /* NULL: there was none yet */
  char *far;                /* messages of several nodes, one behind the other */
  uint64_t *lengths;        /* [ranks] of the last messages */
} treadle_gather;

/* Brings this rank's message. Collective. */
treadle_status treadle_gather_meet(treadle_gather *gather, treadle_message *mine);
/* Then: a rank's message, to be read; it lives until the next meeting. */
treadle_message treadle_gather_of(const treadle_gather *gather, int rank);
void treadle_gather_release(treadle_gather *gather);

#endif

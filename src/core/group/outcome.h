/* The outcome of an epoch (one attempt at something that all ranks do, or none): a word in the control block of each node.
 *
 *     one node                                     several nodes
 *     older --open--> open --settle--> committed   open --settle--> voted --the courier--> committed
 *       |              |                             |                |
 *       +-----settle---+--------> failed             +---- settle ----+--the courier--> failed
 *
 * The word is epoch << 12 | rank << 2 | state. It only grows with the epoch, and in an epoch it goes along these arrows, each by a
 * compare-and-swap: so all ranks of a node see one outcome.
 *
 * Between nodes: a node that has verified votes, and takes that back no more. The courier (courier.h) of the lowest node decides: committed
 * when all nodes have voted, else failed (docs/decisions/0012-one-outcome-between-nodes.md). A node that has not voted may fail by itself: then nobody commits. One that has
 * voted and learns nothing within the time limit is adrift: here the epoch counts as failed, and elsewhere it may be committed. */
#ifndef TREADLE_GROUP_OUTCOME_H
#define TREADLE_GROUP_OUTCOME_H

#include "group/group.h"

enum { TREADLE_OPEN = 0, TREADLE_COMMITTED = 1, TREADLE_FAILED = 2, TREADLE_VOTED = 3 };
enum { TREADLE_EPOCH_BITS = 52 }; /* of an epoch's number */

typedef struct treadle_outcome {
  uint64_t epoch;
  int rank, state; /* rank: who made it so */
} treadle_outcome;

treadle_outcome treadle_outcome_now(const treadle_control *control);

/* All ranks are in the epoch. */
void treadle_outcome_open(treadle_group *group, uint64_t epoch);
/* Committed, or failed: then the present treadle_error_message() is what the others will say. False when it cannot be so any more. Between nodes,
 * committed is a vote: treadle_outcome_await says what has become of it. */
bool treadle_outcome_settle(treadle_group *group, uint64_t epoch, int state);
/* Waits while the epoch is voted for and not decided. */
void treadle_outcome_await(treadle_group *group, uint64_t epoch);
/* Was the epoch committed, as far as this node knows? Of an epoch that has begun here. */
bool treadle_outcome_committed(const treadle_group *group, uint64_t epoch);
/* Has this node voted in vain? Then others may have committed the epoch. */
bool treadle_outcome_is_adrift(const treadle_group *group, uint64_t epoch);

/* For couriers: the word becomes `next`, if it is `seen` now. Who waits is to be woken. */
bool treadle_outcome_move(treadle_control *control, treadle_outcome seen, treadle_outcome next);
/* For couriers, and for ranks whose courier is dead: nobody has answered. The node is adrift then; the lowest one has failed the epoch. */
void treadle_outcome_give_up(treadle_group *group, uint64_t epoch);

#endif

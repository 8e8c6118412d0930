/* A mailbox: messages from rank to rank of a group with several nodes, of any length. A message costs no barrier.
 *
 *   all ranks     treadle_mailbox_open(box, group)     the net, at the first use
 *   some ranks    treadle_mailbox_send / receive       as often as they like
 *   all ranks     treadle_mailbox_settle(box, status)  all fared well, or all fail alike
 *
 * Messages of two ranks arrive in the order in which they were sent. Both ranks know the length. They go over the group's net
 * (group->net_ops; NULL: "tcp"), between ranks of one node too. Two ranks connect at their first message.
 *
 * A wait for a rank ends when that rank dies, leaves or fails, and when it moves no bytes of any message for the group's time
 * limit: TREADLE_PEER, with its number. Where only this rank can know (it died, left or was silent), the group has failed. After
 * any other failure the group goes on: settle closes the net on all ranks, and the next open opens a new one.
 *
 * One thread of a rank at a time calls these functions. Between open and settle there is no other call in which the group's
 * ranks meet, and between settle and the next open there is at least one. */
#ifndef TREADLE_CONTROL_MAILBOX_H
#define TREADLE_CONTROL_MAILBOX_H

#include "base/status.h"
#include "group/group.h"

/* One message of this rank's, under way. The caller sets the first four. */
typedef struct treadle_letter {
  int rank; /* the other one */
  bool receives;
  void *bytes; /* [length]; not written unless it receives */
  size_t length;
  void *request; /* of the net: a piece; NULL: none is under way */
  size_t done, piece;
  bool ended;
  double since;   /* when the rank was last seen to move bytes */
  uint64_t moved; /* its word then */
} treadle_letter;

typedef struct treadle_mailbox_peer treadle_mailbox_peer;

/* A zeroed struct is a mailbox whose net is not open. */
typedef struct treadle_mailbox {
  treadle_group *group; /* outlives the net */
  const struct treadle_net_ops *ops;
  void *net;                   /* NULL: not open */
  treadle_mailbox_peer *peers; /* [ranks] */
  treadle_letter *letters;     /* [ranks] room for those of one move */
  bool lost;                   /* the group has failed here */
} treadle_mailbox;

/* Opens the net if it is not open, and says its addresses. Collective. After a failure, too, settle comes next. */
treadle_status treadle_mailbox_open(treadle_mailbox *box, treadle_group *group);

/* Wait until the bytes were given to the net, which does not change them, or have come. After a failure the memory stays as it is until settle has
 * returned, and this rank sends and receives no more before. */
treadle_status treadle_mailbox_send(treadle_mailbox *box, int rank, void *bytes, size_t length);
treadle_status treadle_mailbox_receive(treadle_mailbox *box, int rank, void *bytes, size_t length);
/* To all other ranks, each as fast as it reads. */
treadle_status treadle_mailbox_send_all(treadle_mailbox *box, void *bytes, size_t length);
/* Several at once, of different ranks: box->letters. */
treadle_status treadle_mailbox_move(treadle_mailbox *box, int count);

/* mine: how this rank fared. If it failed, ranks that wait for it here end at once. Collective: all get the status and the message
 * of the first rank that failed. A rank that does not come, and moves nothing meanwhile: TREADLE_TIMEOUT. */
treadle_status treadle_mailbox_settle(treadle_mailbox *box, treadle_status mine);

/* Local: after a settle, when all ranks have what they wait for. It is as before the first open. */
void treadle_mailbox_release(treadle_mailbox *box);

#endif

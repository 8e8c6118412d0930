/* What comes from other nodes, and goes there: messages over a net (treadle_net_ops), in slots of host memory.
 *
 *   net.c         slots: messages are sent and received as there is room, whatever the rank waits for meanwhile
 *   net_meet.c    the net is opened, and ranks make their messages
 *   net_parts.c   where their bytes lie: in their slot, or in windows
 *   net_delta.c   messages of which only what has changed travels
 *
 * The processor writes heads and sums, and nets read and write what lies in slots. So slots are host memory, pinned (memory/device.h), and
 * outside of the pool and the cap. What lies in windows has a slot all the same: for its head, and as its turn.
 * A source packs and sends its messages in their order, as slots are free, and runs ahead of its own waves: what it reads is not written before
 * it was packed, or has left. Where it reads windows of other ranks of its node (messages/ordered.h),
 * it says that a wave is done when what it sends in it was packed, too. A reader begins its messages in the same order, and unpacks
 * one when its wave is there. */
#ifndef TREADLE_CARRY_NET_H
#define TREADLE_CARRY_NET_H

#include "carry/carry.h"

enum { TREADLE_NET_SLOTS = TREADLE_NET_FLIGHT, TREADLE_NET_HEAD = 64 };

enum { TREADLE_NET_DENSE = 0, TREADLE_NET_CHANGED = 1 }; /* forms of a message */

/* A message begins with it; all of it is checked. */
typedef struct treadle_net_head {
  uint32_t magic;
  uint16_t version;
  uint8_t side, form;          /* side: the window that is written */
  uint64_t job, epoch, digest; /* digest: of the plan */
  uint64_t sum, whole;   /* of the bytes behind this head; of those of the message, when it is dense */
  int32_t bytes, behind; /* when it is dense; behind this head */
  int32_t number;
  uint16_t wave, source;
} treadle_net_head;
_Static_assert(sizeof(treadle_net_head) == TREADLE_NET_HEAD, "a head of 64 bytes");
_Static_assert((int)TREADLE_MAX_WAVES <= UINT16_MAX && (int)TREADLE_GROUP_MAX <= UINT16_MAX, "both fit");

/* ---- net.c ---- */

/* A direction starts; its messages move on whenever this rank waits. */
void treadle_net_begin(treadle_carry *c);
/* The pages of a wave may be written: from now on messages may go right into them. */
void treadle_net_open(treadle_carry *c, int32_t wave);
/* Moves messages on. Nothing where there are none. */
treadle_status treadle_net_move(treadle_carry *c);
/* The same once in a while, as this rank copies bytes of its own node. */
treadle_status treadle_net_move_beside(treadle_carry *c, size_t bytes);
bool treadle_net_is_busy(const treadle_carry *c);
/* Comes back when a message may have moved, a moment later at the most. */
void treadle_net_pause(treadle_carry *c);
/* What is sent of waves up to `wave` has been packed. */
treadle_status treadle_net_pack(treadle_carry *c, int32_t wave);
/* All messages of a wave are unpacked: `take` is called for each op, without a source where it lies in the window already; inputs of block
 * rows go to their area. */
treadle_status treadle_net_unpack(treadle_carry *c, int32_t wave,
                                  treadle_status (*take)(treadle_carry *c, const treadle_op *op,
                                                         size_t position, const treadle_paged *from));
/* All is sent. */
treadle_status treadle_net_finish(treadle_carry *c);
/* Messages one way of the direction that runs, and the slot of message `number`. */
treadle_net_flow *treadle_net_flow_of(treadle_carry *c, bool out);
char *treadle_net_slot_of(const treadle_net_state *net, bool out, size_t number);
/* Is what lies in the slot the head of that message? The bytes behind it are not looked at. */
treadle_status treadle_net_head_check(const treadle_carry *c, const treadle_traffic_message *m,
                                      const char *slot);
/* TREADLE_PEER: that message `what`. */
treadle_status treadle_net_refuse(const treadle_carry *c, const treadle_traffic_message *m,
                                  const char *what);
/* Of both parts of a message. */
uint64_t treadle_net_tag_of(const treadle_carry *c, const treadle_traffic_message *m, bool second);

/* ---- net_parts.c ---- */

enum { TREADLE_NET_PARTS = 64 };

typedef struct treadle_net_parts {
  treadle_net_part items[TREADLE_NET_PARTS]; /* the first begins with the head */
  int count, most;
  bool out, windows; /* may some lie in windows? */
  char *slot;
  int64_t done; /* bytes of the message so far */
} treadle_net_parts;

/* Then each of its parcels is added. True: it lies in the window; else in the slot, from its byte of the message on. */
void treadle_net_parts_begin(const treadle_carry *c, const treadle_traffic_message *m, bool out, char *slot,
                             treadle_net_parts *parts);
bool treadle_net_parts_add(const treadle_carry *c, const treadle_parcel *parcel, treadle_net_parts *parts);
/* Of all behind the head. */
uint64_t treadle_net_parts_sum(const treadle_net_parts *parts);

/* ---- net_delta.c ---- */

/* Messages are made anew: nothing is kept of those before. */
void treadle_net_delta_leave(treadle_carry *c);
/* A direction starts: what is kept changes from here on. */
void treadle_net_delta_begin(treadle_carry *c);
/* Does the message travel in two parts: its head, and what the head says is behind it? Both ranks know it of each other's bases. */
static inline bool treadle_net_delta_is(const treadle_carry *c, const treadle_traffic_message *m) {
  return c->net.delta.on && c->net.delta.shares[m->peer];
}
/* Where a message is packed before it is written to a slot, with zeros between its parcels. */
char *treadle_net_delta_room(treadle_carry *c, const treadle_traffic_message *m);
/* What was packed goes to the slot, changes alone where they are shorter; *head says what is there. */
void treadle_net_delta_write(treadle_carry *c, const treadle_traffic_message *m, char *slot,
                             treadle_net_head *head);
/* Sends the second part of message `number` behind the first, where there is one. */
treadle_status treadle_net_delta_send(treadle_carry *c, const treadle_traffic_message *m, size_t number);
/* Has no head come yet of a message of that rank that is received? Then none of it is received beside: parts are received in the order in which
 * they are sent, whatever a net makes of tags. */
bool treadle_net_delta_waits(const treadle_carry *c, int peer);
/* Cancels what was sent second. */
void treadle_net_delta_stop(treadle_carry *c);
/* A part of message `number` has ended: *request is the other one, if there is one. */
treadle_status treadle_net_delta_next(treadle_carry *c, bool out, size_t number, void **request);
/* The message in the slot, dense: *bytes_p lies in the slot, or in room. */
treadle_status treadle_net_delta_read(treadle_carry *c, const treadle_traffic_message *m, const char *slot,
                                      const char **bytes_p);

#endif

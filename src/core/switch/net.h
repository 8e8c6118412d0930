/* What comes from other nodes, and goes there: messages over a net (treadle_net_ops), in slots of staging.
 *
 *   net.c         slots: messages are sent and received as there is room, whatever the rank waits for meanwhile
 *   net_meet.c    the net is opened, and ranks make their messages
 *   net_parts.c   where their bytes lie: in their slot, or in windows
 *   net_delta.c   messages of which only what has changed travels
 *
 * Slots of both sides lie in pages of the pool, inside the cap. What lies in windows has one all the same: for its head, and as its turn.
 * A source packs and sends its messages in their order, as slots are free, and runs ahead of its own waves: what it reads is not written before
 * it was packed, or has left. Where it reads windows of other ranks of its node (messages/ordered.h),
 * it says that a wave is done when what it sends in it was packed, too. A reader begins its messages in the same order, and unpacks
 * one when its wave is there. */
#ifndef TREADLE_SWITCH_NET_H
#define TREADLE_SWITCH_NET_H

#include "net/net.h"
#include "switch/switch.h"

enum { TREADLE_NET_SLOTS = TREADLE_NET_FLIGHT, TREADLE_NET_HEAD = 64 };

enum { TREADLE_NET_DENSE = 0, TREADLE_NET_CHANGED = 1 }; /* forms of a message */

/* A message begins with it; all of it is checked. */
typedef struct treadle_net_head {
  uint32_t magic;
  uint16_t version;
  uint8_t side, form;          /* side: the mode that is entered */
  uint64_t job, epoch, digest; /* digest: of the plan */
  uint64_t sum, whole;   /* of the bytes behind this head; of those of the message, when it is dense */
  int32_t bytes, behind; /* when it is dense; behind this head */
  int32_t number;
  uint16_t wave, source;
} treadle_net_head;
_Static_assert(sizeof(treadle_net_head) == TREADLE_NET_HEAD, "a head of 64 bytes");
_Static_assert((int)TREADLE_MAX_WAVES <= UINT16_MAX && (int)TREADLE_GROUP_MAX <= UINT16_MAX, "both fit");

/* ---- net_meet.c ---- */

/* Bytes of staging that slots take, in whole pages; 0: one node. They are chosen by what the cap leaves for them. */
int64_t treadle_net_slots_bytes(const treadle_switch *sw);
void treadle_net_choose(treadle_switch *sw, int64_t spare);
/* And the area behind them, for what block rows read of other nodes in a wave; after treadle_net_split. */
int64_t treadle_net_area_bytes(const treadle_switch *sw);
/* The least and the most that slots may take. */
int64_t treadle_net_least(const treadle_switch *sw, bool most);
/* The ops of the plan, split as messages need it, and what block rows read of other nodes. */
treadle_status treadle_net_split(treadle_switch *sw);
/* Maps the slots. */
treadle_status treadle_net_map(treadle_switch *sw);
/* Opens the net, and makes the messages of both directions. Collective. */
treadle_status treadle_net_arrange(treadle_switch *sw);
/* What this rank receives and sends in both directions, from its plan alone: sw->net.in and out. Nothing where it was made before. */
treadle_status treadle_net_traffic(treadle_switch *sw);
/* Beside the first meeting of an epoch: what this rank says (at most TREADLE_GROUP_PAYLOAD bytes), and what it has heard then. */
void treadle_net_say(treadle_switch *sw, void *words);
treadle_status treadle_net_hear(treadle_switch *sw);
void treadle_net_release(treadle_switch *sw);

/* ---- net.c ---- */

/* Is that rank's memory on another node? */
static inline bool treadle_net_is(const treadle_switch *sw, int32_t rank) {
  return rank >= 0 && !treadle_group_is_near(sw->group, rank);
}
/* A direction begins; its messages move on whenever this rank waits. */
void treadle_net_begin(treadle_switch *sw, treadle_mode to, uint64_t epoch);
/* The pages of a wave may be written: from now on messages may go right into them. */
void treadle_net_open(treadle_switch *sw, int32_t wave);
/* Moves messages on. Nothing where there are none. */
treadle_status treadle_net_move(treadle_switch *sw);
/* The same once in a while, as this rank copies bytes of its own node. */
treadle_status treadle_net_move_beside(treadle_switch *sw, size_t bytes);
bool treadle_net_is_busy(const treadle_switch *sw);
/* Comes back when a message may have moved, a moment later at the most. */
void treadle_net_pause(treadle_switch *sw);
/* What is sent of waves up to `wave` has been packed. */
treadle_status treadle_net_pack(treadle_switch *sw, int32_t wave);
/* All messages of a wave are unpacked: `take` is called for each op, without a source where it lies in the window already; inputs of block
 * rows go to their area. */
treadle_status treadle_net_unpack(treadle_switch *sw, int32_t wave,
                                  treadle_status (*take)(treadle_switch *sw, const treadle_op *op,
                                                         size_t position, const treadle_paged *from));
/* All is sent. */
treadle_status treadle_net_finish(treadle_switch *sw);
/* After a failure: whatever is under way is cancelled, and the net is closed. */
void treadle_net_stop(treadle_switch *sw);

/* Messages one way of the direction that runs, and the slot of message `number`. */
treadle_net_flow *treadle_net_flow_of(treadle_switch *sw, bool out);
char *treadle_net_slot_of(const treadle_net_state *net, bool out, size_t number);
/* Is what lies in the slot the head of that message? The bytes behind it are not looked at. */
treadle_status treadle_net_head_check(const treadle_switch *sw, const treadle_traffic_message *m,
                                      const char *slot);
/* TREADLE_PEER: that message `what`. */
treadle_status treadle_net_refuse(const treadle_switch *sw, const treadle_traffic_message *m,
                                  const char *what);
/* Of both parts of a message. */
uint64_t treadle_net_tag_of(const treadle_switch *sw, const treadle_traffic_message *m, bool second);

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
void treadle_net_parts_begin(const treadle_switch *sw, const treadle_traffic_message *m, bool out,
                             char *slot, treadle_net_parts *parts);
bool treadle_net_parts_add(const treadle_switch *sw, const treadle_parcel *parcel,
                           treadle_net_parts *parts);
/* Of all behind the head. */
uint64_t treadle_net_parts_sum(const treadle_net_parts *parts);

/* ---- net_delta.c ---- */

/* Host memory for what is kept, once messages are made; 0: none is. And that memory, where it is not there yet. */
size_t treadle_net_delta_bytes(const treadle_switch *sw);
treadle_status treadle_net_delta_arrange(treadle_switch *sw);
/* Messages are made anew: nothing is kept of those before. And at the end, the memory. */
void treadle_net_delta_leave(treadle_switch *sw);
void treadle_net_delta_release(treadle_switch *sw);
/* A direction begins: what is kept changes from here on. It was committed: it is the base of the next one. The infer window is left. */
void treadle_net_delta_begin(treadle_switch *sw);
void treadle_net_delta_commit(treadle_switch *sw);
static inline void treadle_net_delta_forget(treadle_switch *sw) { sw->net.delta.base = 0; }
/* Does the message travel in two parts: its head, and what the head says is behind it? Both ranks know it of each other's bases. */
static inline bool treadle_net_delta_is(const treadle_switch *sw, const treadle_traffic_message *m) {
  return sw->net.delta.on && sw->net.delta.shares[m->peer];
}
/* Where a message is packed before it is written to a slot, with zeros between its parcels. */
char *treadle_net_delta_room(treadle_switch *sw, const treadle_traffic_message *m);
/* What was packed goes to the slot, changes alone where they are shorter; *head says what is there. */
void treadle_net_delta_write(treadle_switch *sw, const treadle_traffic_message *m, char *slot,
                             treadle_net_head *head);
/* Sends the second part of message `number` behind the first, where there is one. */
treadle_status treadle_net_delta_send(treadle_switch *sw, const treadle_traffic_message *m, size_t number);
/* Has no head come yet of a message of that rank that is received? Then none of it is received beside: parts are received in the order in which
 * they are sent, whatever a net makes of tags. */
bool treadle_net_delta_waits(const treadle_switch *sw, int peer);
/* Cancels what was sent second. */
void treadle_net_delta_stop(treadle_switch *sw);
/* A part of message `number` has ended: *request is the other one, if there is one. */
treadle_status treadle_net_delta_next(treadle_switch *sw, bool out, size_t number, void **request);
/* The message in the slot, dense: *bytes_p lies in the slot, or in room. */
treadle_status treadle_net_delta_read(treadle_switch *sw, const treadle_traffic_message *m,
                                      const char *slot, const char **bytes_p);

#endif

/* What comes from other nodes, and goes there: messages over a net (treadle_net_ops), in slots of staging.
 *
 *   net.c         slots: messages are sent and received as there is room, whatever the rank waits for meanwhile
 *   net_meet.c    the net is opened, and ranks make their messages
 *
 * Slots of both sides lie in pages of the pool, inside the cap. A source packs and sends its messages in their order, as slots are free, and
 * runs ahead of its own waves: what it reads is not written before it was packed. Where it reads windows of other ranks of its node (plan/ordered.h),
 * it says that a wave is done when what it sends in it was packed, too. A reader begins its messages in the same order, and unpacks
 * one when its wave is there. */
#ifndef TREADLE_SWITCH_NET_H
#define TREADLE_SWITCH_NET_H

#include "switch/switch.h"

enum { TREADLE_NET_SLOTS = TREADLE_NET_FLIGHT, TREADLE_NET_HEAD = 64 };

/* A message begins with it; all of it is checked. */
typedef struct treadle_net_head {
  uint32_t magic, version;
  uint64_t job, epoch, digest; /* digest: of the plan */
  uint64_t sum;                /* of the bytes behind this head */
  int64_t bytes;
  int32_t wave, number, source, side; /* side: the mode that is entered */
} treadle_net_head;
_Static_assert(sizeof(treadle_net_head) == TREADLE_NET_HEAD, "a head of 64 bytes");

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
/* Moves messages on. Nothing where there are none. */
treadle_status treadle_net_move(treadle_switch *sw);
bool treadle_net_is_busy(const treadle_switch *sw);
/* Comes back when a message may have moved, a moment later at the most. */
void treadle_net_pause(treadle_switch *sw);
/* What is sent of waves up to `wave` has been packed. */
treadle_status treadle_net_pack(treadle_switch *sw, int32_t wave);
/* All messages of a wave are unpacked: `take` is called for each op, inputs of block rows go to their area. */
treadle_status treadle_net_unpack(treadle_switch *sw, int32_t wave,
                                  treadle_status (*take)(treadle_switch *sw, const treadle_op *op,
                                                         size_t position, const treadle_paged *from));
/* All is sent. */
treadle_status treadle_net_finish(treadle_switch *sw);
/* After a failure: whatever is under way is cancelled, and the net is closed. */
void treadle_net_stop(treadle_switch *sw);

#endif

/* Nets: messages between ranks of different nodes. The table of their functions is public (treadle_net_ops in treadle_engine.h); one row
 * for each way:
 *
 *   tcp        sockets: what there is everywhere (net_tcp.h)
 *   ucx        UCX, found when it is first needed: TCP and InfiniBand (net_ucx.h)
 *   threads    queues in memory, between threads of one process, with faults that tests plant */
#ifndef TREADLE_TRANSPORT_NET_H
#define TREADLE_TRANSPORT_NET_H

#include "base/status.h"
#include "treadle_engine.h"
#include "treadle_tools.h"

/* Tags are below it. */
#define TREADLE_NET_TAGS (UINT64_C(1) << 40)
enum { TREADLE_NET_RANKS = 1 << 23 }; /* of a net, at most */

/* Row number `at`, from 0; NULL behind the last. */
const treadle_net_ops *treadle_net_at(int at);
/* The row of that name. Refused, with the names that there are: another one, and one that this library was built without. */
treadle_status treadle_net_find(const char *name, const treadle_net_ops **ops_p);

/* What rows check in the same way. */
treadle_status treadle_net_check_options(const char *net, const treadle_net_options *options);
/* Of a message: peer, tag, number of parts. *bytes_p: of all parts. */
treadle_status treadle_net_check_message(const treadle_net_ops *ops, int peer, int ranks, uint64_t tag,
                                         const treadle_net_part *parts, int count, size_t *bytes_p);

/* Waits until a descriptor of a net can be read, or this many seconds (an hour at the most). True: it can. */
bool treadle_net_listen(int bell, double seconds);

extern const treadle_net_ops treadle_net_tcp, treadle_net_ucx, treadle_net_threads;
/* Which devices of this machine have addresses. */
void treadle_net_tcp_info(treadle_net_info *info);
/* Looks for UCX: version, devices, or what is lacking. */
void treadle_net_ucx_info(treadle_net_info *info);

/* ---- Threads ----
 *
 * Where ranks of one process meet that open the net "threads": the `context` of their options. A net of one rank needs none. Messages of at
 * most TREADLE_NET_COPIED bytes are copied where they are sent, others are read by the receiver, as with UCX: so both happen in tests. */
typedef struct treadle_net_hub treadle_net_hub;
enum { TREADLE_NET_COPIED = 4096 };

treadle_status treadle_net_hub_create(int ranks, treadle_net_hub **hub_p);
/* All nets are closed. */
void treadle_net_hub_destroy(treadle_net_hub *hub);

typedef enum treadle_net_fault_kind {
  TREADLE_NET_DROP = 1, /* one message never comes; its sender does not know */
  TREADLE_NET_DELAY,    /* one message comes `seconds` later */
  TREADLE_NET_FLIP, /* one message comes with a byte changed, at `seconds` of its length (0 to below 1) */
  TREADLE_NET_CUT   /* neither hears of the other from that message on: both get TREADLE_PEER */
} treadle_net_fault_kind;

typedef struct treadle_net_fault {
  treadle_net_fault_kind kind;
  int from, to;
  int64_t after; /* this many messages from one to the other come first, from now on */
  double seconds;
} treadle_net_fault;

/* Any thread. Faults stay where they have not happened; there is one at a time from a rank to another. */
void treadle_net_hub_plant(treadle_net_hub *hub, const treadle_net_fault *fault);

#endif

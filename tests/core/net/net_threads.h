/* The net "threads": queues in memory, between threads of one process, with faults that tests plant.
 *
 * Where ranks of one process meet that open it: the `context` of their options. A net of one rank needs none. Messages of at
 * most TREADLE_NET_COPIED bytes are copied where they are sent, others are read by the receiver, as with UCX: so both happen in tests. */
#ifndef TESTS_NET_THREADS_H
#define TESTS_NET_THREADS_H

#include "net/net.h"

extern const treadle_net_ops treadle_net_threads;

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

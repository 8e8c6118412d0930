/* treadle for authors of nets: the table of functions by which ranks on different nodes send each other messages. A table of one's own is
 * given to a group by treadle_group_set_net (treadle.h); examples/07_own_net.c is one.
 *
 * Conventions are those of treadle.h. */
#ifndef TREADLE_DEVICE_H
#define TREADLE_DEVICE_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Nets: messages between ranks on different nodes ---------------------------------------------------- */

/* Where the bytes of a message lie. An element of an array: this struct is frozen. */
typedef struct treadle_net_part {
  void *at;
  size_t bytes;
} treadle_net_part;

typedef enum treadle_net_memory {
  TREADLE_NET_HOST = 1,
  TREADLE_NET_CUDA = 2
} treadle_net_memory; /* flags */

typedef struct treadle_net_options {
  size_t struct_size;
  int rank, ranks;
  const char *devices; /* network devices, "eth0,eth1"; NULL: those of `host` */
  const char *host;    /* the address of this rank's machine by which it met the others; NULL: not known */
  void *context;       /* of the row: what the caller gave with it */
} treadle_net_options;

/* How messages go from rank to rank where memory cannot be read in place. A row has these functions, and state of its own (`net`), which one
 * thread at a time uses. Messages between two ranks are matched by sender and tag, below 2^40, whichever side comes first; a pair never has
 * two messages of one tag and direction at a time. A message may wait until those that were sent before it to the same rank have been received. A message that is received has the bytes that were sent, all of them: another length
 * fails (TREADLE_PEER, with both numbers), and what lies in the parts is then nothing. The two sides may cut a message into parts in different
 * ways. After a failure of one pair the others go on. */
struct treadle_net_ops {
  size_t struct_size;
  const char *name; /* "ucx" */
  unsigned memory;  /* treadle_net_memory: where parts may lie */
  int most_parts;   /* of a message; at least 1 */
  /* Local. Refused where the row cannot work here, with what to install; devices that are not there, an address that is not this machine's. */
  treadle_status (*open)(const treadle_net_options *options, void **net_p);
  /* What others connect to, at most `capacity` bytes. */
  treadle_status (*address)(void *net, void *room, size_t capacity, size_t *bytes_p);
  /* Before the first message to or from that rank, once. Both sides do it, in any order, and neither waits: messages wait until both have.
   * Refused: bytes that are not the address of that rank. TREADLE_PEER: nobody is there. */
  treadle_status (*connect)(void *net, int peer, const void *address, size_t bytes);
  /* Begins; the parts' memory (the array is copied) stays until the request has ended. A message may have no bytes. TREADLE_STATE: not connected;
   * TREADLE_PEER: lost before. A send that has ended may not have arrived yet. */
  treadle_status (*send)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                         void **request_p);
  treadle_status (*receive)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                            void **request_p);
  /* Moves on whatever is under way. When *done_p, or with another status, the request has ended and is no more. TREADLE_PEER: the other
   * rank cannot be reached any more. A peer that is there and silent is no error: whoever waits has a time limit. */
  treadle_status (*test)(void *net, void *request, bool *done_p);
  /* Moves on, and comes back when a test may say more, `seconds` later at the most. */
  void (*wait)(void *net, double seconds);
  /* Ends a request: its memory is touched no more, and the pair has no more messages until the net is opened again: other requests of the
   * pair, on both sides, may end with TREADLE_PEER, and are cancelled where they do not. Not for a request that a test has ended. */
  void (*cancel)(void *net, void *request);
  /* With requests under way: they are cancelled. What others have not received yet may be lost, though its send has ended: so ranks close when
   * all have what they wait for, which they tell each other in another way. In a child made by fork, which may call nothing else, it frees
   * memory and leaves the parent's connections alone. */
  void (*close)(void *net);
};

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

/* treadle for authors of nets: the table of functions by which ranks on different nodes send each other messages.
 *
 * treadle_group_set_net (treadle.h) gives such a table to a group; examples/07_own_net.c has one. The conventions are
 * those of treadle.h. */
#ifndef TREADLE_DEVICE_H
#define TREADLE_DEVICE_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Nets: messages between ranks on different nodes ---------------------------------------------------- */

/* A part of a message: where its bytes lie. Frozen. */
typedef struct treadle_net_part {
  void *at;
  size_t bytes;
} treadle_net_part;

/* Flags: the kinds of memory in which parts may lie. */
typedef enum treadle_net_memory { TREADLE_NET_HOST = 1, TREADLE_NET_CUDA = 2 } treadle_net_memory;

typedef struct treadle_net_options {
  size_t struct_size;
  int rank, ranks;
  const char *devices; /* network devices, "eth0,eth1"; NULL: those of `host` */
  const char *host;    /* the address of this rank's machine by which it met the others; NULL: not known */
  void *context;       /* what the caller gave with the table */
} treadle_net_options;

/* How messages go from rank to rank where memory cannot be read in place. `net` is the table's own state, which one
 * thread at a time uses.
 *
 *   matching   A send and a receive match by the other rank and the tag, below 2^40, whichever is called first. A pair
 *              of ranks never has two messages of one tag and one direction at a time.
 *   order      A message may wait until messages that were sent to that rank before it have been received.
 *   contents   A received message has the sent bytes, all of them. If the lengths differ, it fails with TREADLE_PEER
 *              and both numbers, and the contents of the parts are undefined.
 *   parts      The two sides may cut a message into parts in different ways.
 *   failures   After a failure of one pair, the other pairs go on. */
struct treadle_net_ops {
  size_t struct_size;
  const char *name; /* "ucx" */
  /* Flags of treadle_net_memory: where parts may lie. All nets have TREADLE_NET_HOST. Without the flag of a window's
   * memory, no part lies there: what it holds is copied to host memory, and sent from it. */
  unsigned memory;
  int most_parts; /* of a message; at least 1 */
  /* Makes the net of this rank. Refused: a net that cannot work here, with what to install; devices that do not exist;
   * an address of another machine. Local. */
  treadle_status (*open)(const treadle_net_options *options, void **net_p);
  /* Gives the bytes by which others connect, at most `capacity` of them. */
  treadle_status (*address)(void *net, void *room, size_t capacity, size_t *bytes_p);
  /* Connects to rank `peer`. Called once, before the first message to or from it. Both sides call it, in any order, and
   * neither waits: messages wait until both have. Refused: bytes that are not the address of that rank. TREADLE_PEER:
   * nobody is there. */
  treadle_status (*connect)(void *net, int peer, const void *address, size_t bytes);
  /* Start to send or receive a message of `count` parts. The array is copied; the parts' memory stays until the request
   * has ended. A message may have no bytes. A send that has ended may not have arrived yet. TREADLE_STATE: `peer` is
   * not connected. TREADLE_PEER: it was lost before. */
  treadle_status (*send)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count, void **request_p);
  treadle_status (*receive)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                            void **request_p);
  /* Advances all requests that are under way, and says in *done_p whether this one has ended. If so, or with a status
   * other than TREADLE_OK, the request no longer exists. TREADLE_PEER: the other rank cannot be reached any more. A
   * peer that is there and silent is not an error, since the caller has a time limit. */
  treadle_status (*test)(void *net, void *request, bool *done_p);
  /* Advances requests, and returns when a test may say more, after `seconds` at most. */
  void (*wait)(void *net, double seconds);
  /* Ends a request that no test has ended. Its memory is not touched any more. The pair has no more messages until the
   * net is opened again: other requests of the pair, on both sides, may end with TREADLE_PEER. The caller cancels those
   * that do not. */
  void (*cancel)(void *net, void *request);
  /* Closes the net, and cancels requests that are under way. Messages that others have not received yet may be lost,
   * even if their send has ended. So ranks close when all have received what they wait for, and tell each other so in
   * another way. A child made by fork may call only this function. There it frees memory, and leaves the parent's
   * connections alone. */
  void (*close)(void *net);
};

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

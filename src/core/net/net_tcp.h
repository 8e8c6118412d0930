/* The net "tcp", in two files: peers and their connections (net_tcp_peers.c), messages and the row (net_tcp.c).
 *
 * One connection between every two ranks that have messages for each other. The higher rank listens, on one address alone; the lower one
 * connects. First both say who they are, and the key in the other one's address: 16 random bytes that only the ranks of the group
 * know. Who says something else is disconnected, and harms nobody. Who says nothing keeps its place until all are taken: then what all guests have said
 * is read, and the oldest goes. A rank that was disconnected before it heard a hello connects again, until its caller has waited long enough.
 *
 * A message is an open frame (wire/frame.h) and its parts, from memory and to memory without a copy between. Messages of a pair go in the order in which their
 * sends were begun. One that nobody has begun to receive stays where it is, with all that is behind it: so TCP slows down who sends too much. */
#ifndef TREADLE_NET_NET_TCP_H
#define TREADLE_NET_NET_TCP_H

#include "net/net.h"
#include "wire/connect.h"
#include "wire/wire.h"

enum { TREADLE_TCP_KEY = 16, TREADLE_TCP_GUESTS = 64, TREADLE_TCP_WHY = 120 };

enum { TREADLE_TCP_PLACE = 0x74726361, TREADLE_TCP_VERSION = 2 };
enum { TREADLE_TCP_HELLO = 1, TREADLE_TCP_MESSAGE };

/* Where a rank listens: what the others connect to. */
typedef struct treadle_tcp_place {
  uint32_t magic, version;
  int32_t rank, ranks;
  treadle_wire_address at;
  uint32_t pad;
  unsigned char key[TREADLE_TCP_KEY];
  uint64_t sum; /* of the rest */
} treadle_tcp_place;

/* A hello's content is the key of the rank that hears it; a message's frame is open. */
typedef struct treadle_tcp_head {
  treadle_frame frame;
  int32_t rank, ranks; /* hello: who is there */
  uint64_t tag;        /* message */
} treadle_tcp_head;

typedef struct treadle_tcp_message {
  struct treadle_tcp_message *next; /* in a queue of its peer */
  struct treadle_tcp_peer *with;
  bool receives, ended;
  treadle_tcp_head head;
  size_t bytes, done; /* of the parts; done of a send: of its head too */
  uint64_t received;  /* bytes that came, where they are not `bytes` */
  int count;
  struct iovec parts[];
} treadle_tcp_message;

typedef struct treadle_tcp_queue {
  treadle_tcp_message *first, *last;
} treadle_tcp_queue;

typedef struct treadle_tcp_peer {
  struct treadle_tcp_peer *next; /* in net.busy */
  bool is_busy;
  bool connected;   /* the caller has said where it is */
  bool is_greeted;  /* both have said who they are */
  bool said, heard; /* their hellos; said: it may wait in `wire` */
  bool lost;
  treadle_wire wire;         /* socket -1: none yet */
  double again;              /* it was disconnected, and connects again then; 0: no */
  treadle_tcp_place there;   /* where it listens */
  char why[TREADLE_TCP_WHY]; /* it was lost */
  treadle_tcp_queue out, in, ended;
  bool comes;                  /* a message, and its head is here */
  treadle_tcp_head head;       /* of what comes */
  treadle_tcp_message *coming; /* the message that it is of; NULL: nobody has begun to receive it */
} treadle_tcp_peer;

/* Somebody who has connected, and has not said yet who it is. */
typedef struct treadle_tcp_guest {
  treadle_wire wire; /* socket -1: none */
  uint64_t number;   /* in the order in which they came */
} treadle_tcp_guest;

typedef struct treadle_tcp_net {
  int rank, ranks;
  int listener, poll;
  unsigned char key[TREADLE_TCP_KEY];
  struct treadle_tcp_peer *peers, *busy; /* [ranks]; those that may have something to do */
  treadle_tcp_guest guests[TREADLE_TCP_GUESTS];
  uint64_t guest_count; /* of all that ever came */
  int refused;          /* peers that connect again */
} treadle_tcp_net;

/* ---- net_tcp_peers.c ---- */

/* Of hellos, or of messages. */
treadle_frame_rule treadle_tcp_rule(int type);
uint64_t treadle_tcp_place_sum(const treadle_tcp_place *place);
treadle_status treadle_tcp_listen(treadle_tcp_net *net, const treadle_net_options *options);
treadle_status treadle_tcp_address(const treadle_tcp_net *net, void *room, size_t capacity,
                                   size_t *bytes_p);
treadle_status treadle_tcp_connect(treadle_tcp_net *net, int rank, const void *address, size_t bytes);
/* Seconds until a peer connects again; at most `seconds`. */
double treadle_tcp_pause(const treadle_tcp_net *net, double seconds);
/* Hears what the kernel has to say, without waiting: who may be read and written is busy. Who was refused connects again when it is time. */
void treadle_tcp_hear(treadle_tcp_net *net);
/* Its connection is closed, and its messages end. The words come after "rank 3 cannot be reached any more: ". */
void treadle_tcp_lose(treadle_tcp_peer *peer, const char *why);
void treadle_tcp_busy(treadle_tcp_net *net, treadle_tcp_peer *peer);
/* Sends and hears what comes before the first message. True: messages may come. */
bool treadle_tcp_greet(treadle_tcp_net *net, treadle_tcp_peer *peer);
void treadle_tcp_close(treadle_tcp_net *net);

#endif

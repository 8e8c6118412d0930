/* An endpoint: how a rank of a run reaches any other at any time, whatever both do meanwhile.
 *
 *   endpoint.c          its thread
 *   endpoint_hear.c     what others say
 *   endpoint_send.c     saying something, from any thread
 *   endpoint_open.c     listening, and who listens where
 *
 * Each rank has a thread that sleeps until something comes. It hands over what has come, sends beats, and sees that other ranks live. What a
 * rank says to another arrives whole and in order, by a connection that is made at the first word and goes one way. Ranks of one node
 * have local sockets, others TCP.
 *
 * A rank is lost when a connection of it breaks before it has said that it leaves, when it says something that is none of this protocol, or when its
 * thread was silent for the time limit, as that of a stopped process is. Computing has no limit. */
#ifndef TREADLE_CONTROL_ENDPOINT_H
#define TREADLE_CONTROL_ENDPOINT_H

#include "group/group.h"
#include "wire/connect.h"
#include "wire/wire.h"

#include <pthread.h>

typedef enum treadle_endpoint_word {
  TREADLE_ENDPOINT_HELLO = 1, /* who speaks on this connection */
  TREADLE_ENDPOINT_BEAT,
  TREADLE_ENDPOINT_BYE, /* no more comes */
  /* What follows is handed over. */
  TREADLE_ENDPOINT_CALL,
  TREADLE_ENDPOINT_ANSWER,
  TREADLE_ENDPOINT_FETCH,
  TREADLE_ENDPOINT_ROWS,
  TREADLE_ENDPOINT_RELEASE,
  TREADLE_ENDPOINT_END,
  TREADLE_ENDPOINT_WORDS /* one more than there are */
} treadle_endpoint_word;

typedef struct treadle_endpoint_head {
  treadle_frame frame;
  int32_t rank; /* who says it */
  int32_t status;
  uint64_t number; /* of a call, or of a request */
} treadle_endpoint_head;

/* What a rank has said, in memory of its own, aligned as messages are. */
typedef struct treadle_endpoint_letter {
  struct treadle_endpoint_letter *next; /* of whoever has it */
  treadle_endpoint_head head;
  atomic_int users;
  size_t length;
  char bytes[];
} treadle_endpoint_letter;

static inline treadle_endpoint_letter *treadle_endpoint_share(treadle_endpoint_letter *letter) {
  atomic_fetch_add(&letter->users, 1);
  return letter;
}
void treadle_endpoint_drop(
    treadle_endpoint_letter *letter); /* by the last user it is freed; NULL: nothing */

/* Content that is sent without a copy: a block (blocks.h), which goes when all have been sent it. */
typedef struct treadle_endpoint_content {
  atomic_int users;
  size_t length;
  char *bytes;
} treadle_endpoint_content;

/* Takes the memory over, also on failure: NULL: memory is out. It has one user. */
treadle_endpoint_content *treadle_endpoint_content_of(char *bytes, size_t length);
void treadle_endpoint_content_drop(treadle_endpoint_content *content); /* NULL: nothing */

/* How a rank was lost. */
typedef struct treadle_endpoint_loss {
  bool left;             /* it has said bye, */
  treadle_status status; /* and why, if this is a failure: `why` is its message */
  const char *why;       /* "it has closed the connection" */
} treadle_endpoint_loss;

typedef struct treadle_endpoint_options {
  double limit; /* seconds of silence */
  /* Both are called by the endpoint's thread, and may send. Who takes a letter drops it. False: it is none of this protocol. */
  bool (*take)(void *context, treadle_endpoint_letter *letter);
  void (*lost)(void *context, int rank, const treadle_endpoint_loss *loss);
  void *context;
} treadle_endpoint_options;

/* What is to be sent, or is. */
typedef struct treadle_endpoint_message {
  struct treadle_endpoint_message *next;
  treadle_endpoint_head head;
  treadle_endpoint_content *content; /* NULL: none */
  size_t sent;                       /* of both together */
} treadle_endpoint_message;

typedef struct treadle_endpoint_peer {
  treadle_wire out, in; /* socket -1: not yet, or not any more */
  treadle_endpoint_message *first, **last;
  treadle_endpoint_letter *letter; /* that comes now, as far as it has: */
  size_t got;
  treadle_wire_address at;
  bool lost, left;              /* left: it has said bye, */
  treadle_endpoint_letter *bye; /* with this */
  bool broken;                  /* `out` could not be written any more */
  double connected, sent, heard, broke;
} treadle_endpoint_peer;

enum { TREADLE_ENDPOINT_GUESTS = 64 };

typedef struct treadle_endpoint {
  treadle_group *group; /* rank and size alone are asked */
  treadle_endpoint_options options;
  treadle_frame_rule rule;
  pthread_mutex_t lock;         /* of all of the peers but `in` and `heard`, which are the thread's alone */
  treadle_endpoint_peer *peers; /* [ranks] this one, too: it may speak to itself */
  int listeners[2];             /* local, TCP; -1: none */
  treadle_wire guests[TREADLE_ENDPOINT_GUESTS]; /* connected, have not said hello: the thread's alone */
  int guest_count;
  struct pollfd *polls; /* the thread's alone */
  int wake;             /* an eventfd */
  bool breaks; /* a connection of a rank has, and what it said last may still come: the thread's alone */
  atomic_bool stop;
  pthread_t thread;
  bool runs;
  pid_t process;
} treadle_endpoint;

/* All ranks of the group are known to each other, and each has a connection to rank 0 and from it. Collective. */
treadle_status treadle_endpoint_open(treadle_group *group, const treadle_endpoint_options *options,
                                     treadle_endpoint **endpoint_p);
/* Says bye, and why: TREADLE_OK, or a failure with its message; and ends. Local. */
void treadle_endpoint_close(treadle_endpoint *endpoint, treadle_status status, const char *message);

/* From any thread, without waiting. The content becomes one more user of itself; NULL: none. TREADLE_PEER: the rank is lost, or has left. */
treadle_status treadle_endpoint_send(treadle_endpoint *endpoint, int rank, treadle_endpoint_head head,
                                     treadle_endpoint_content *content);
/* The same of a text. */
treadle_status treadle_endpoint_send_text(treadle_endpoint *endpoint, int rank, treadle_endpoint_head head,
                                          const char *text);

/* ---- Among its files ---- */

void treadle_endpoint_lose(treadle_endpoint *endpoint, int rank, const char *why);
/* All that has come of that rank; and of that guest, who may turn out to be one. */
void treadle_endpoint_hear(treadle_endpoint *endpoint, int rank);
void treadle_endpoint_hear_guest(treadle_endpoint *endpoint, int guest);
void treadle_endpoint_drop_guest(treadle_endpoint *endpoint, int guest);
/* The lock is held. Sends of what waits what passes now; forgets what waits. */
void treadle_endpoint_flush(treadle_endpoint *endpoint, int rank);
void treadle_endpoint_forget(treadle_endpoint_peer *peer);
/* Puts a word behind what waits. */
treadle_status treadle_endpoint_put(treadle_endpoint *endpoint, int rank, treadle_endpoint_head head,
                                    treadle_endpoint_content *content);
/* Starts and stops the thread. */
treadle_status treadle_endpoint_start(treadle_endpoint *endpoint);
void treadle_endpoint_stop(treadle_endpoint *endpoint);

#endif

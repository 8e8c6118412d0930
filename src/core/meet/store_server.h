/* Rank 0's side of a store over TCP: what the store has, and a thread that serves it to the other ranks.
 *
 *   store_server.c   its life, and the calls of rank 0 itself, which read and write what the store has
 *   store_serve.c    the thread
 *
 * The thread sleeps in one poll() for all connections and never waits for one of them. While it is awake it holds `lock`, as rank 0's
 * calls do.
 *
 *     MEETING  until all ranks have said hello: then all of them are welcomed
 *     OPEN
 *     FAILED   a rank did not come in time, left again, or rank 0 gave up: all that came are told */
#ifndef TREADLE_MEET_STORE_SERVER_H
#define TREADLE_MEET_STORE_SERVER_H

#include "meet/store_map.h"
#include "meet/store_message.h"

#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

enum { TREADLE_STORE_GUESTS = 64, TREADLE_STORE_NAME = 300 };

/* Connected, and has not said hello. */
typedef struct treadle_store_guest {
  treadle_store_stream stream;
  double until;
  int poll;     /* its place among the polls; -1: none */
  bool refused; /* it is told why, and what it still sends is thrown away, so that it can read that */
} treadle_store_guest;

/* A rank. */
typedef struct treadle_store_member {
  treadle_store_stream stream;
  int poll; /* as above */
  bool came, gone;
  bool asks; /* waits for a key, */
  char key[TREADLE_STORE_KEY + 1];
  uint32_t number; /* by the request of this number, */
  double until;    /* not longer than this */
} treadle_store_member;

typedef enum treadle_store_state {
  TREADLE_STORE_MEETING,
  TREADLE_STORE_OPEN,
  TREADLE_STORE_FAILED
} treadle_store_state;

typedef struct treadle_store_server {
  char what[TREADLE_STORE_NAME]; /* "store 10.0.0.1:7000", for messages */
  uint64_t job;
  int ranks;
  double deadline; /* of the meeting */
  int listener, wake;
  double rests; /* until then nobody is taken in: descriptors are out */
  pid_t process;
  pthread_t thread;
  bool runs, ends;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  treadle_store_state state;
  treadle_status status; /* why it has failed, */
  char why[TREADLE_STORE_TEXT];
  char note[400]; /* about the last stranger */
  int came, gone; /* other ranks; the gone have come before */
  treadle_store_map map;
  treadle_store_member *members; /* [ranks] but 0 */
  int guest_count;
  treadle_store_guest guests[TREADLE_STORE_GUESTS]; /* the first is the oldest */
  struct pollfd *
      polls; /* of all that is open, since the system takes no more of them than a process may have descriptors */
  int poll_count;
} treadle_store_server;

/* Takes over the listener, also when it fails. */
treadle_status treadle_store_server_start(const char *what, uint64_t job, int ranks, int listener,
                                          double deadline, treadle_store_server **server_p);
/* Waits until all ranks are there, or fails for all of them. */
treadle_status treadle_store_server_meet(treadle_store_server *server);
treadle_status treadle_store_server_set(treadle_store_server *server, const char *key, const void *value,
                                        size_t bytes);
treadle_status treadle_store_server_get(treadle_store_server *server, const char *key, double seconds,
                                        void *value, size_t capacity, size_t *bytes_p);
/* Waits until the others have closed theirs, not beyond the deadline; NULL: nothing. In a child made by fork it only frees memory and
 * descriptors. */
void treadle_store_server_stop(treadle_store_server *server, double deadline);

/* ---- store_serve.c ---- */

void *treadle_store_serve(void *server);
/* With the lock: for this reason nobody gets anything any more. */
void treadle_store_server_fail(treadle_store_server *server, treadle_status status, const char *why);
/* With the lock: keys have changed, who waits for them is answered. */
void treadle_store_server_answer(treadle_store_server *server);

#endif

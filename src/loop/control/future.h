/* A future: a call of workers, and what they answer (future.c). */
#ifndef TREADLE_CONTROL_FUTURE_H
#define TREADLE_CONTROL_FUTURE_H

#include "control/crew.h"

/* What a worker has answered, or will. */
typedef struct treadle_future_answer {
  int32_t rank;                  /* of the crew */
  bool lost;                     /* that rank is, and will not answer */
  treadle_endpoint_letter *came; /* NULL: not yet, or taken in */
  bool ended;                    /* taken in: */
  bool said;                     /* that rank has answered itself */
  treadle_status status;
  int64_t rows;
  treadle_batch *made; /* what it has made; or its meta and nothing else */
  bool whole;          /* the first of these */
} treadle_future_answer;

/* Of a call that was made before its inputs had ended. */
typedef struct treadle_future_late {
  const treadle_class_method *method;
  treadle_meshes *meshes; /* the one that the method needs; NULL: none */
  int64_t has;            /* rows that each input must have; -1: as many as the others */
  int64_t needs;          /* rows that the caller's numbers and ranges ask for; 0: any */
  bool divides;           /* workers divide its rows, when they know how many there are */
} treadle_future_late;

struct treadle_future {
  treadle_future *next; /* of those that the crew has */
  treadle_crew *crew;
  uint64_t number;
  char *name;                     /* "'scorer', score" */
  treadle_future_answer *answers; /* [count] by worker */
  size_t count;
  treadle_dispatch *dispatch; /* what comes back; NULL: all that the workers make */
  treadle_future_late
      *late; /* NULL: inputs had ended. If it divides, `dispatch` is of no rows until the call has ended */
  treadle_future **inputs; /* [input_count] of the call, which stay until it has ended */
  size_t input_count;
  int users; /* the caller, and calls that have it for an input */
  bool ended;
  treadle_status status; /* then, with its message: */
  int weight;            /* how much that says; 0: nothing has failed */
  size_t failed;         /* the worker that says it */
  size_t own;            /* where the worker's own words begin in this: */
  char message[TREADLE_GROUP_MESSAGE];
};

/* workers: "'scorer'". The inputs' users are counted. */
treadle_status treadle_future_make(treadle_crew *crew, const int32_t *ranks, size_t count, const char *name,
                                   treadle_future **future_p);
/* A call to be sent, of the memory of a message. */
treadle_status treadle_future_content(treadle_message *call, treadle_endpoint_content **content_p);
/* Sends that worker its call. NULL: memory was out. Where it cannot be sent, the call has failed there. */
void treadle_future_start(treadle_future *future, size_t worker, treadle_endpoint_content *call);
/* One of which no worker was sent its call. */
void treadle_future_drop(treadle_future *future);
/* That worker does not run the method. */
void treadle_future_skip(treadle_future *future, size_t worker);
/* It now needs these; each stays until the call has ended. */
treadle_status treadle_future_need(treadle_future *future, treadle_future *const *inputs, size_t count);
/* Waits as treadle_future_wait, for ranks that may wait for others: once the thread's watcher says so, nothing waits for this call any more. The message of a
 * failure is the worker's own words. */
treadle_status treadle_future_wait_or_leave(treadle_future *future);
/* After a failure of a wait for it: the message is the worker's own, without who said it. future NULL, or one that has not failed: nothing changes. */
treadle_status treadle_future_own_words(const treadle_future *future, treadle_status status);
/* What that worker has made, or the meta of it. */
const treadle_batch *treadle_future_made(const treadle_future *future, size_t worker);
/* Do its rows come back? */
bool treadle_future_collects(const treadle_future *future, size_t worker);
/* Where row `row` of those that come back is: of which worker's, and which one. */
void treadle_future_place(const treadle_future *future, int64_t row, size_t *worker_p, int64_t *row_p);

/* ---- future_late.c ---- */

/* Has what it was given ended, too, as far as the controller has looked? */
bool treadle_future_inputs_ended(const treadle_future *future);
/* They and its workers have: it fails if one of them has, or if workers cannot have divided its rows; else what comes back is known. */
void treadle_future_settle(treadle_future *future);
void treadle_future_drop_late(treadle_future *future);

#endif

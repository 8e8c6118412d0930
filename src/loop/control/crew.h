/* A crew: the ranks of a run, which the controller calls one by one. What its files share.
 *
 *   blocks.c         memory of large messages, which is used again
 *   crew.c           how it is made and how it ends; what the endpoint's thread does with what comes
 *   crew_serve.c     a rank: calls in the order in which they came
 *   crew_input.c     the rows of a call: those that came with it, and those that other ranks have
 *   crew_late.c      the rows of a call that was made before those had been made
 *   outputs.c        what calls have made, until the controller releases it; serving rows of it
 *   requests.c       asking other ranks for rows
 *   workers.c        the controller: groups of workers
 *   workers_call.c   the controller: calls of their methods
 *   future.c         the controller: what becomes of a call
 *   future_take.c    the controller: what it has made
 *   workers_late.c   the controller: calls that are given what has not been made yet
 *   future_late.c    the controller: how they end
 *   call_form.c      calls and answers as messages
 *   call_divide.c    how a method's rows are divided
 *
 * A call makes a batch on each rank, which stays there under the call's number. The controller is told how many rows it has. A later call may be given
 * rows of earlier ones: its message says which rank has them, and the ranks that need them ask there. The controller asks for rows only where it is
 * to see them itself.
 *
 * If an earlier call has not ended, the controller does not know yet which rank has how many rows. Then the call says who makes them, and each rank
 * that is called asks those how many they have made, and divides the rows itself (crew_late.c). Who is asked before its call has ended answers then. No
 * rank waits for a call that was made later, so there is no circle of waits.
 *
 * Two threads of a rank use this: the endpoint's, which takes in what comes, and one that serves, or is the controller's. */
#ifndef TREADLE_CONTROL_CREW_H
#define TREADLE_CONTROL_CREW_H

#include "control/endpoint.h"
#include "control/message.h"
#include "meet/part.h"
#include "treadle_control.h"

#include "base/array.h"

#include <pthread.h>

/* Rows that another rank was asked for. */
typedef struct treadle_crew_request {
  struct treadle_crew_request *next;
  uint64_t number;
  int rank;                      /* who is asked */
  bool lost;                     /* that rank is */
  treadle_endpoint_letter *came; /* NULL: not yet */
} treadle_crew_request;

/* Rows of an earlier call that one rank has: all columns, or those with these names. */
typedef struct treadle_crew_rows {
  int rank;
  uint64_t call;
  const int64_t *rows; /* [count] of those that it has */
  size_t count;
  const char *const *names; /* [name_count]; NULL: all */
  size_t name_count;
  bool count_alone; /* in place of the last four: as many rows as it has without padding, and no columns */
} treadle_crew_rows;

/* What a call has made here; or why it has failed. */
typedef struct treadle_crew_output {
  uint64_t call;
  treadle_batch *batch;
  int64_t padding; /* how many of its last rows are, if the controller did not say so */
  treadle_status status;
  char *failure; /* its message; NULL: it has not failed */
  int users;     /* 1 until it is released, and those who read it now */
} treadle_crew_output;

/* A worker of this rank. */
typedef struct treadle_crew_member {
  int64_t number; /* of its group of workers */
  const treadle_worker_class *class;
  treadle_worker_place place;
  treadle_group *group;
  treadle_meshes *meshes;
  void *worker;
} treadle_crew_member;

/* How a rank was lost. */
typedef struct treadle_crew_loss {
  int rank;
  int order; /* 1: the first of all; 0: it is not lost */
  bool left; /* it has said that it leaves, */
  treadle_status
      status; /* and this is why, with `why` for a message; TREADLE_OK: it had nothing to do any more */
  char why[TREADLE_GROUP_MESSAGE];
} treadle_crew_loss;

struct treadle_crew {
  treadle_group *group;
  treadle_crew_options options;
  const treadle_worker_class *classes; /* [class_count] the caller's */
  size_t class_count;
  treadle_endpoint *endpoint; /* NULL: it was closed */
  pthread_mutex_t lock;
  pthread_cond_t news; /* something of what the lock is of has changed */
  /* Under the lock: */
  treadle_endpoint_letter *first, **last; /* calls that wait for their turn; the end of the run */
  uint64_t called, running;        /* the newest call that has come, and the one that runs; 0: none */
  treadle_endpoint_letter *parked; /* who asks for rows of calls that have not ended */
  treadle_crew_request *requests;
  TREADLE_ARRAY(treadle_crew_output *) outputs;
  treadle_future *futures; /* of the controller, that wait for answers */
  treadle_crew_loss *lost; /* [ranks] */
  int lost_count;
  treadle_status end; /* what the controller has ended the run with, if with a failure, */
  char end_message[TREADLE_GROUP_MESSAGE]; /* and its message */
  /* Of the thread that serves: */
  TREADLE_ARRAY(treadle_crew_member *) members;
  uint64_t numbers;                   /* of calls and requests so far */
  bool ended;                         /* the controller has told the others so */
  treadle_status failure;             /* what the others end with, */
  char failed[TREADLE_GROUP_MESSAGE]; /* and its message */
  /* Of the controller: a rank is lost. Of the others: the controller is, or has ended the run with a failure. */
  atomic_bool over;
  int users; /* the caller, futures, groups of workers: it is there until all of them are gone */
  treadle_crew_books books;
};

/* ---- crew.c ---- */

/* A message that came, to be read; columns in it hold the letter. */
treadle_message treadle_crew_read(treadle_endpoint_letter *letter);
/* Sends a message, which it takes the memory of. */
treadle_status treadle_crew_send(treadle_crew *crew, int rank, treadle_endpoint_head head,
                                 treadle_message *m);
/* Waits until there is news, and not long; the lock is held before and after. `doing`: as treadle_thread_ask has it. */
treadle_status treadle_crew_nap(treadle_crew *crew, const char *doing);
/* Why that rank is lost: TREADLE_PEER, "rank 3 (node 0) is lost: ...". The lock is held. */
treadle_status treadle_crew_lost(const treadle_crew *crew, int rank);
void treadle_crew_leave(treadle_crew *crew);
/* TREADLE_STATE: it was closed. */
treadle_status treadle_crew_check_open(const treadle_crew *crew, const char *function);
/* A thread's watcher (treadle_thread_watch), whose context is a crew: waits of a run that is over end. */
bool treadle_crew_goes_on(void *crew, const char *doing, int64_t done, int64_t total);
/* What the run ends for, where that is a rank that is lost now, or within a second: the first that has not left by itself; where all have, the first
 * that has said why. */
bool treadle_crew_find_lost(treadle_crew *crew, treadle_crew_loss *loss_p);
/* Of the others: what the controller has ended the run with, now, or within two seconds; *lost_p: nothing, as it is lost itself. TREADLE_OK: it goes on. */
treadle_status treadle_crew_hear_end(treadle_crew *crew, bool *lost_p, treadle_crew_loss *loss_p);
static inline uint64_t treadle_crew_number(treadle_crew *crew) { return ++crew->numbers; }

/* ---- crew_serve.c ---- */

const treadle_worker_class *treadle_crew_class(const treadle_crew *crew,
                                               const char *name); /* NULL: there is none */
const treadle_class_method *treadle_class_find(const treadle_worker_class *class,
                                               const char *name); /* the same */
/* Takes the next call of this rank; NULL: there is none. The lock is held. */
treadle_endpoint_letter *treadle_crew_next(treadle_crew *crew);
/* Does what a call says, and answers it. */
void treadle_crew_run(treadle_crew *crew, treadle_endpoint_letter *call);
void treadle_crew_drop_members(treadle_crew *crew);

/* ---- call_form.c ---- */

typedef enum treadle_call_kind {
  TREADLE_CALL_ADDRESS,
  TREADLE_CALL_CREATE,
  TREADLE_CALL_METHOD,
  TREADLE_CALL_DESTROY,
  TREADLE_CALL_LATE /* of a method, as workers_late.c has it */
} treadle_call_kind;

/* A call begins with these. */
typedef struct treadle_call_head {
  treadle_call_kind kind;
  int64_t workers;  /* the number of a group of workers */
  const char *name; /* of a class, or of a method */
} treadle_call_head;
void treadle_call_put_head(treadle_message *m, const treadle_call_head *head);
treadle_status treadle_call_read_head(treadle_message *m, treadle_call_head *head_p);

/* The meta of a batch; NULL: none. */
void treadle_call_put_meta(treadle_message *m, const treadle_batch *batch);
treadle_status treadle_call_read_meta(treadle_message *m, treadle_batch *batch);
/* Rows of a batch, with all columns and the meta: rows [count] by their numbers, NULL: all. batch NULL: `count` rows without columns.
 * Gives the bytes of rows in it. */
size_t treadle_call_put_batch(treadle_message *m, const treadle_batch *batch, const int64_t *rows,
                              size_t count);
treadle_status treadle_call_read_batch(treadle_message *m, treadle_batch **batch_p);
/* Those of the columns that it has. */
treadle_status treadle_call_select(const treadle_batch *from, const char *const *names, size_t count,
                                   treadle_batch **batch_p);
void treadle_call_put_names(treadle_message *m, const char *const *names, size_t count);
/* names [room]; *count_p -1: all. */
treadle_status treadle_call_read_names(treadle_message *m, const char **names, int64_t room,
                                       int64_t *count_p);
enum { TREADLE_CALL_NAMES = 256 }; /* columns that a call may name */

/* What rows take in a message, about: values and offsets. */
size_t treadle_call_row_bytes(const treadle_batch *batch);
/* What a worker answers, behind the status of the head: a message of the failure, or the number of rows, the meta, and the rows themselves
 * where they are few and do not stay. */
void treadle_call_put_answer(treadle_message *m, const treadle_batch *made, bool rows_stay);
/* *made_p: all of it; or, where *few_p is false, the meta alone, beside as many rows without columns. */
treadle_status treadle_call_read_answer(treadle_message *m, int64_t *rows_p, treadle_batch **made_p,
                                        bool *few_p);

/* What a worker has registered of itself, as rows: the name of a mesh, dp_rank, collects. And registering it. */
treadle_status treadle_call_say_meshes(const treadle_meshes *meshes, int32_t worker,
                                       treadle_batch **made_p);
treadle_status treadle_call_hear_meshes(treadle_meshes *meshes, int32_t worker, const treadle_batch *made);

/* ---- call_divide.c ---- */

/* As the method's row in its table says. */
treadle_status treadle_call_divide(const treadle_class_method *method, int32_t workers,
                                   const treadle_meshes *meshes, const treadle_dispatch_argument *arguments,
                                   size_t count, treadle_dispatch **dispatch_p);
/* The mesh that the method needs; and meshes with that one alone, NULL: it needs none. */
void treadle_call_put_mesh(treadle_message *m, const treadle_class_method *method,
                           const treadle_meshes *meshes);
treadle_status treadle_call_read_mesh(treadle_message *m, const treadle_class_method *method,
                                      int32_t workers, treadle_meshes **meshes_p);

/* ---- crew_input.c ---- */

/* Rows of one source that one rank has. */
typedef struct treadle_crew_part {
  treadle_crew_rows rows;
  treadle_crew_request *request; /* until it is waited for */
  treadle_batch *batch;
  int64_t source;
} treadle_crew_part;
typedef TREADLE_ARRAY(treadle_crew_part) treadle_crew_parts;

/* Asks for all at once, and waits for them. */
treadle_status treadle_crew_get_parts(treadle_crew *crew, treadle_crew_parts *all);
/* Adds what has come to the batch: of one source one part's rows behind those of the one before, beside the columns that it has. */
treadle_status treadle_crew_add_parts(const treadle_crew_parts *all, int64_t sources, treadle_batch *batch);
void treadle_crew_release_parts(treadle_crew_parts *all);

/* The batch of a method: its own rows, and with them those of sources, each of segments. */
treadle_status treadle_crew_input(treadle_crew *crew, treadle_message *m, treadle_batch **batch_p);

/* ---- crew_late.c ---- */

/* A worker that makes rows for a late call, as its message has it. */
typedef struct treadle_late_worker {
  int64_t rank;
  int64_t padding; /* how many of its last rows are; what that rank knows itself is not counted */
} treadle_late_worker;

/* The same of a late call. *padding_p: how many of its last rows are; *collected_p: what is made of them comes back. */
treadle_status treadle_crew_late_input(treadle_crew *crew, treadle_message *m,
                                       const treadle_class_method *method, treadle_batch **batch_p,
                                       int64_t *padding_p, bool *collected_p);

/* ---- outputs.c ---- */

/* Keeps it for that call, on success. */
treadle_status treadle_outputs_put(treadle_crew *crew, uint64_t call, treadle_batch *batch,
                                   int64_t padding);
/* Keeps the failure, of which treadle_error_message() is the message, for those who ask. */
void treadle_outputs_fail(treadle_crew *crew, uint64_t call, treadle_status status);
/* The call has ended: who has asked before is answered. */
void treadle_outputs_unpark(treadle_crew *crew, uint64_t call);
/* Refused: the call's rows were released, or are not here. Else the call's own failure. The caller gives it back. */
treadle_status treadle_outputs_take(treadle_crew *crew, uint64_t call, treadle_crew_output **output_p);
void treadle_outputs_give_back(treadle_crew *crew, treadle_crew_output *output);
void treadle_outputs_release(treadle_crew *crew, uint64_t call);
void treadle_outputs_release_all(treadle_crew *crew);
/* The endpoint's thread: what another rank asks for. False: it cannot be read. */
bool treadle_outputs_serve(treadle_crew *crew, treadle_endpoint_letter *letter);

/* ---- requests.c ---- */

/* Asks for them, and waits for them. Of this rank itself they are taken. */
treadle_status treadle_request_send(treadle_crew *crew, const treadle_crew_rows *rows,
                                    treadle_crew_request **request_p);
treadle_status treadle_request_wait(treadle_crew *crew, const treadle_crew_rows *rows,
                                    treadle_crew_request *request, treadle_batch **batch_p);
/* Nobody waits for it any more. NULL: nothing. */
void treadle_request_leave(treadle_crew *crew, treadle_crew_request *request);
/* The endpoint's thread: an answer. */
bool treadle_request_take(treadle_crew *crew, treadle_endpoint_letter *letter);
/* The same: that rank is lost; the lock is held. */
void treadle_request_lose(treadle_crew *crew, int rank);

/* ---- future.c ---- */

/* The endpoint's thread, as above. */
bool treadle_future_answered(treadle_crew *crew, treadle_endpoint_letter *letter);
void treadle_future_lose(treadle_crew *crew, int rank);

#endif

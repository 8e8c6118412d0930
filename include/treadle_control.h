/* treadle for authors of algorithms: one program, the controller, says what happens, and groups of processes do it.
 *
 *   treadle_crew_*      all processes of a run, which the controller calls
 *   treadle_workers_*   some of them, which are workers of one class
 *   treadle_future_*    what becomes of a call
 *
 * The conventions are those of treadle.h. */
#ifndef TREADLE_CONTROL_H
#define TREADLE_CONTROL_H

#include "treadle_loop.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Crews and workers ----------------------------------------------------------------------------------
 *
 * All processes of a launcher make a crew. Rank 0 is the controller; the others serve its calls until it ends the crew.
 *
 *     treadle_crew_open(group, classes, count, NULL, &crew);                  all ranks
 *     if (rank > 0)
 *       treadle_crew_serve(crew);
 *     else {
 *       treadle_workers_create(crew, ranks, 4, "scorer", options, &scorers);  four workers, on ranks[0] to ranks[3]
 *       treadle_workers_call(scorers, "score", &samples, &scores);            rows are divided among them
 *       treadle_workers_call(learners, "update", &with_scores, &updated);     rows go from worker to worker
 *       status = treadle_future_wait(updated);
 *       treadle_crew_end(crew, status);
 *     }
 *     treadle_crew_close(crew);
 *
 * A method takes a batch and makes a batch, whose rows stay with its worker until the future of the call is destroyed.
 * A later call that is given the future gets the rows from there. The controller sees them only if it takes them
 * (treadle_future_take). Calls of one rank run in the order in which they were made; ranks run at the same time.
 *
 * If a rank dies, leaves, or says nothing for the crew's time limit, the calls that it has part in fail with
 * TREADLE_PEER; the message names the rank, its node, its worker and the method. A method that fails on a worker fails
 * the call with that worker's message, and the crew goes on. */

typedef struct treadle_crew treadle_crew;
typedef struct treadle_workers treadle_workers;
typedef struct treadle_future treadle_future;

/* Where a worker is. */
typedef struct treadle_worker_place {
  size_t struct_size;
  treadle_group *group; /* of the workers that were created with it, in their order. It lives as long as the worker */
  int32_t rank, size;   /* of this group */
  void *context;        /* of the class */
  treadle_crew *crew;
} treadle_worker_place;

/* How rows of a call are divided among its workers. */
typedef enum treadle_dispatch_kind {
  TREADLE_DISPATCH_ONE_TO_ALL = 1,
  TREADLE_DISPATCH_DP_COMPUTE_PROTO = 3
} treadle_dispatch_kind;

/* A method of a class. It makes *out_p from `in`, or leaves it NULL. `in` is there until it returns. What it makes is
 * the crew's afterwards; it may share memory of `in`. */
typedef struct treadle_class_method {
  const char *name;
  treadle_status (*function)(void *worker, const treadle_batch *in, treadle_batch **out_p);
  treadle_dispatch_kind dispatch;
} treadle_class_method;

/* A class of workers. All ranks of a crew have the same ones. */
typedef struct treadle_worker_class {
  size_t struct_size;
  const char *name;
  const treadle_class_method *methods; /* [method_count] */
  size_t method_count;
  /* Makes a worker. Options are those of treadle_workers_create; they are in the batch's meta, or are its rows. NULL:
   * there is nothing to make, and methods are called with a worker of NULL. */
  treadle_status (*create)(const treadle_worker_place *place, const treadle_batch *options, void **worker_p);
  void (*destroy)(void *worker); /* NULL: there is nothing to destroy */
  void *context;                 /* which create finds in its place */
} treadle_worker_class;

typedef struct treadle_crew_options {
  size_t struct_size;
  double timeout_seconds; /* a rank that says nothing for so long is lost; 0: 60. Computing has no limit */
} treadle_crew_options;

/* What the controller has sent and received itself so far. Frozen. */
typedef struct treadle_crew_books {
  int64_t calls;         /* of a method of one worker each */
  int64_t message_bytes; /* of calls and answers, with the rows in them */
  int64_t row_bytes;     /* of rows, in them and on their own */
} treadle_crew_books;

/* Makes a crew of the ranks of a group. Group and classes must outlive it; options may be NULL. Refused on all ranks: two
 * classes of one name, two methods of one name in a class. On failure *crew_p is NULL. Collective. */
treadle_status treadle_crew_open(treadle_group *group, const treadle_worker_class *classes, size_t count,
                                 const treadle_crew_options *options, treadle_crew **crew_p);
/* Serves the controller's calls until it ends the crew, and gives the status with which it does. TREADLE_PEER: the
 * controller is lost. TREADLE_STATE: this is the controller. */
treadle_status treadle_crew_serve(treadle_crew *crew);
/* Of the controller: the others stop serving, when they have done what they were called to do. `status` is what the run
 * has come to; the present treadle_error_message() goes with it. */
void treadle_crew_end(treadle_crew *crew, treadle_status status);
/* Destroys the crew and its workers on this rank. If the controller has not ended it before, this ends it with TREADLE_OK.
 * What it still has of futures and treadle_workers must be destroyed all the same: they give TREADLE_STATE. Local. */
void treadle_crew_close(treadle_crew *crew);
void treadle_crew_get_books(const treadle_crew *crew, treadle_crew_books *books_p);

/* Creates workers of a class: number w on rank ranks[w] of the crew [count]. A rank may have workers of several groups.
 * Rank 0 may have some, too: their methods run while the controller waits for a future. Options may be NULL. Waits until
 * all are there. Refused: a rank twice or out of range, a class that the crew does not have. On failure *workers_p is
 * NULL. */
treadle_status treadle_workers_create(treadle_crew *crew, const int32_t *ranks, size_t count, const char *class_name,
                                      const treadle_batch *options, treadle_workers **workers_p);
/* Destroys them, once they have done what they were called to do. */
void treadle_workers_destroy(treadle_workers *workers);
/* The number of workers. Else -1. */
int64_t treadle_workers_size(const treadle_workers *workers);
/* TREADLE_PEER: one of them is lost, which the message names. */
treadle_status treadle_workers_alive(const treadle_workers *workers);

/* The rows of a call. */
typedef struct treadle_call_input {
  size_t struct_size;
  const treadle_batch *batch; /* goes with the call; its meta goes to all workers. NULL: none */
  /* [future_count] earlier calls of this crew, whose rows go from worker to worker: those of one are as many as those of
   * the others and of `batch`, and their columns are united (treadle_batch_union). They need not have come to an end. */
  treadle_future *const *futures;
  size_t future_count;
  const char *const *columns; /* [column_count] of the futures, where they have them; NULL: all */
  size_t column_count;
  const int64_t *rows; /* [row_count] which of the rows, in this order; NULL: all */
  size_t row_count;
  const treadle_row_range *by_worker; /* which of these each worker gets; NULL: as the method's dispatch has it */
} treadle_call_input;

/* Calls a method on all workers, and does not wait for them. Input may be NULL: no rows. Waits for futures in the input,
 * if it needs to know how many rows they have. Refused: a method that the class does not have; unequal numbers of rows;
 * rows that cannot be divided. On failure *future_p is NULL. */
treadle_status treadle_workers_call(treadle_workers *workers, const char *method, const treadle_call_input *input,
                                    treadle_future **future_p);

/* Waits until all workers have done what was called. The failure of the call is that of the first worker that fails for
 * a reason of its own: "rank 3 (node 0), worker 1 of 4 of 'scorer', score: ...". */
treadle_status treadle_future_wait(treadle_future *future);
/* Is there nothing to wait for any more? It may have failed. Else false. */
bool treadle_future_done(treadle_future *future);
/* Waits, and gives the number of rows of all workers together in *rows_p. */
treadle_status treadle_future_rows(treadle_future *future, int64_t *rows_p);
/* Waits, and takes what the workers have made, one's rows behind those of the one before, with the meta of all
 * (treadle_batch_concat). names [count]: these columns; NULL: all. On failure *batch_p is NULL. */
treadle_status treadle_future_take(treadle_future *future, const char *const *names, size_t count,
                                   treadle_batch **batch_p);
/* The same of one worker. */
treadle_status treadle_future_take_of(treadle_future *future, int64_t worker, const char *const *names, size_t count,
                                      treadle_batch **batch_p);
/* Waits, without a failure, and destroys it and its rows, wherever they are: calls that were given it have got them. */
void treadle_future_destroy(treadle_future *future);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

/* treadle for those who write a controller: one program says what happens, and groups of processes, its workers, do it.
 *
 *   treadle_meshes_*     which row of data parallelism each worker of a group belongs to
 *   treadle_dispatch_*   which worker gets which rows of a call, and what the caller gets back
 *   treadle_balance_*    rows to ranks, and to micro batches, so that each has as much to do
 *
 * The conventions are those of treadle.h. */
#ifndef TREADLE_CONTROL_H
#define TREADLE_CONTROL_H

#include "treadle_loop.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Meshes: who gets which rows, and from whom results are collected ------------------------------ */

/* The meshes of a group of workers, by name. In a mesh each worker has a dp rank: workers with the same one get the
 * same rows, and one of them is collected from. Functions are local; one thread at a time uses an object. */
typedef struct treadle_meshes treadle_meshes;

/* Makes an object without meshes. workers: how many the group has, from 1. On failure *meshes_p is NULL. */
treadle_status treadle_meshes_create(int32_t workers, treadle_meshes **meshes_p);
void treadle_meshes_destroy(treadle_meshes *meshes);
/* Says what a worker has in a mesh; the first worker makes the mesh. Refused: a worker or dp rank that is not 0 to
 * workers - 1; a worker that is registered in this mesh. */
treadle_status treadle_meshes_register(treadle_meshes *meshes, const char *name, int32_t worker, int32_t dp_rank,
                                       bool collects);
/* Gives the number of dp ranks of a mesh, in which all workers must be registered. Refused: a name that no worker has
 * registered; by number, a worker that has not, a dp rank that no worker has though one has a higher one, a dp rank
 * from which nobody, or more than one worker, is collected. On failure *dp_size_p is 0. */
treadle_status treadle_meshes_dp_size(const treadle_meshes *meshes, const char *name, int32_t *dp_size_p);

/* ---- Dispatch: the rows of a call to workers, and what comes back ----------------------------------- */

/* What a call is given. The first two have a length: rows, or items of the list. */
typedef enum treadle_argument_kind {
  TREADLE_ARGUMENT_BATCH = 0,
  TREADLE_ARGUMENT_LIST,
  TREADLE_ARGUMENT_VALUE, /* anything else: it goes whole to each worker */
  TREADLE_ARGUMENT_FUNCTION
} treadle_argument_kind;

/* Frozen. */
typedef struct treadle_dispatch_argument {
  treadle_argument_kind kind;
  int64_t length; /* of a batch or a list */
} treadle_dispatch_argument;

/* How arguments are divided among workers, and what comes back. The names are verl's (class Dispatch). */
typedef enum treadle_dispatch_kind {
  /* If all arguments are lists with an item for each worker, each gets its own item, otherwise all of them whole. A
   * list of results. */
  TREADLE_DISPATCH_ALL_TO_ALL = 0,
  /* Each worker gets all arguments whole. A list of results. */
  TREADLE_DISPATCH_ONE_TO_ALL,
  /* Arguments are lists with an item for each worker. A list of results. */
  TREADLE_DISPATCH_DP_COMPUTE,
  /* Arguments are batches with as many rows as each other, and cut into an equal chunk for each worker. Results are
   * concatenated in the order of workers. */
  TREADLE_DISPATCH_DP_COMPUTE_PROTO,
  /* The same, behind a function, which is the first argument. */
  TREADLE_DISPATCH_DP_COMPUTE_PROTO_WITH_FUNC,
  /* Chunks, too, but a list of results. */
  TREADLE_DISPATCH_DP_COMPUTE_METRIC,
  /* Refused: "Direct rollout call is forbidden." */
  TREADLE_DISPATCH_DIRECT_ROLLOUT_METHOD,
  /* Batches are cut into a chunk for each dp rank of a mesh. Workers with this dp rank get it, and the results of those
   * that collect are concatenated in the order of workers. */
  TREADLE_DISPATCH_ND_MESH,
  /* As treadle_dispatch_functions say. */
  TREADLE_DISPATCH_CUSTOM,
  /* Refused: it is a way to execute. */
  TREADLE_DISPATCH_RANK_ZERO
} treadle_dispatch_kind;

typedef enum treadle_execute_kind {
  TREADLE_EXECUTE_ALL = 0,
  TREADLE_EXECUTE_RANK_ZERO /* worker 0 alone, with all arguments whole; its result alone comes back */
} treadle_execute_kind;

/* A kind of the caller's; both functions are needed. */
typedef struct treadle_dispatch_functions {
  size_t struct_size;
  const char *name; /* in messages */
  /* Writes for each worker the rows or items of all batches and lists that it gets, by_worker [workers]. */
  treadle_status (*dispatch)(void *context, int32_t workers, const treadle_dispatch_argument *arguments, size_t count,
                             treadle_row_range *by_worker);
  /* Makes of results [workers] what comes back: [*count_p] batches, at most as many as workers, which the caller
   * destroys. If it fails it leaves none. */
  treadle_status (*collect)(void *context, const treadle_batch *const *results, int32_t workers,
                            treadle_batch **collected, int32_t *count_p);
  void *context;
} treadle_dispatch_functions;

typedef struct treadle_dispatch_spec {
  size_t struct_size;
  treadle_dispatch_kind kind;
  treadle_execute_kind execute;
  int32_t workers;
  const treadle_dispatch_argument *arguments; /* [argument_count] */
  size_t argument_count;
  const treadle_meshes *meshes; /* ND_MESH alone: as many workers */
  const char *mesh;             /* ND_MESH alone: a name of these */
  /* For what is cut into chunks. Rows that do not divide are filled up with copies of the last row; results are
   * collected without them. verl's auto_padding. */
  bool auto_padding;
  bool pad_with_first;                         /* copies of the first row instead */
  const treadle_dispatch_functions *functions; /* CUSTOM alone */
} treadle_dispatch_spec;

typedef struct treadle_dispatch_info {
  size_t struct_size;
  int32_t workers;
  int32_t chunks;  /* into how many parts rows are cut; 0: into none */
  int64_t rows;    /* of each batch that is cut, without padding */
  int64_t padding; /* rows that are appended: copies of row pad_row. As many are cut off what is concatenated */
  int64_t pad_row;
  bool list;   /* results come back as a list */
  bool custom; /* results come back as the caller's function says */
} treadle_dispatch_info;

/* What a worker has to do with a call. Frozen. */
typedef struct treadle_dispatch_share {
  treadle_row_range rows; /* that it gets of what is cut, counted with padding, which stands after all others */
  int64_t padding;        /* how many of them are padding: the last ones */
  bool whole;             /* it gets each argument whole; rows is empty */
  bool runs;              /* it runs the method */
  bool collected;         /* its result comes back */
} treadle_dispatch_share;

typedef struct treadle_dispatch treadle_dispatch;

/* Finds what each worker gets of a call: a pure function of the spec. Refused, with the field's sentences where there
 * are any: rows that do not divide ("only support equal chunk"), batches of other lengths ("expecting all arg share
 * same length"), lists of another length than workers, a kind of argument that the kind of dispatch does not take; what
 * treadle_meshes_dp_size refuses; RANK_ZERO with arguments that are cut; functions that are not both there, or that
 * give rows which an argument does not have. On failure *dispatch_p is NULL. The spec may go afterwards; the functions
 * and their context stay until the object is destroyed. Local. */
treadle_status treadle_dispatch_create(const treadle_dispatch_spec *spec, treadle_dispatch **dispatch_p);
void treadle_dispatch_destroy(treadle_dispatch *dispatch);
treadle_status treadle_dispatch_get_info(const treadle_dispatch *dispatch, treadle_dispatch_info *info_p);
/* Refused: a worker out of range. */
treadle_status treadle_dispatch_get_share(const treadle_dispatch *dispatch, int32_t worker,
                                          treadle_dispatch_share *share_p);
/* Gives each worker that runs its part of the batch that is argument number `argument`: parts [workers], NULL for the
 * others, which the caller destroys. Parts share the batch's memory, but for those with padding. The batch is as it
 * was. Refused: an argument that is not a batch; a batch of another length. On failure all parts are NULL. Local. */
treadle_status treadle_dispatch_batch(const treadle_dispatch *dispatch, size_t argument, const treadle_batch *batch,
                                      treadle_batch **parts);
/* Gives what comes back: [*count_p] batches, at most as many as workers, which the caller destroys. results [workers]:
 * what workers gave; those of workers that are not collected from are not looked at. A list has each of the others, and
 * shares its memory; otherwise there is one batch, concatenated, without padding. Refused: a result that is NULL; where
 * there is padding, a result that has not as many rows as the worker was given, since nothing says which of them are
 * padding; what treadle_batch_concat refuses. On failure *count_p is 0. Local. */
treadle_status treadle_dispatch_collect(const treadle_dispatch *dispatch, const treadle_batch *const *results,
                                        treadle_batch **collected, int32_t *count_p);

/* ---- Balance: rows so that each rank, or micro batch, has as much to do -------------------------------- */

/* All of these are pure: the same input gives the same outcome on every rank, ties included, which are those of verl's
 * utils/seqlen_balancing.py. */

/* Gives the work of rows of lengths [count] tokens: loads[r] = 24576 lengths[r] + lengths[r]^2. Refused, by row: a
 * length below 0, or whose work does not fit. */
treadle_status treadle_balance_workload(const int64_t *lengths, size_t count, int64_t *loads);

typedef enum treadle_balance_kind {
  TREADLE_BALANCE_KARMARKAR_KARP = 0, /* the largest differences first */
  TREADLE_BALANCE_GREEDY              /* each row, as they come, to the part with the least */
} treadle_balance_kind;

typedef struct treadle_balance_spec {
  size_t struct_size;
  treadle_balance_kind kind;
  const int64_t *loads; /* [count], from 0 */
  size_t count;
  size_t parts;
  bool equal; /* as many rows in each part, or with groups as many groups; otherwise only loads matter */
  /* [count], or NULL: rows that stay in one part are those with equal numbers, which stand beside each other. verl has
   * them by uid, and wants `equal` if the number of groups divides by parts. */
  const int64_t *groups;
  /* Rows of a part are not in the order of their numbers, but small ones stand at both ends, which makes the bubbles
   * of a pipeline small: sorted by load and number, places 0, 2, 4 and so on, then the others backwards. Not with
   * groups. */
  bool ends_small;
} treadle_balance_spec;

/* Divides rows into parts. order [count]: the rows of part 0, then those of part 1, and so on, each in the order of
 * their numbers; counts [parts]: how many rows each has. treadle_batch_reorder and _split take these. With
 * KARMARKAR_KARP no part is empty. Refused: fewer rows, or groups, than parts; rows or groups that do not divide, with
 * equal; a load below 0, or a sum that does not fit; a group that stands at two places. */
treadle_status treadle_balance_divide(const treadle_balance_spec *spec, int64_t *order, int64_t *counts);

/* Gives the inverse of an order, inverse[order[i]] = i: what brings rows back to where they were. Refused: an order
 * that does not have each of 0 to count - 1 once. */
treadle_status treadle_balance_invert(const int64_t *order, size_t count, int64_t *inverse);

/* Tokens of ranks before rows were divided, when each had as many rows as they came, and after. verl's
 * global_seqlen/{min,max,minmax_diff,balanced_min,balanced_max,mean}. */
typedef struct treadle_balance_figures {
  size_t struct_size;
  int64_t min, max, minmax_diff;
  int64_t balanced_min, balanced_max;
  double mean;
} treadle_balance_figures;

/* lengths [count]: tokens of rows. order [count], counts [parts]: as treadle_balance_divide gives them. Refused: rows
 * that do not divide by parts; an order or counts that are not of these rows. */
treadle_status treadle_balance_get_figures(const int64_t *lengths, size_t count, const int64_t *order,
                                           const int64_t *counts, size_t parts, treadle_balance_figures *figures_p);

typedef struct treadle_balance_micro_spec {
  size_t struct_size;
  const int64_t *lengths; /* [count]: tokens of each row */
  size_t count;
  int64_t max_tokens; /* of a micro batch, by which their number is found; no row has more */
  int64_t least;      /* micro batches at least, such as stages of a pipeline; 0: any number */
  int64_t multiple;   /* their number is rounded up to one of this; 0: not */
  int64_t dp_most;    /* the largest number that a dp rank has found, so that all have as many; 0: this rank alone */
} treadle_balance_micro_spec;

/* Gives the number of micro batches: min(rows, ceil(all tokens / max_tokens)), raised to `least` and `dp_most`, rounded
 * up to a multiple. Refused, by row: more tokens than max_tokens; a number that is larger than that of rows. */
treadle_status treadle_balance_micro_count(const treadle_balance_micro_spec *spec, int64_t *count_p);
/* Divides rows into that number of micro batches, which have about equal work. Since rows are not cut, one may have
 * more tokens than max_tokens, as verl's may. order and counts [treadle_balance_micro_count] as treadle_balance_divide
 * gives them; micro batches with less work stand at both ends. treadle_balance_invert brings results back in the rows'
 * order. */
treadle_status treadle_balance_micro_divide(const treadle_balance_micro_spec *spec, int64_t *order, int64_t *counts);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

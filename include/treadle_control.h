/* treadle for authors of algorithms: one program, the controller, says what happens, and groups of processes, its
 * workers, do it.
 *
 *   treadle_resource_pool_*   slots that work together, each a place for one process, on one node or on several
 *   treadle_rl_pools_*        the pools that a configuration gives its roles
 *   treadle_meshes_*          which row of data parallelism each worker of a group belongs to
 *   treadle_dispatch_*        which worker gets which rows of a call, and what the caller gets back
 *   treadle_balance_*         rows to ranks, and to micro batches, so that each has as much to do
 *   treadle_dock_*            which columns of a step's rows are ready, and who has taken which rows
 *   treadle_crew_*            all processes of a run, which the controller calls
 *   treadle_workers_*         some of them, which are workers of one class
 *   treadle_future_*          what becomes of a call
 *
 * The conventions are those of treadle.h. */
#ifndef TREADLE_CONTROL_H
#define TREADLE_CONTROL_H

#include "treadle_loop.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Resource pools ---------------------------------------------------------------------------------------
 *
 * A slot is a place for one process. A pool has one slot for each of its bundles. An entry of a pool is a number of
 * bundles that must all be on one node (STRICT_PACK, in Ray's words). Pools that are made together share no slot.
 *
 * Nothing is started: all of it is arithmetic, and gives the same result on every rank. */
typedef struct treadle_resource_pool treadle_resource_pool;

/* Frozen. */
typedef struct treadle_resource_pool_spec {
  const char *name;
  const int32_t *counts; /* [entries] bundles of each entry, at least 1 */
  size_t entries;
  int32_t max_colocate_count; /* the most worker groups on a slot; 0: 3 */
  /* Worker groups on each slot that have processes of their own. Roles that share a process count once. 0: 1 */
  int32_t groups;
} treadle_resource_pool_spec;

typedef struct treadle_resource_pool_info {
  size_t struct_size;
  const char *name; /* belongs to the pool */
  int32_t slots, entries;
  int32_t nodes; /* on which its slots are */
  int32_t max_colocate_count;
} treadle_resource_pool_info;

/* Frozen. */
typedef struct treadle_slot {
  int32_t number; /* of the slot, among all of them */
  int32_t node;
  int32_t local_rank, local_world; /* its number among the slots of its node, and how many these are */
  int32_t entry, bundle;           /* of its pool */
} treadle_slot;

/* Places `count` pools, in their order: entry after entry, each on the first node that has room for it, on the free
 * slots of that node with the lowest numbers. Nodes are in the order of their first slots. node_of [slots]: the node of
 * each slot, a number from 0. pools [count].
 *
 * Refused, with names and numbers: fewer slots than all pools ask for (the message names the first pool that does not
 * fit); enough slots, but no node with room for an entry; a count below 1; a pool without entries or without a name of
 * its own; more worker groups on a slot than max_colocate_count. On failure all pools are NULL. Local. */
treadle_status treadle_resource_pool_create(const treadle_resource_pool_spec *specs, size_t count,
                                            const int32_t *node_of, size_t slots, treadle_resource_pool **pools);
void treadle_resource_pool_destroy(treadle_resource_pool *pool);
void treadle_resource_pool_get_info(const treadle_resource_pool *pool, treadle_resource_pool_info *info_p);
/* Gives the slot of the pool's `rank`, from 0: entry after entry, bundle after bundle. */
treadle_status treadle_resource_pool_get_slot(const treadle_resource_pool *pool, int32_t rank, treadle_slot *slot_p);

/* Splits a pool into pools on the same slots: part i has the next counts[i] of them. A part may have slots of several
 * nodes, and may be split again. Its name is that of the pool with [i] behind it. The pool itself stays as it is. parts
 * [count]. Refused: a count below 1; counts that do not sum up to the pool's slots. On failure all parts are NULL.
 * Local. */
treadle_status treadle_resource_pool_split(const treadle_resource_pool *pool, const int32_t *counts, size_t count,
                                           treadle_resource_pool **parts);
/* The same with parts of split_size slots each: parts [the pool's slots / split_size]. Refused: a split_size that is
 * not a divisor of the pool's slots. */
treadle_status treadle_resource_pool_split_evenly(const treadle_resource_pool *pool, int32_t split_size,
                                                  treadle_resource_pool **parts);
/* Gives a pool with the entries of both, first those of `a`. Its name is that of both with _ between them. Both stay as
 * they are. Refused: pools with another max_colocate_count, or entries of other sizes; a slot that is in both. On
 * failure *merged_p is NULL. Local. */
treadle_status treadle_resource_pool_merge(const treadle_resource_pool *a, const treadle_resource_pool *b,
                                           treadle_resource_pool **merged_p);

/* ---- Roles -------------------------------------------------------------------------------------------------- */

/* What processes of a run do, in verl's words. */
typedef enum treadle_pool_role {
  TREADLE_POOL_ROLE_ACTOR_ROLLOUT, /* trains the policy and generates with it */
  TREADLE_POOL_ROLE_ACTOR,         /* trains it */
  TREADLE_POOL_ROLE_ROLLOUT,       /* generates with it */
  TREADLE_POOL_ROLE_CRITIC,
  TREADLE_POOL_ROLE_REF_POLICY,
  TREADLE_POOL_ROLE_REWARD_MODEL,
  TREADLE_POOL_ROLES
} treadle_pool_role;

/* "ActorRollout", "Actor", "Rollout", "Critic", "RefPolicy", "RewardModel", as a mapping names it; "(none)" for what
 * is none of them. */
const char *treadle_pool_role_name(treadle_pool_role role);

/* ---- Pools of a run ------------------------------------------------------------------------------------------- */

/* The pools that a configuration of reinforcement learning gives its roles (docs/pools.md), placed on nodes. */
typedef struct treadle_rl_pools treadle_rl_pools;

typedef struct treadle_rl_pools_info {
  size_t struct_size;
  const char *place; /* what says which pools there are: "resource_pools (line 3)"; NULL: nothing, and there is one */
  int32_t count;
  int32_t slots, nodes; /* of all pools together */
  int32_t idle;         /* slots that no pool takes */
  /* The rank of the controller, and that of slot 0. With one pool the controller also works: both are 0. With several
   * it is a process of its own, and slot s is rank s + 1. */
  int32_t controller, first_rank;
} treadle_rl_pools_info;

typedef struct treadle_rl_pool_info {
  size_t struct_size;
  const treadle_resource_pool *pool; /* belongs to the treadle_rl_pools */
  const treadle_pool_role *roles;    /* [role_count] in the order of the configuration */
  int32_t role_count;
} treadle_rl_pool_info;

/* Reads a configuration as treadle_rl_config_read does, for its pools: if it has no model, nothing has to be in it but
 * what says which pools there are. */
treadle_status treadle_rl_pools_config_read(const char *path, const char *const *overrides, size_t count,
                                            treadle_train_config **config_p);

/* Places them on nodes with slots_by_node [nodes] slots, which a node may lack; NULL and 0: on one node with all. Slots
 * that no pool takes are left out, and the others numbered node after node, as a run has them that is started with one
 * process for each. Refused: what treadle_resource_pool_create refuses; a slot that is named and not there. On failure
 * *pools_p is NULL. Local. */
treadle_status treadle_rl_pools_create(const treadle_train_config *config, const int32_t *slots_by_node, size_t nodes,
                                       treadle_rl_pools **pools_p);
void treadle_rl_pools_destroy(treadle_rl_pools *pools);
void treadle_rl_pools_get_info(const treadle_rl_pools *pools, treadle_rl_pools_info *info_p);
/* In the order of the configuration, from 0. */
treadle_status treadle_rl_pools_get_pool(const treadle_rl_pools *pools, int32_t number, treadle_rl_pool_info *info_p);
/* What roles of a pool have on the device of a rank, at most: weights, gradients, optimizer state, KV cache, and what
 * they compute in. */
typedef struct treadle_rl_pool_memory {
  size_t struct_size;
  bool is_known;                         /* each role has a model */
  size_t bytes;                          /* of the fullest rank, at its peak: of all roles that have a model */
  size_t role_bytes[TREADLE_POOL_ROLES]; /* of each role alone, at its own peak; 0: it has no model here */
  size_t room;                           /* device_memory times gpu_memory_utilization; 0: no limit */
  bool fits;                             /* into the room, all ranks of the pool */
  int64_t kv_blocks;                     /* of the rank with the fewest; 0: the pool does not generate */
} treadle_rl_pool_memory;

/* Foretells it, by shapes alone. `config` is the one of which the pools were made. Nothing is known if it has no model,
 * if roles are in pools where treadle_rl_run does not run them, or if nothing says how many slots there are and one is
 * too few. Local. */
treadle_status treadle_rl_pools_foresee_roles(const treadle_rl_pools *pools, const treadle_train_config *config,
                                              const treadle_rl_options *options, int32_t number,
                                              treadle_rl_pool_memory *memory_p);
/* The same of all roles together: *known_p is is_known, *bytes_p bytes, or 0 if they are not known. Local. */
treadle_status treadle_rl_pools_foresee(const treadle_rl_pools *pools, const treadle_train_config *config,
                                        const treadle_rl_options *options, int32_t number, size_t *bytes_p,
                                        bool *known_p);

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
  /* Where it registers itself while it is created: treadle_meshes_register(meshes, name, rank, dp_rank, collects). */
  treadle_meshes *meshes;
} treadle_worker_place;

/* A method of a class, and how it is called. It makes *out_p from `in`, or leaves it NULL. `in` is there until it
 * returns. What it makes is the crew's afterwards; it may share memory of `in`. Frozen. */
typedef struct treadle_class_method {
  const char *name;
  treadle_status (*function)(void *worker, const treadle_batch *in, treadle_batch **out_p);
  treadle_dispatch_kind dispatch;
  treadle_execute_kind execute;
  const char *mesh;                            /* ND_MESH alone */
  const treadle_dispatch_functions *functions; /* CUSTOM alone */
  bool auto_padding;                           /* as in treadle_dispatch_spec */
  bool blocking;                               /* treadle_workers_call waits for it */
  /* What it makes stays where it is made, however little it is, until the controller takes it. Otherwise it comes with
   * the answer if that is as quick as asking for it. */
  bool rows_stay;
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

/* What this rank has sent and received itself so far. Only the controller makes calls. Frozen. */
typedef struct treadle_crew_books {
  int64_t calls;         /* of a method of one worker each */
  int64_t message_bytes; /* of calls and answers, with the rows in them */
  int64_t row_bytes;     /* of rows, in them and those that it asked other ranks for */
} treadle_crew_books;

/* Makes a crew of the ranks of a group. Group and classes must outlive it; options may be NULL. Refused on all ranks:
 * two classes of one name, two methods of one name in a class. On failure *crew_p is NULL. Collective. */
treadle_status treadle_crew_open(treadle_group *group, const treadle_worker_class *classes, size_t count,
                                 const treadle_crew_options *options, treadle_crew **crew_p);
/* Serves the controller's calls until it ends the crew, and gives the status with which it does. TREADLE_PEER: the
 * controller is lost. TREADLE_STATE: this is the controller. */
treadle_status treadle_crew_serve(treadle_crew *crew);
/* Of the controller: the others stop serving, when they have done what they were called to do. `status` is what the run
 * has come to; the present treadle_error_message() goes with it. Of another rank: what it leaves for, which the
 * controller is told when it closes the crew. */
void treadle_crew_end(treadle_crew *crew, treadle_status status);
/* Destroys the crew and its workers on this rank. If the controller has not ended it before, this ends it with
 * TREADLE_OK. What it still has of futures and treadle_workers must be destroyed all the same: they give TREADLE_STATE.
 * Local. */
void treadle_crew_close(treadle_crew *crew);
void treadle_crew_get_books(const treadle_crew *crew, treadle_crew_books *books_p);

/* Creates workers of a class: number w on rank ranks[w] of the crew [count]. A rank may have workers of several groups.
 * Rank 0 may have some, too: their methods run while the controller waits for a future. Options may be NULL. Waits
 * until all are there. Refused: a rank twice or out of range, a class that the crew does not have. On failure
 * *workers_p is NULL. */
treadle_status treadle_workers_create(treadle_crew *crew, const int32_t *ranks, size_t count, const char *class_name,
                                      const treadle_batch *options, treadle_workers **workers_p);
/* The same on the slots of a pool: worker w on rank first_rank + the number of the pool's slot w. first_rank is that of
 * slot 0 (treadle_rl_pools_info): 1 where the controller is a process of its own, otherwise 0. */
treadle_status treadle_workers_create_in_pool(treadle_crew *crew, const treadle_resource_pool *pool, int32_t first_rank,
                                              const char *class_name, const treadle_batch *options,
                                              treadle_workers **workers_p);
/* Destroys them, once they have done what they were called to do. */
void treadle_workers_destroy(treadle_workers *workers);
/* The number of workers. Else -1. */
int64_t treadle_workers_size(const treadle_workers *workers);
/* TREADLE_PEER: one of them is lost, which the message names. */
treadle_status treadle_workers_alive(const treadle_workers *workers);

/* What a call is given. Batches and futures are one argument together, with the columns of all. */
typedef struct treadle_call_input {
  size_t struct_size;
  const treadle_batch *batch; /* goes with the call, and its meta to all workers; NULL: none */
  /* [list_count] in place of all below: a batch for each worker, which ALL_TO_ALL and DP_COMPUTE take; NULL: no list */
  const treadle_batch *const *list;
  size_t list_count;
  /* [future_count] earlier calls of this crew, which need not have ended, and whose rows go from worker to worker. Each
   * has as many rows as the others and the batch, and their columns are united (treadle_batch_union). */
  treadle_future *const *futures;
  size_t future_count;
  const char *const *columns; /* [column_count] of the futures, where they have them; NULL: all */
  size_t column_count;
  const int64_t *rows; /* [row_count] which of the rows, in this order; NULL: all */
  size_t row_count;
  const treadle_row_range *by_worker; /* which of these each worker gets; NULL: as the method's dispatch has it */
} treadle_call_input;

/* Calls a method on its workers, and waits for the call if the method is blocking. Input may be NULL: no rows. Refused:
 * a method that the class does not have; what treadle_dispatch_create refuses. On failure *future_p is NULL.
 *
 * If futures in the input have not ended, the call is made all the same: its workers wait for what they need, and
 * divide the rows themselves. What depends on the number of rows is refused by treadle_future_wait then. A call that is
 * given one that fails, fails with its message. A method whose dispatch is CUSTOM waits for them here, for its
 * functions may be the controller's alone. */
treadle_status treadle_workers_call(treadle_workers *workers, const char *method, const treadle_call_input *input,
                                    treadle_future **future_p);

/* Waits until all workers have done what was called. The failure of the call is that of the first worker that fails for
 * a reason of its own: "rank 3 (node 0), worker 1 of 4 of 'scorer', score: ...". */
treadle_status treadle_future_wait(treadle_future *future);
/* Is there nothing to wait for any more? It may have failed. Else false. */
bool treadle_future_done(treadle_future *future);
/* Waits, and gives the number of rows that come back, of all workers from which results are collected. */
treadle_status treadle_future_rows(treadle_future *future, int64_t *rows_p);
/* Waits, and takes what comes back (treadle_dispatch_collect): rows of the workers from which results are collected,
 * one's behind those of the one before, without padding, with the meta of all (treadle_batch_concat). names [count]:
 * these columns; NULL: all. Refused: a call whose results are a list. On failure *batch_p is NULL. */
treadle_status treadle_future_take(treadle_future *future, const char *const *names, size_t count,
                                   treadle_batch **batch_p);
/* Waits, and takes what one worker has made. Refused: a worker that did not run the method. */
treadle_status treadle_future_take_of(treadle_future *future, int64_t worker, const char *const *names, size_t count,
                                      treadle_batch **batch_p);
/* The same of each worker from which results are collected: [*count_p] batches, at most as many as workers, which the
 * caller destroys. On failure *count_p is 0. */
treadle_status treadle_future_take_list(treadle_future *future, treadle_batch **batches, size_t *count_p);
/* Waits, whatever the call has come to, and destroys the future and its rows, wherever they are; rows that another call
 * was given, when it has ended. */
void treadle_future_destroy(treadle_future *future);
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

/* ---- Dock: rows as they become ready --------------------------------------------------------------------
 *
 * The controller's book of a step, with which a stage begins while the one before still works: which columns are ready,
 * row by row, and which rows each consumer has taken. It has no values: these stay on the ranks that made them.
 * MindSpeed-RL's transfer dock has both.
 *
 * Local, and pure but for the book itself. One thread at a time. */
typedef struct treadle_dock treadle_dock;

typedef struct treadle_dock_spec {
  size_t struct_size;
  int64_t rows;               /* of a step: prompts times samples of each */
  int64_t group;              /* rows of a prompt, which stand side by side; 0: 1. Divides `rows` */
  const char *const *columns; /* [column_count] names, at least one */
  size_t column_count;
  const char *const *consumers; /* [consumer_count] names, at least one */
  size_t consumer_count;
} treadle_dock_spec;

/* Nothing is ready, and nothing taken. The names are copied. Refused: a group that does not divide the rows; a name
 * that is empty or there twice. On failure *dock_p is NULL. */
treadle_status treadle_dock_create(const treadle_dock_spec *spec, treadle_dock **dock_p);
void treadle_dock_destroy(treadle_dock *dock);
/* The next step: as after its creation. */
void treadle_dock_clear(treadle_dock *dock);

/* These columns [column_count] of these rows [row_count] are ready; those that were stay so. Refused, with nothing
 * changed: a column or a row that the dock does not have. */
treadle_status treadle_dock_put(treadle_dock *dock, const char *const *columns, size_t column_count,
                                const int64_t *rows, size_t row_count);

/* The number of a row that fills up what is taken, and is none. MindSpeed-RL's. */
#define TREADLE_DOCK_PADDING (-2)

typedef struct treadle_dock_request {
  size_t struct_size;
  const char *consumer;
  const char *const *columns; /* [column_count] that a row must have; at least one */
  size_t column_count;
  int64_t count;   /* rows to be taken, all of them or none; 0: as many as there are */
  bool groups;     /* whole groups alone */
  bool in_order;   /* none that stands behind one that this consumer still waits for */
  int64_t dp_size; /* the number of rows given is a multiple of this, at most 65536; 0: any */
  bool pads;       /* fewer rows, but at least one: filled up with TREADLE_DOCK_PADDING */
} treadle_dock_request;

/* Takes rows whose columns are all ready and which the consumer has not taken, in the order of their numbers: rows [the
 * dock's rows, rounded up to dp_size], *count_p of them, 0 if there are too few. Refused: a consumer or a column that
 * the dock does not have; a count that does not divide the dock's rows; with `groups`, a count that is not of whole
 * groups; dp_size that does not divide the count, unless it pads. */
treadle_status treadle_dock_take(treadle_dock *dock, const treadle_dock_request *ask, int64_t *rows,
                                 size_t *count_p);

/* Has the consumer taken every row? NULL dock, or no such consumer: false. */
bool treadle_dock_all_consumed(const treadle_dock *dock, const char *consumer);
/* How many rows have this column? NULL dock, or no such column: 0. */
int64_t treadle_dock_ready(const treadle_dock *dock, const char *column);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

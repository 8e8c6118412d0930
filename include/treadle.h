/* treadle moves a language model's weights between the layout that trains it and the layout that generates with it, on
 * the same devices. This header is the manual. Other headers have what only some programs need:
 *
 *   treadle_attach.h   readers of a rank's infer parameters in other processes
 *   treadle_tools.h    reports on all ranks, conversions, families, generated models, meeting by MPI
 *   treadle_device.h   for authors of devices and of nets
 *   treadle_batch.h    named columns over rows: samples with their tokens, texts and scores
 *   treadle_engine.h   for authors of engines: the tables of what generates and of what trains
 *   treadle_builtin.h  the engines that are built in, tokenizers and chat templates
 *   treadle_loop.h     the worker that trains and generates, supervised training and reinforcement learning
 *   treadle_control.h  for controllers: pools of slots, roles, workers and which rows they get
 *   treadle_testing.h  what a window should hold, and planted faults
 *
 * A program uses the parts in this order:
 *
 *   1. treadle_model_open     the tensors of a model, from a Hugging Face directory or a config.json
 *   2. treadle_layout_create  which part of each tensor a rank holds, and where: "megatron:tp=4", "vllm:tp=2"
 *   3. treadle_plan_create    the exact copies of one rank, in waves; needs no weights, and can be printed
 *   4. treadle_group_*        the ranks: one process, or several that meet by a name, a store or MPI
 *   5. treadle_switch_*       the memory of a rank, and the state machine that runs the plan
 *
 * Words.
 *
 *   canonical tensor  a tensor by Hugging Face's name and shape, without padding
 *   storage tensor    a tensor as a layout stores it on one rank: a name, a shape and a place in the window
 *   window            a range of addresses with one class of bytes of a rank, such as its training parameters
 *   page              the unit in which windows take and share memory; 2 MiB by default
 *   wave              a part of a plan; waves bound how many new bytes there are at once
 *   cap               bytes that a switch may hold beyond the larger of the two windows
 *   fill              padding of a storage tensor, which no canonical tensor has
 *   twin              a copy of a window in host memory
 *   arrow             a change of mode, such as TRAIN -> INFER
 *   node              one machine
 *
 * Conventions. Functions return treadle_status: 0 is success, every failure is negative. After a failure,
 * treadle_error_message() says what is wrong with which tensor, rank or number, in the same thread. Outputs come last
 * and end in _p. *_destroy and *_close free what *_create and *_open made; they accept NULL. If a function that makes
 * an object fails, its output is NULL. Options may be NULL for all defaults, unless a comment says otherwise. Offsets
 * and counts are in elements, sizes in bytes, unless the name says otherwise. [n] gives the length of an array. The
 * library never exits, never prints and never reads the environment.
 *
 * "Collective": every rank of the group calls the function, and all ranks call such functions in one order. All other
 * functions are local.
 *
 * The library checks arguments before it does anything. These are wrong:
 *
 *   NULL, except for options and for what may be NULL by its comment
 *   a rank or a storage tensor that does not exist
 *   an enum or a number out of its range: a size above 2^60, a time limit that is not a number
 *   a struct_size that is not a multiple of 8, or above 4,096
 *
 * If an argument is wrong, a function with a status returns TREADLE_REFUSED. "Refused:" at a declaration lists what
 * else gives that status. A function without a status returns what its declaration says ("else ..."). If it says
 * nothing, that is -1 as a signed number, 0 as a size, NULL as a pointer or text, or false. A function without a result
 * does nothing, and fills its output with zeros. treadle_error_message() has the reason in each case. The library
 * cannot check for a pointer to a freed object, a text without an end, or an array shorter than its count.
 *
 * While a model with weights is open, the library handles SIGBUS: if a mapped file becomes shorter, the call fails and
 * names the file. The handler treats only the library's own mappings. It passes everything else to the handler that was
 * there before. Closing the last model restores that handler. If a program sets a handler in between, that handler must
 * also pass on to the one that it found.
 *
 * For each object: what must outlive it, how long its texts live, and which threads may use it:
 *
 *   model     Needs nothing. Its texts live as long as it does. It never changes: any number of threads may use it.
 *   layout    Needs its model. Its texts live as long as it does; names of canonical tensors live as long as the model.
 *             It never changes.
 *   plan      Needs its two layouts. It never changes.
 *   group     Needs nothing. One thread at a time; any thread may ask for rank and size. From treadle_switch_start
 *             until treadle_switch_wait the switch uses it.
 *   switch    Needs its group, its two layouts, the caller's registered memory and what hooks point to. One thread at a
 *             time changes it: while an arrow runs, other changes return TREADLE_STATE. Any thread may at any time
 *             cancel an arrow, test a started one, and ask for mode, version, stats, windows, bounds and the plan. Any
 *             thread may use the windows that the mode has.
 *
 * One thread frees an object, when no other thread uses it. Functions read options only during the call, except
 * callbacks and their contexts. */
#ifndef TREADLE_H
#define TREADLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* the shared library exports what is declared here, and nothing else */

#define TREADLE_VERSION        "0.3.0"
#define TREADLE_VERSION_NUMBER 300 /* major * 10000 + minor * 100 + patch */

/* The version of the library that runs, which may be newer than this header: as TREADLE_VERSION_NUMBER, and as text.
 * The text is never NULL and lives as long as the program. Any thread. */
int treadle_version_number(void);
const char *treadle_version_text(void);

/* Structs that start with struct_size can grow in later versions. The program writes the size of its struct there. This
 * macro does so, and sets all other fields to zero:
 *
 *   treadle_plan_options options = TREADLE_INIT(treadle_plan_options);
 *
 * In C, `{.struct_size = sizeof options, .page_bytes = 4096}` also works.
 *
 *   If the library is newer than the program, it takes missing fields as zero, and does not write them.
 *   If the library is older, it refuses options and hooks with an unknown field that is not zero. In outputs it fills
 *   unknown fields with zeros.
 *
 * All other structs are frozen: they never change, since they are elements of arrays or passed by value. */
#ifdef __cplusplus
#define TREADLE_INIT(type)                                                                                             \
  ([] {                                                                                                                \
    type init = type();                                                                                                \
    init.struct_size = sizeof(type);                                                                                   \
    return init;                                                                                                       \
  }())
#else
#define TREADLE_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

/* ---- Statuses ---------------------------------------------------------------------------------- */

typedef enum treadle_status {
  TREADLE_OK = 0,
  TREADLE_REFUSED = -1,   /* an input breaks a rule: a file, a config, a layout text, an option */
  TREADLE_NO_MEMORY = -2, /* memory is out, or a pool would exceed its budget */
  TREADLE_SYSTEM = -3,    /* a system call failed */
  TREADLE_PEER = -4,      /* another rank failed, died or runs something else */
  TREADLE_TIMEOUT = -5,   /* a wait took longer than its limit */
  TREADLE_DIFFERENT = -6, /* a check found a difference */
  TREADLE_STATE = -7,     /* a call in the wrong mode */
  TREADLE_CANCELLED = -8  /* a watcher, or treadle_switch_cancel, ended the work */
} treadle_status;

/* A status in words: "refused", "no memory", ..., "unknown status". Never NULL. */
const char *treadle_status_text(treadle_status status);

/* The message of the last failure in this thread, or "" before the first. It lives until the next failure in this
 * thread. One line of at most 1,023 bytes in UTF-8. In quoted names, control characters and bytes that are not UTF-8
 * become \xNN. */
const char *treadle_error_message(void);

/* For functions that the caller gives to the library (a hook, a store, a watcher): sets this thread's message, which
 * says why the function fails. Returns the status: `return treadle_error_set(TREADLE_SYSTEM, "disk full");`. Any
 * thread. */
treadle_status treadle_error_set(treadle_status status, const char *message);

/* A function that watches long work. The library calls it now and then, in the thread that called the library. `doing`
 * names the work ("plan of equal ranks") and lives as long as the program. `done` of `total` is how far it is. If the
 * function returns false, the work ends with TREADLE_CANCELLED. It must not use the objects that the work is on. */
typedef bool (*treadle_watcher)(void *context, const char *doing, int64_t done, int64_t total);

/* Sets who watches the waits of the calling thread: for other ranks, at meetings, in arrows, for a version. The library
 * calls `watch` about every 20 ms while it waits in this thread, and between the copies of an arrow. `done` and `total`
 * are 0. If it returns false, the wait ends: the function returns TREADLE_CANCELLED, and ranks that wait for this one
 * get TREADLE_PEER. This lets programs that handle signals between two calls, such as Python, handle them during a
 * call. NULL: nobody watches, as at first. Any thread. */
void treadle_thread_watch(treadle_watcher watch, void *context);

/* ---- Element types ----------------------------------------------------------------------------- */

typedef enum treadle_dtype {
  TREADLE_DTYPE_NONE = 0, /* not given: the tensor's own type */
  TREADLE_FP32,
  TREADLE_BF16,
  TREADLE_FP16,
  TREADLE_FP8_E4M3, /* 1 sign, 4 exponent, 3 fraction bits; up to 448, no infinity */
  TREADLE_INT32     /* tables of integers, which no layout casts */
} treadle_dtype;

/* ---- The model: canonical tensors -------------------------------------------------------------- */

typedef struct treadle_model treadle_model;

/* Where the values of a model's weights come from. Made-up values are hashes of tensor and canonical index. Nothing is
 * made up unasked. */
typedef enum treadle_weights {
  TREADLE_WEIGHTS_NONE = 0, /* nowhere: a model to plan with; in options: the path decides (treadle_model_open) */
  TREADLE_WEIGHTS_FILES,    /* model.safetensors, or shards with an index */
  TREADLE_WEIGHTS_RANDOM    /* made up */
} treadle_weights;

/* What follows the last norm of a model. */
typedef enum treadle_head {
  TREADLE_HEAD_LM = 0, /* logits of the vocabulary, by lm_head.weight or what it is tied to */
  /* One number for each token, by score.weight [1, hidden] and, where the files have it, score.bias [1]: a critic, or a
   * reward model. Files may have lm_head.weight beside it, which is not loaded. */
  TREADLE_HEAD_SCORE
} treadle_head;

typedef struct treadle_model_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  /* If not 0: opens a smaller model of the same structure, with made-up weights and at most this number of elements. It
   * has fewer layers, experts and heads, a smaller vocabulary and narrower matrices. Use it to try layouts of models
   * that are too large for the machine. */
  int64_t scale_down;
  treadle_weights weights; /* FILES: refused without files. RANDOM: made up, even with files. NONE: the path decides */
  treadle_head head;
  /* With TREADLE_HEAD_SCORE: what files without score.weight mean. true: it starts with zeros, as that of a critic.
   * false: they are refused, as those of a reward model. */
  bool score_zeros;
} treadle_model_options;

/* Opens a model: reads config.json, the family file that covers its model_type, and the index of its weights. `path` is
 * one of these:
 *
 *   a Hugging Face directory   config.json with model.safetensors, or with shards and model.safetensors.index.json
 *   a directory with config    opens too, unless the options ask for files: layouts and plans need no values. Calls
 *   alone                      that need values are refused (treadle_model_need_weights)
 *   the file config.json       has made-up weights
 *
 * If there are files of weights, their names, shapes and dtypes are compared with the family. Refused, by name: a
 * tensor that is missing or left over; with TREADLE_HEAD_SCORE, a family without such a head, and several labels. */
treadle_status treadle_model_open(const char *path, const treadle_model_options *options, treadle_model **model_p);
void treadle_model_close(treadle_model *model);

typedef struct treadle_tensor_info {
  size_t struct_size;
  const char *name;    /* Hugging Face's name; both texts live as long as the model */
  const char *same_as; /* a tied tensor: the canonical tensor that it is a copy of; NULL: not tied */
  int ndim;
  int64_t shape[4];
  int64_t elems;
  treadle_dtype dtype;
  int32_t layer; /* decoder layer; -1 outside of them */
} treadle_tensor_info;

/* The number of tensor names in the model. Each expert has its own. Tied tensors (same_as) come last. Else -1. */
int32_t treadle_model_tensor_count(const treadle_model *model);
/* Facts about tensor number `tensor`, from 0. Refused: a number out of range. */
treadle_status treadle_model_tensor(const treadle_model *model, int32_t tensor, treadle_tensor_info *info_p);
const char *treadle_model_family(const treadle_model *model);      /* its name; lives as long as the model; else NULL */
int64_t treadle_model_elems(const treadle_model *model);           /* each canonical element counts once; else -1 */
int64_t treadle_model_bytes(const treadle_model *model);           /* bytes of these elements; else -1 */
bool treadle_model_has_weights(const treadle_model *model);        /* true: opened with a checkpoint; else false */
treadle_weights treadle_model_weights(const treadle_model *model); /* where its values come from; else NONE */
/* Checks that the model has values, from files or made up. Refused, if it has none: the message says what its folder
 * has instead, and what to do. */
treadle_status treadle_model_need_weights(const treadle_model *model);

/* ---- Layouts: what each rank holds ------------------------------------------------------------- */

typedef struct treadle_layout treadle_layout;

/* Which rank takes which coordinate of a layout's mesh, the grid of ranks with named dimensions such as tp and dp.
 *
 *   TREADLE_CONTIGUOUS  Rank r takes coordinate r, as vLLM expects.
 *   TREADLE_STRIDED     Let f = tp_train / tp, which must be whole. Inside each block of tp_train ranks, tp group j is
 *                       ranks j, j+f, j+2f, ... (MindSpeed-RL 2.0, HybridFlow).
 *   TREADLE_BEST        Of contiguous and all strides, the one with the fewest bytes between nodes. Among equals, the
 *                       one in which the rank that pulls most pulls least; then the one with the smallest mean. */
typedef enum treadle_rank_map { TREADLE_CONTIGUOUS = 0, TREADLE_STRIDED, TREADLE_BEST } treadle_rank_map;

typedef struct treadle_layout_options {
  size_t struct_size;
  treadle_rank_map rank_map;
  /* The training layout, of the same model and number of ranks. It gives tp_train and, for TREADLE_BEST, the bytes that
   * ranks have already. All rank maps except TREADLE_CONTIGUOUS need it. Used only during the call. */
  const treadle_layout *train;
  /* [ranks] for TREADLE_BEST: the node of each rank, any numbers, equal for ranks of one node. NULL: all ranks are on
   * one node. Used only during the call. */
  const int32_t *node_of;
} treadle_layout_options;

/* Makes the layout `text` of a model on `ranks` ranks. docs/layouts.md describes the text:
 *
 *   hf | megatron:tp=4,pp=2,vpp=2 | fsdp:dp=8 | fsdp2:dp=4,tp=2 | zero3:dp=8 | distopt:tp=2 |
 *   vllm:tp=2 | sglang:tp=4,attn_dp=2 | pieces:@file | placements:@file
 *
 * Refused, with the rule and the numbers: a layout that cannot exist. The model must outlive the layout. A layout never
 * changes: any number of threads may use it and make plans from it. */
treadle_status treadle_layout_create(const treadle_model *model, const char *text, int64_t ranks,
                                     const treadle_layout_options *options, treadle_layout **layout_p);

/* A piece of a storage tensor of one rank, for layouts that no rule describes. The box `start`, `size` [ndim of the
 * tensor] lies in the shape of the Hugging Face tensor. `offset` and `stride` are in elements of the storage tensor,
 * whose row-major shape is `storage_shape` [storage_ndim]. Pieces with one rank and one name make up one storage
 * tensor. Elements that no piece covers are zeros. Every number is checked against the tensor and the storage: ranks
 * from 0, 1 to 4 dimensions, sizes and strides from 1. Frozen. */
typedef struct treadle_explicit_piece {
  int64_t rank;
  const char *storage; /* name of the storage tensor on that rank */
  int storage_ndim;
  int64_t storage_shape[4];
  treadle_dtype dtype; /* TREADLE_DTYPE_NONE: the tensor's type */
  const char *tensor;  /* Hugging Face name */
  int64_t start[4], size[4];
  int64_t offset, stride[4];
} treadle_explicit_piece;

/* Makes a layout from `count` pieces of all ranks, and copies them. Refused: pieces of a rank that overlap in memory;
 * elements of the model that no rank has. The model must outlive the layout. */
treadle_status treadle_layout_from_pieces(const treadle_model *model, int64_t ranks,
                                          const treadle_explicit_piece *pieces, size_t count,
                                          treadle_layout **layout_p);

/* How one dimension of a device mesh divides a tensor: torch's DTensor placements. `dim` is a dimension of the tensor,
 * from 0, in the shape that its name has. Mesh dimensions cut one after the other, from the first to the last. Each
 * cuts what the dimensions before it left. TREADLE_FULLY_SHARD is the exception.
 *
 *   TREADLE_REPLICATE      Does not divide.
 *   TREADLE_SHARD          Shard(dim), as torch.chunk: parts of ceil(n / ranks), the later ones smaller or empty.
 *   TREADLE_STRIDED_SHARD  _StridedShard(dim, split_factor=split): `split` chunks, each divided over all ranks.
 *   TREADLE_FULLY_SHARD    Cuts like TREADLE_SHARD, but after the mesh dimensions to its right. fully_shard (FSDP2)
 *                          does this where tensor parallel cuts the same dimension. torch prints such a parameter as
 *                          [_StridedShard(0, tp), Shard(0)]. If sizes do not divide evenly, distribute_tensor cuts that
 *                          text in another way: docs/layouts.md. A shard without elements has no rows, whatever its
 *                          other dimensions.
 *   TREADLE_PARTIAL        Refused: a sum that was not reduced yet has no value that could move. */
typedef enum treadle_placement_type {
  TREADLE_REPLICATE = 0,
  TREADLE_SHARD,
  TREADLE_STRIDED_SHARD,
  TREADLE_FULLY_SHARD,
  TREADLE_PARTIAL
} treadle_placement_type;

/* Frozen. */
typedef struct treadle_placement {
  treadle_placement_type type;
  int32_t dim;
  int64_t split; /* for TREADLE_STRIDED_SHARD alone: at least 1 */
} treadle_placement;

/* torch's DeviceMesh: `size` [ndim] ranks in 1 to 8 dimensions. `ranks` [product of the sizes], row-major, gives the
 * rank at each coordinate. If it is NULL, the rank is first + the sum of coordinate * stride. If all strides are 0 too,
 * they are those of a row-major grid. If ranks are at even distances, a mesh costs no table, however it was given. A
 * mesh may have only some of the ranks, in any order, each at most once. Frozen. */
typedef struct treadle_placed_mesh {
  int32_t ndim;
  int64_t size[8];
  const int64_t *ranks;
  int64_t first, stride[8];
} treadle_placed_mesh;

/* A tensor on the ranks of a mesh. Each rank holds the part that the placements [ndim of the mesh] give it, row-major
 * and without gaps. Ranks outside of the mesh do not have the storage tensor. `tensor` is a Hugging Face name, of the
 * files (each expert has one) or of the module (transformers 5: stacked experts). If both have the name with different
 * shapes, `shape` decides; without a shape it is the one of the files. If shapes are equal, it is the module's.
 * Frozen. */
typedef struct treadle_placed_tensor {
  const char *storage; /* its name on the ranks; NULL: `tensor` */
  const char *tensor;
  treadle_dtype dtype; /* TREADLE_DTYPE_NONE: the tensor's type */
  int32_t mesh;        /* number in the list of meshes; -1: every rank has the whole tensor */
  int32_t ndim;        /* 0: the shape is not given */
  int64_t shape[4];    /* of the whole tensor; refused if the tensor has another shape */
  treadle_placement placements[8];
} treadle_placed_tensor;

/* Makes a layout from meshes and placements (DTensors): one description for all ranks, which is copied. Its cost does
 * not grow with the number of ranks. A window holds the storage tensors of its rank in the order of `tensors`, with
 * room for the largest shard of each. treadle_layout_storage gives the size of the rank's own shard. A tied tensor may
 * be given under both names or under one. Blocks of fp8 models are held as values. Refused: a name that the model does
 * not have (the message has the nearest); a tensor that no rank has; a name that is twice on a rank; Partial; a mesh
 * with a rank that does not exist or is there twice. The model must outlive the layout. */
treadle_status treadle_layout_from_placements(const treadle_model *model, int64_t ranks,
                                              const treadle_placed_mesh *meshes, size_t mesh_count,
                                              const treadle_placed_tensor *tensors, size_t tensor_count,
                                              treadle_layout **layout_p);

/* "contiguous", "strided" or, after TREADLE_BEST, the chosen map ("strided:2"). Lives as long as the layout. Else
 * NULL. */
const char *treadle_layout_rank_map(const treadle_layout *layout);

void treadle_layout_destroy(treadle_layout *layout);
/* The layout's text in its normal form; parsing it gives an equal layout. Lives as long as the layout. Else NULL. */
const char *treadle_layout_text(const treadle_layout *layout);
/* The number of ranks of the group, with those that hold no part of the layout. Else -1. */
int64_t treadle_layout_ranks(const treadle_layout *layout);
/* Does the rank hold a part of the layout? All ranks do, or those of on= in its text. The others have no storage
 * tensors, and a window of 0 bytes. Else false. */
bool treadle_layout_holds(const treadle_layout *layout, int64_t rank);
/* True for layouts of training engines and files (hf, megatron, fsdp, pieces, ...), false for inference engines. Else
 * false. */
bool treadle_layout_is_train(const treadle_layout *layout);
/* Bytes of a rank's window, not rounded up to pages. Else, also for a rank out of range, 0. */
size_t treadle_layout_window_bytes(const treadle_layout *layout, int64_t rank);

/* A storage tensor of a rank. Numbers of storage tensors follow the order in the window. */
typedef struct treadle_storage_info {
  size_t struct_size;
  char name[256]; /* the engine's own name on that rank */
  int32_t chunk;  /* virtual pipeline stage, else 0 */
  int ndim;
  int64_t shape[4];
  treadle_dtype dtype;
  bool derived;               /* computed after loading, not a parameter */
  size_t offset_bytes, bytes; /* in the window */
} treadle_storage_info;

/* The number of storage tensors of a rank. Else, also for a rank out of range, -1. */
int32_t treadle_layout_storage_count(const treadle_layout *layout, int64_t rank);
/* Facts about storage tensor number `storage` of a rank, from 0. Refused: a rank or a number out of range. */
treadle_status treadle_layout_storage(const treadle_layout *layout, int64_t rank, int32_t storage,
                                      treadle_storage_info *info_p);
/* The number of the storage tensor with this name on that rank, the first one if several virtual stages have the name.
 * Else, also for a name that the rank does not have, -1. */
int32_t treadle_layout_find(const treadle_layout *layout, int64_t rank, const char *name);

/* Values of padding, in treadle_run.tensor in place of a tensor's number. */
enum { TREADLE_FILL_ZEROS = -1, TREADLE_FILL_MINUS_INFINITY = -2 };

/* A maximal run of a storage tensor's row-major elements. For i < count, element local_start + i of the storage tensor
 * is element start + i * stride of the Hugging Face tensor `tensor`, plus `add`. If `tensor` is below 0, the run is
 * padding: TREADLE_FILL_ZEROS or TREADLE_FILL_MINUS_INFINITY. Frozen. */
typedef struct treadle_run {
  int64_t local_start;
  int32_t tensor;
  int64_t start, stride, count;
  int8_t add; /* the stored value is the tensor's value plus this */
} treadle_run;

/* How a layout cuts the model's largest tensor; the experts of a layer count as one stacked tensor. */
typedef struct treadle_cut_info {
  size_t struct_size;
  /* Hugging Face's name, with * for experts; lives as long as the model. NULL: the model has no tensor. */
  const char *tensor;
  int ndim;
  int64_t shape[4];
  size_t bytes;
  int64_t parts;
  int64_t part_shape[4]; /* of the largest part */
  size_t part_bytes;
  int64_t holders_min, holders_max; /* the number of ranks that have a part: the fewest and the most of any part */
} treadle_cut_info;

/* Fills *info_p for this layout. */
treadle_status treadle_layout_largest_cut(const treadle_layout *layout, treadle_cut_info *info_p);

/* The runs [*count_p] of one storage tensor, in order; each local element is in one run. The caller frees *runs_p with
 * free(); on failure it is NULL. */
treadle_status treadle_layout_runs(const treadle_layout *layout, int64_t rank, int32_t storage, treadle_run **runs_p,
                                   size_t *count_p);

/* ---- Plans: what one rank copies --------------------------------------------------------------- */

typedef struct treadle_plan treadle_plan;

/* Which memory windows lie in. */
typedef enum treadle_memory_kind { TREADLE_MEMORY_HOST = 0, TREADLE_MEMORY_CUDA } treadle_memory_kind;

typedef struct treadle_plan_options {
  size_t struct_size;
  size_t page_bytes; /* a power of two from 4 KiB; 0: 2 MiB (CUDA: 4 MiB) */
  /* Memory of a switch beyond max(train, infer); 0: the larger of 256 MiB (CUDA: 1 GiB) and cap_min. */
  size_t cap_bytes;
  /* 0: chosen from the cap, for this rank alone. Ranks that switch together need equal numbers, on which
   * treadle_switch_create makes them agree. */
  int32_t waves;
  /* Whole pages that hold the same bytes in both windows are shared, not copied. treadle_plan_storage then says where
   * storage tensors of the to-window lie. */
  bool alias;
  bool keep_params; /* the from-window stays as it is, and the way back has nothing to do */
  /* [ranks] numbers that are equal for ranks of one node, which need not be neighbours; NULL: all are on one node. Each
   * byte then enters a node once: one of the ranks that need it pulls it, and the others read it from that rank. Ranks
   * that switch together give equal arrays. */
  const int32_t *node_of;
  treadle_memory_kind memory; /* of the windows: gives the page and the cap that are 0 */
} treadle_plan_options;

/* Makes the plan of `rank` from one layout to another, and the way back. It is pure: equal inputs give equal plans
 * everywhere, and it makes no other rank's plan. Both layouts have one model and one number of ranks, and must outlive
 * the plan. */
treadle_status treadle_plan_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                   const treadle_plan_options *options, treadle_plan **plan_p);
void treadle_plan_destroy(treadle_plan *plan);

/* Figures are of the direction `to`, unless their name starts with back. */
typedef struct treadle_plan_info {
  size_t struct_size;
  size_t from_bytes, to_bytes; /* windows, rounded up to pages, without padding_bytes */
  size_t moved_bytes;          /* pulled from other ranks */
  size_t lower_bound_bytes;    /* destination bytes that the rank does not already hold */
  size_t resident_bytes;       /* copied from this rank's own window, or aliased */
  size_t back_moved_bytes, back_lower_bound_bytes;
  int32_t waves;
  size_t page_bytes;
  size_t cap_bytes;        /* as given or chosen */
  size_t cap_min_bytes;    /* the smallest cap with which this rank can switch */
  size_t peak_bytes;       /* device bytes at the fullest moment of both directions */
  size_t peak_bound_bytes; /* max(from, to) + cap; with keep_params from + to + cap; without padding_bytes */
  size_t padding_bytes;    /* what alias adds to the to-window */
  size_t infer_bytes;      /* of the to-window: copied_bytes + aliased_bytes + fills */
  size_t copied_bytes;     /* data that is written */
  size_t aliased_bytes;    /* what lies on pages of both windows */
  uint64_t digest;         /* of the inputs; equal on all ranks that run one plan */
  bool lossless;           /* the way back gives the same bits */
  size_t node_moved_bytes; /* the part of moved_bytes that comes from other nodes */
  size_t relayed_bytes;    /* the part that comes from ranks of this node that have it from other nodes */
  size_t back_node_moved_bytes;
} treadle_plan_info;

void treadle_plan_get_info(const treadle_plan *plan, treadle_plan_info *info_p); /* else zeros */
/* Facts about storage tensor number `storage` of this rank's to-window, as planned. Refused: a number out of range. */
treadle_status treadle_plan_storage(const treadle_plan *plan, int32_t storage, treadle_storage_info *info_p);
/* The number of the storage tensor with this name in this rank's to-window, as in treadle_layout_find. Else -1. */
int32_t treadle_plan_find(const treadle_plan *plan, const char *name);
/* Is page `page` of the to-window shared with the from-window (alias)? Else, also for a page out of range, false. */
bool treadle_plan_shares(const treadle_plan *plan, int64_t page);
/* Bytes that this rank pulls from each rank, direction `to`: bytes [ranks of the layout]. Not written without a
 * plan. */
void treadle_plan_inbound(const treadle_plan *plan, size_t *bytes);
/* Writes the plan as text to `file`, which stays open: a line for each copy, wave by wave. */
treadle_status treadle_plan_print(const treadle_plan *plan, FILE *file);

/* ---- Groups: the ranks that switch together -----------------------------------------------------
 *
 * A time limit is for a whole call, however many ranks it waits for, and counts from the start of the call. A call that
 * gives up returns at most a tenth of a second after its limit, even when other processes keep the processor busy. A
 * limit is above 0, finite and at most 2^30 seconds; anything else is refused. */

typedef struct treadle_group treadle_group;

/* A group of one rank, this process. */
treadle_status treadle_group_self(treadle_group **group_p);

/* A group of 1 to 1024 processes of one machine that agree on a name. The name has letters and digits, and is unique on
 * the machine while it is used. Rank 0 opens the name, the others join. Waits at most timeout_seconds, which is also
 * the limit of treadle_group_barrier and treadle_group_gather. If a rank has found rank 0 and its time runs out, the
 * meeting fails at once for all ranks. Collective. */
treadle_status treadle_group_open(const char *name, int rank, int size, double timeout_seconds,
                                  treadle_group **group_p);

/* A place where ranks leave bytes under keys for each other: torch.distributed's store, a database, a folder. To fail,
 * its functions return a status, with a message from treadle_error_set. */
typedef struct treadle_store {
  size_t struct_size;
  void *context;
  /* Keeps `value` [bytes] under a key, and replaces what was there. */
  treadle_status (*set)(void *context, const char *key, const void *value, size_t bytes);
  /* Waits until the key is there, at most `seconds`. TREADLE_TIMEOUT: it did not come. With 0 seconds it only looks; a
   * store that cannot look returns TREADLE_TIMEOUT, too. Gives at most `capacity` bytes of the value, its full size in
   * *bytes_p. */
  treadle_status (*get)(void *context, const char *key, double seconds, void *value, size_t capacity, size_t *bytes_p);
  /* A part of all keys, of 1 to 200 bytes; NULL: "0". Groups that meet at the same time need different ones. */
  const char *job;
} treadle_store;

/* Options of a store that the ranks of a job make themselves. Rank 0 serves it at an address of its machine, in a
 * thread of its own. The others ask it over TCP. Nothing in it is secret: whoever reaches the address and knows the
 * job's name can take part. */
typedef struct treadle_store_options {
  size_t struct_size;
  /* Of rank 0's machine, which listens there and nowhere else: "10.0.0.1:7000", "[fe80::1%eth0]:7000", "name:7000". */
  const char *address;
  const char *job;        /* 1 to 200 bytes; a rank that comes with another name is refused */
  int rank, ranks;        /* 1 to 1024 ranks */
  double timeout_seconds; /* until all ranks are there; 0: 60 */
} treadle_store_options;

/* Opens the store, and waits until all ranks have called this, in any order. Options must not be NULL. Ranks other than
 * 0 connect again and again. Others that connect to the address do not delay the ranks. The caller sets
 * store_p->struct_size; afterwards *store_p can be given to treadle_group_store. Keys have 1 to 250 bytes and values at
 * most 1 MiB, all together at most 256 MiB. One thread at a time may use the store. Looking up a name takes as long as
 * the system's resolver does.
 *
 *   TREADLE_REFUSED  On both sides: a rank that comes twice, another number of ranks, another job, another version of
 *                    treadle's messages. On rank 0: an address of another machine, a port that is in use.
 *   TREADLE_TIMEOUT  A rank did not come. Rank 0 names the missing ranks, and tells the others.
 *   TREADLE_PEER     A rank came and left.
 *
 * On failure *store_p has no functions. Collective. */
treadle_status treadle_store_open(const treadle_store_options *options, treadle_store *store_p);
/* Closes the store. Rank 0 first waits until the others have closed theirs, so that they get what they ask for. It
 * waits at most until timeout_seconds after the start of treadle_store_open, or for a second if that is later. A store
 * that does not come from treadle_store_open stays as it is. */
void treadle_store_close(treadle_store *store);

/* A group of processes that meet by a store, which the group does not use afterwards. Leftovers of an older job under
 * the same keys do no harm. Ranks may be on several nodes. Then the first rank of each node connects to the others, at
 * the addresses by which they reached the store. A switch moves bytes between nodes by a net (treadle_net_ops). The
 * built-in engines need all ranks on one node.
 *
 * node: the node of this rank, any number from 0, equal for ranks of one node. Ranks with equal numbers must be in one
 * kernel and in its namespaces. -1 on all ranks: treadle finds the node by what the kernel says of itself (boot id,
 * network and process namespace). Refused on all ranks, with the ranks at fault: different sizes, different versions,
 * and numbers from some ranks but not from others. Otherwise like treadle_group_open. Collective. */
treadle_status treadle_group_store(const treadle_store *store, int rank, int size, int node, double timeout_seconds,
                                   treadle_group **group_p);

/* Where a process is. Ranks give it to each other byte for byte. Frozen. */
typedef struct treadle_node_address {
  uint8_t node[32]; /* equal for processes of one node: boot id, network and process namespace */
  /* For treadle_store_open: an address of this node for others, with a port that is free now, "10.0.0.1:40123"; or
   * "". */
  char address[128];
  bool outside; /* the address is not that of the loopback alone */
} treadle_node_address;

/* Says where this process is. The address is the one from which this machine would send to a far one (that of its
 * default route). If nothing leads far away, it is the first address of an interface that leads outside, else that of
 * the loopback. IPv4 comes before IPv6. The call sends nothing and leaves nothing open, so another process may take the
 * port before it is used. */
treadle_status treadle_machine_address(treadle_node_address *address_p);

/* A group of the ranks of an MPI communicator. It is in a library of its own: link with -ltreadle_mpi, too. comm points
 * to an MPI_Comm; NULL: MPI_COMM_WORLD. MPI must be initialised. This call uses MPI so that the ranks meet; treadle
 * never uses it again. Collective.
 *
 * If ranks are on several nodes (treadle_group_store), they go on to meet by a store, which rank 0 serves until all
 * have met. It listens only at the address by which its machine reaches others, at a free port. Refused, if its machine
 * has no such address: meet by treadle_store_open with an address instead.
 *
 * timeout_seconds bounds all waits after MPI's part, and those of treadle_group_barrier and treadle_group_gather. MPI's
 * own calls have no limit: MPI_Init before this call, and MPI_Allreduce and MPI_Bcast in it, wait for a missing rank
 * until the launcher ends the job. If that matters, use a launcher with a limit (mpirun --timeout), or
 * treadle_group_open. If a rank's arguments are refused, the others learn it through MPI and fail, too. */
treadle_status treadle_group_mpi(const void *comm, double timeout_seconds, treadle_group **group_p);

/* Divides a group into new ones, as MPI_Comm_split does: ranks that give the same colour, from 0, are together in one,
 * in the order of their keys, and of equal keys in that of their ranks. A rank of colour -1 gets none: *part_p is NULL.
 * Parts have the time limit and the net of the group. They owe it nothing else, and either may be closed first. If one
 * part cannot be made, none is. Collective. */
treadle_status treadle_group_split(treadle_group *group, int colour, int key, treadle_group **part_p);

int treadle_group_rank(const treadle_group *group); /* else -1 */
int treadle_group_size(const treadle_group *group); /* else -1 */
/* The node of a rank. Nodes are numbered from 0, in the order of their first ranks. Else -1. */
int treadle_group_node(const treadle_group *group, int rank);
/* Waits until all ranks have called it. TREADLE_TIMEOUT: a rank did not come. TREADLE_PEER: a rank died or failed.
 * Collective. */
treadle_status treadle_group_barrier(treadle_group *group);
/* Gives `mine` [bytes], at most 4096 bytes and equally many on all ranks, to all ranks. It gets those of all ranks in
 * rank order: all [ranks * bytes]. A refused call does not count, so the other ranks wait until their limit. Fails as
 * treadle_group_barrier does. Collective. */
treadle_status treadle_group_gather(treadle_group *group, const void *mine, size_t bytes, void *all);
/* Says that this rank cannot make the call that the others make now, since what it would give is not good. It is for
 * calls that begin with an agreement: those of trainers, generators and actors, and treadle_batch_gather. On all ranks
 * the call fails with this status, which is not TREADLE_OK, and this message, and the group goes on. Gives that status.
 * Collective with that call. */
treadle_status treadle_group_refuse(treadle_group *group, treadle_status status, const char *message);
/* A way for messages between nodes, as a table of functions: treadle_device.h says how to write one. */
typedef struct treadle_net_ops treadle_net_ops;

/* Makes switches of the group, and large calls of a loop, use this net between nodes, in place of "tcp". Each opens one
 * of its own. Call it with the same net on all ranks, before the group's first switch is made. `context` becomes
 * treadle_net_options.context when the net is opened. After a failed attempt the net is closed. It is opened again for
 * the next attempt, and may refuse that. The thread that runs an arrow or a call uses the functions, one at a time,
 * also while the switch is destroyed. *ops and all that it needs must stay until the group is closed. Refused: a table
 * without a name or one of the functions, with most_parts below 1, or without TREADLE_NET_HOST. Local. */
treadle_status treadle_group_set_net(treadle_group *group, const treadle_net_ops *ops, void *context);
/* Does what treadle_group_set_net does, with a built-in net: "tcp" (sockets, the default) or "ucx" (for InfiniBand).
 * Refused: another name, with the list of names; "ucx" in a library that was built without it. Whether this machine has
 * UCX is checked when a switch is made. Local. */
treadle_status treadle_group_choose_net(treadle_group *group, const char *name);

void treadle_group_close(treadle_group *group); /* local; ranks that still wait see that this one left */

/* ---- The switch --------------------------------------------------------------------------------- */

/* A switch owns a pool of device pages, and windows over them, one for each class of bytes below. All windows are
 * mapped when it is made and keep their addresses. If a mode does not hold a class, the contents of its window are
 * undefined. A training engine
 *
 *   1. makes the switch, in mode TRAIN, with windows of zeros, and gives the sizes of gradients and optimizer state.
 *      It fills the windows (treadle_switch_filled), or registers its own memory instead (treadle_switch_register);
 *   2. trains in the windows, in mode TRAIN;
 *   3. calls treadle_switch_to_infer; then an inference engine reads the infer window and writes the KV window;
 *   4. calls treadle_switch_to_train and goes on at 2. If it computes log-probabilities, it calls
 *      treadle_switch_to_forward before.
 *
 * What happens to each class on the way to INFER and on the way back:
 *
 *   params      offload_train_param on       (default) overwritten; later rebuilt from infer params, or copied back
 *               offload_train_param off      stay. Training may go on in mode INFER. Infer params lie on other
 *                                            pages; treadle_switch_update brings them to the next version
 *   gradients   offload_train_grad on        dropped: undefined afterwards; with keep_grads copied out and back
 *               offload_train_grad off       (default) stay
 *   optimizer   offload_train_optimizer on   copied out and back
 *               offload_train_optimizer off  (default) stays
 *
 * examples/04_training_engine.c does all of this. */
typedef struct treadle_switch treadle_switch;

/* The classes of bytes on the device. */
typedef enum treadle_class {
  TREADLE_PARAMS = 0,   /* parameters in the training layout */
  TREADLE_GRADS,        /* gradients */
  TREADLE_OPTIMIZER,    /* master weights and moments */
  TREADLE_INFER_PARAMS, /* parameters in the inference layout */
  TREADLE_KV,           /* KV cache */
  TREADLE_WORK,         /* work memory of an inference engine: activations, packed copies of weights */
  TREADLE_TRAIN_WORK,   /* work memory of a training engine */
  TREADLE_REFERENCE,    /* parameters of another model in the training layout, such as the reference of a KL */
  TREADLE_CLASSES       /* their number, which may grow in later versions */
} treadle_class;

/* The modes, and what lies on the device in each. "Kept" means that offload flags do not send it away.
 *
 *   TRAIN    params, gradients, optimizer state, the trainer's work memory
 *   FORWARD  for log-probabilities: params, the work memory that they take, kept gradients and kept optimizer state.
 *            While the reference is shown (treadle_switch_show_reference), it takes the place of the latter two
 *   INFER    infer params, the engine's work memory, KV cache, kept params, kept gradients, kept optimizer state
 *   HOST     nothing
 *   LOST     nothing that can be used: a failure lost the weights
 *
 * The arrows are HOST -> INFER | FORWARD | TRAIN, TRAIN -> INFER, INFER -> FORWARD | TRAIN, FORWARD -> TRAIN, TRAIN |
 * FORWARD -> HOST, and INFER -> INFER with the next version (treadle_switch_update). */
typedef enum treadle_mode {
  TREADLE_TRAIN = 0,
  TREADLE_INFER = 1,
  TREADLE_LOST = 2,
  TREADLE_FORWARD = 3,
  TREADLE_HOST = 4
} treadle_mode;

/* "train", "infer", ...; "(none)" for a number that is not a mode. Never NULL. */
const char *treadle_mode_text(treadle_mode mode);

typedef enum treadle_choice { TREADLE_DEFAULT = 0, TREADLE_OFF, TREADLE_ON } treadle_choice;

/* Where the training parameters are while they are off the device.
 *
 *   INFER   In the infer parameters: the reverse plan rebuilds them. It takes no host memory, and is refused if the way
 *           back would lose bits. A failure after the first page was reused loses the weights; they must then come from
 *           the last checkpoint.
 *   HOST    In a twin: a copy in host memory as large as the window. The way back is a local copy, and pairs of layouts
 *           may lose bits. A failure at any moment leaves the training state as it was. */
typedef enum treadle_keep { TREADLE_KEEP_INFER = 0, TREADLE_KEEP_HOST } treadle_keep;

/* The inference engine in this process. The switch calls both functions in the thread that runs the arrow: the
 * caller's, or the one that treadle_switch_start made.
 *
 *   bind    Called in mode INFER, after the commit and before there is a KV cache. The engine may keep the window's
 *           address, which never changes, read the window, and write its window of work memory.
 *   unbind  Called before the windows are overwritten.
 *
 * If one does not return TREADLE_OK, the arrow fails and is undone: see treadle_switch_to_infer. Both may call the
 * functions that any thread may call at any time, treadle_switch_cancel among them. All others are refused.
 *
 * Weights lie where treadle_plan_storage of treadle_switch_plan(sw) says; with alias, that may differ from the layout.
 * Windows never move, but bind must look the plan up each time, since treadle_switch_rejoin replaces it. The KV window
 * may be used after the arrow has ended. */
typedef struct treadle_engine_hooks {
  size_t struct_size;
  void *context;
  treadle_status (*bind)(void *context, void *infer_window, size_t bytes);
  treadle_status (*unbind)(void *context);
  /* After loading, the engine changes the weights in their window (other types, other orders). Then nothing is aliased,
   * and the infer params cannot keep the training weights: either keep=host, or params stay. */
  bool transforms;
  /* Tells the engine which switch it belongs to, at the end of treadle_switch_create. Called with NULL when the switch
   * is destroyed; after that its windows are gone. Not called for a switch that could not be made. NULL: not needed. */
  void (*attach)(void *context, const treadle_switch *sw);
  size_t work_bytes;     /* of TREADLE_WORK, on the device in mode INFER; 0: none. Of this rank alone */
  size_t kv_block_bytes; /* size of a block of the engine's cache, if the options leave it open (0) */
} treadle_engine_hooks;

/* The memory that the pool and its windows are made of.
 *
 * CUDA: windows are device pointers. Refused by name: a machine without NVIDIA's driver, a driver before 13.0, a device
 * below compute capability 8.0, a library without kernels (make cuda). */
typedef struct treadle_memory {
  treadle_memory_kind kind;
  int device; /* number of the device among those of this kind; host: 0 */
  /* CUDA: the stream of the caller; NULL: the default stream. What it was given before a call is seen by the call. A
   * call returns when its own work is done, so that what is given after it sees the new weights. Host: NULL. */
  void *stream;
} treadle_memory;

/* Memory of the caller that holds storage tensor number `storage` of this rank (treadle_layout_storage,
 * treadle_layout_find): as many bytes, row-major without gaps, aligned to its elements. Frozen. */
typedef struct treadle_own_tensor {
  int32_t storage;
  void *memory; /* NULL if the tensor has no bytes */
  size_t bytes;
} treadle_own_tensor;

/* All ranks give equal page_bytes, cap_bytes, budget_bytes, one_way, host, alias, delta, double_infer, keep, keep_grads
 * and offload flags. */
typedef struct treadle_switch_options {
  size_t struct_size;
  size_t page_bytes; /* as in treadle_plan_options; on CUDA a multiple of 2 MiB, 0: 4 MiB */
  size_t cap_bytes;  /* 0: the larger of 256 MiB (CUDA: 1 GiB) and cap_min over all ranks */
  /* Device bytes that no rank may exceed; 0: the largest bound. With a budget and no cap, the cap is the budget minus
   * what a switch needs without a cap. */
  size_t budget_bytes;
  double timeout_seconds; /* of every wait, with the limits that groups have; 0: 60 */
  bool one_way;           /* allow a pair of layouts that loses bits on the way back; to_train is then refused */

  size_t grads_bytes, optimizer_bytes;    /* sizes of their windows; 0: none. Of this rank alone */
  treadle_choice offload_train_param;     /* params leave the device in mode INFER (default: on) */
  treadle_choice offload_train_grad;      /* gradients leave it, and are dropped (default: off) */
  bool keep_grads;                        /* gradients that leave are copied to the host instead */
  treadle_choice offload_train_optimizer; /* optimizer state leaves it, to the host (default: off) */
  treadle_keep keep;
  bool host; /* mode HOST can be entered: takes host memory for all classes of training */
  /* Size of a block of the KV cache; 0: the engine's kv_block_bytes, and without that no cache. The cache gets as many
   * whole blocks as fit on the pages that are free in mode INFER. With a budget it also gets the pages that the budget
   * leaves. It has at least kv_bytes. */
  size_t kv_block_bytes;
  /* Pages with the same bytes in both layouts are shared, not copied. treadle_plan_storage then says where tensors
   * lie. */
  bool alias;
  /* For debugging: overwrites bytes that a mode does not hold, and closes their windows to access. Refused on CUDA. */
  bool guard_pages;
  const treadle_engine_hooks *engine; /* copied; NULL: none */
  /* For pictures of the memory: called with the device bytes of each class, [classes], whenever they change. It runs in
   * the thread of the arrow. A library newer than the program may have more classes than TREADLE_CLASSES. */
  void (*watch)(void *context, const size_t *bytes, int classes);
  void *watch_context;
  /* Other memory that the caller will take on this rank while the switch exists. treadle_switch_create counts it when
   * it checks that the machine has enough. */
  size_t other_bytes;
  treadle_memory memory;
  /* A finished plan of this rank, from `train` to `infer` or between equal layouts of the same model. The switch runs
   * this plan, or is refused with the reason. page_bytes and cap_bytes must be 0 or the plan's, and alias must be the
   * plan's. Params leave the device unless the plan has keep_params. Either no rank gives a plan, or every rank gives
   * its own, with one page size, cap and number of waves. A report of all ranks has those that a switch would choose.
   * NULL: the switch makes a plan. Used only during the call. */
  const treadle_plan *plan;
  /* The KV cache has at least the whole blocks that fit in this number of bytes. The pool gets pages for them. Refused:
   * a budget too small for them. Of this rank alone. 0: what is free. */
  size_t kv_bytes;
  /* Work memory of the training engine in mode TRAIN; the first part of it that mode FORWARD has; and parameters of
   * another model (TREADLE_REFERENCE). Each arrow loses the contents of work memory. 0: none. Of this rank alone. */
  size_t train_work_bytes, forward_work_bytes, reference_bytes;
  /* Own tensors: storage tensors of this rank in memory of the caller, read and written in place ("Own tensors" below).
   * The arrays are copied. Ranks may give different ones, or none. */
  const treadle_own_tensor *own_train, *own_infer;
  size_t own_train_count, own_infer_count;
  /* Network devices between nodes, "eth0,eth1"; NULL: those of the address at which ranks met. Not kept. */
  const char *net_devices;
  /* An update sends to other nodes only what has changed since the one before, bit for bit. If the whole message is
   * shorter, it sends that. For this, each rank keeps in host memory (stats.host_bytes) what it last sent to other
   * nodes. It also keeps what it received if its infer window has another type, or own tensors, or an engine that
   * transforms it. The next update sends everything after a failed arrow, after leaving mode INFER, and in a new group.
   * Params must stay (offload_train_param off). On one node nothing is kept. */
  bool delta;
  /* The infer window has pages for two versions. An update writes the next version while the engine has the present
   * one, and the engine is unbound only for the commit. Params must stay (offload_train_param off). Refused: on
   * CUDA; with alias, own infer tensors or handles (treadle_attach.h); a budget in which both versions do not fit, with
   * the numbers. treadle_switch_bound counts both versions. */
  bool double_infer;
  /* Params of this rank that were never given values (treadle_switch_filled) switch like the others, as zeros. */
  bool allow_unfilled;
  /* Host memory of this rank (stats.host_bytes) that keeps what its own infer tensors hold while an arrow to INFER or
   * an update overwrites them. If the arrow fails, they get it back: an engine can go on with it. Give at least the
   * bytes of these tensors; 0 keeps nothing. With as many bytes more as the rest of the infer window has, an update
   * keeps that, too. If every rank keeps all that it has, a failed update leaves the old version there. Refused: too
   * few bytes, with the number; double_infer; alias. Of this rank alone. */
  size_t undo_bytes;
  /* Device memory of this rank that lies in no window, and that budget_bytes has to hold, too. Of this rank alone. */
  size_t outside_bytes;
} treadle_switch_options;

/* Own tensors. A trainer or an engine that already has its tensors gives their addresses when the switch is made. The
 * pool has no pages for them: that part of a window cannot be touched, and a window of own tensors alone holds no
 * memory. (A page that an own tensor shares with a tensor in the window does exist.) Addresses never change.
 * treadle_switch_tensor says where each tensor lies.
 *
 *   train   They are params that stay. So if one rank has them, offload_train_param is off on all ranks: on, host and
 *           keep=host are refused. A switch to INFER reads and never writes them; the way back copies nothing. What a
 *           rank itself needs is copied once, from tensor to tensor. What other ranks need is first copied to staging,
 *           in each wave: pages of the pool that they read in place (stats.staged_bytes). Staging is twice what others
 *           read in the fullest wave, and must fit in the cap; smaller caps take more waves.
 *   infer   A switch to INFER writes them. From its start until one has succeeded they are undefined (with undo_bytes,
 *           one that fails leaves what they held). In other modes they keep their bytes, and the caller may use them.
 *           Params must stay, or be kept in host memory (keep=host).
 *
 * If any rank has own tensors, alias is ignored. Plans do not know of own tensors: their figures are for whole windows.
 * treadle_switch_bound counts the pages that windows really have. If params leave the device and the larger of the two
 * whole windows is less, it counts that. Engines that transform their weights may do so in own tensors. The built-in
 * engine refuses own infer tensors at bind. treadle_switch_trim and guard_pages concern pages of the pool alone. On a
 * rank with own train tensors, treadle_switch_register takes no params. A switch that rejoins keeps its own tensors;
 * new ranks give theirs.
 *
 * Refused, with rank and name: a number that is not a storage tensor, or is given twice; another size; memory that is
 * not mapped, readable and writable (by /proc/self/maps, or as its device says); memory that is not aligned to an
 * element, or overlaps another own tensor; a tensor that a switch makes into fp8 blocks, or out of fp8 blocks. The
 * memory must stay until the switch is destroyed. If it is gone, an arrow returns TREADLE_STATE. */

/* Makes a switch: makes the plan of this rank, agrees with the others on cap and waves, and compares digests. Then it
 * creates the pool, touches every page that the pool will ever use, takes host memory, and maps all windows. The mode
 * is TRAIN, and windows hold zeros. group: NULL is one rank. The group and the layouts must outlive the switch.
 * Collective: if one rank is refused, all ranks fail, except when its group is NULL.
 *
 * Before the first page is touched, the ranks add up the memory that they will take. TREADLE_NO_MEMORY, with the
 * numbers: that is more than one of the limits leaves. These are those of the machine, of a control group (v1 or v2)
 * for the ranks in it, of RLIMIT_AS for a rank, and of a device's memory for the pools on it. */
treadle_status treadle_switch_create(treadle_group *group, const treadle_layout *train, const treadle_layout *infer,
                                     const treadle_switch_options *options, treadle_switch **switch_p);
/* Frees the switch and its memory. It cancels a started arrow and waits for it. While another call changes the switch,
 * and in a callback of an arrow, it does nothing. Local. */
void treadle_switch_destroy(treadle_switch *sw);

/* Takes the switch to another group of as many ranks, after a rank of the old group died. This rank keeps its memory
 * and its mode. New ranks call treadle_switch_create instead, and are in mode TRAIN. The switch does not use the old
 * group any more, which may then be closed. Refused: ranks in different modes, with one exception. If some ranks are in
 * TRAIN, a rank in INFER goes to TRAIN. For that, its params must be in host memory (keep=host) or still on the device.
 * A rank in FORWARD or HOST must go to TRAIN first. Collective in the new group.
 *
 * So an engine replica that replaces a dead one gets the whole present version at the next switch to INFER. For a
 * larger group, make a new switch over the same own train tensors; the old one serves until then. */
treadle_status treadle_switch_rejoin(treadle_switch *sw, treadle_group *group);

/* The window of a class: its address, which stays for the life of the switch, and in *bytes_p its size. bytes_p may be
 * NULL. An empty window is NULL and 0 bytes; so is a number that is not a class. Storage tensors lie at their
 * offset_bytes; infer params with alias at those of treadle_plan_storage. Own tensors lie where treadle_switch_tensor
 * says. A window may be used in modes that hold its class. Params are read-only in mode FORWARD. Pages that both
 * parameter windows share are read-only in mode INFER: a write there is a segmentation fault, or goes unnoticed on
 * CUDA. */
void *treadle_switch_window(const treadle_switch *sw, treadle_class which, size_t *bytes_p);
/* The address of storage tensor number `storage` of TREADLE_PARAMS or TREADLE_INFER_PARAMS, in its window or the
 * caller's memory (own tensors). *bytes_p, which may be NULL, is its size. Else, also for another class or number:
 * NULL, 0. */
void *treadle_switch_tensor(const treadle_switch *sw, treadle_class which, int32_t storage, size_t *bytes_p);
void *treadle_switch_train_window(const treadle_switch *sw); /* of TREADLE_PARAMS */
void *treadle_switch_infer_window(const treadle_switch *sw); /* of TREADLE_INFER_PARAMS */
/* The mode. While an arrow runs, it is the old one until the ranks have committed. Else TREADLE_LOST. */
treadle_mode treadle_switch_mode(const treadle_switch *sw);
/* The version: the number of committed switches to INFER and updates. Else 0. */
uint64_t treadle_switch_version(const treadle_switch *sw);
/* Can the parameters of this mode be used? Not in mode LOST. Not in mode INFER while an update writes the infer window
 * (with double_infer none does), or after a failed update left no version there. Else false. Any thread. */
bool treadle_switch_is_valid(const treadle_switch *sw);
/* The switch's plan. It lives until the switch is destroyed or treadle_switch_rejoin replaces it. Else NULL. */
const treadle_plan *treadle_switch_plan(const treadle_switch *sw);

/* The reference's parameters [*bytes_p] in host memory. The caller fills them once; they never change. Else NULL and
 * 0. */
void *treadle_switch_reference_twin(const treadle_switch *sw, size_t *bytes_p);
/* In mode FORWARD, show puts these parameters in the reference's window, until hide is called or the mode is left.
 * Before that, gradients and optimizer state on the device leave it, the latter to host memory. The way to TRAIN brings
 * optimizer state back and leaves gradients undefined. Showing or hiding twice does nothing. TREADLE_STATE: another
 * mode, or no reference. Local. */
treadle_status treadle_switch_show_reference(treadle_switch *sw);
treadle_status treadle_switch_hide_reference(treadle_switch *sw);

/* Device bytes that a class holds now, in pages of the pool. A page that two windows share counts once: for params if
 * these stay on the device, otherwise for the infer params. Else, also for a number that is not a class, 0. */
size_t treadle_switch_resident(const treadle_switch *sw, treadle_class which);

/* Registers `memory` [bytes] of the caller in place of a part of a window: of params (whole storage tensors, at byte
 * `offset` of the window), or of gradients or optimizer state (offset 0). It is copied out on the way to INFER and back
 * on the way to TRAIN, as the flags say. Params that stay (offload_train_param off) are the caller's in mode INFER too:
 * they are copied out on the way there and by each update, and never back. The switch cannot reuse this memory, which
 * stats.foreign_bytes counts. Refused: memory that is not mapped, readable and writable (own tensors say how), that
 * overlaps registered memory or a window, or that is not aligned to 16 bytes. It must stay writable until the switch is
 * destroyed. Only in mode TRAIN. Local. */
treadle_status treadle_switch_register(treadle_switch *sw, treadle_class which, size_t offset, void *memory,
                                       size_t bytes);

/* A new window is full of zeros, which look like weights. So every storage tensor of a rank's params must be given
 * values. treadle_layout_load into the window does this, and so does a trainer that loads, resumes or makes up its
 * weights there. Own tensors and treadle_switch_register count as values. Otherwise the caller writes the values, and
 * then says so:
 *
 *   treadle_switch_filled          all storage tensors of this rank have values
 *   treadle_switch_tensor_filled   storage tensor number `storage`, as in treadle_switch_tensor, has values
 *
 * Until then these are refused, with the names of the first such tensors: a switch to INFER or FORWARD, an update,
 * treadle_switch_digest in mode TRAIN, and treadle_layout_save of the window. Collective calls are refused on all
 * ranks. options.allow_unfilled lets zeros through. Tensors of padding alone may be zeros. Once is enough: values that
 * went to another mode and came back count as given. Local; any thread. */
treadle_status treadle_switch_filled(treadle_switch *sw);
treadle_status treadle_switch_tensor_filled(treadle_switch *sw, int32_t storage);

/* Says that gradients are being accumulated (`begun` is true), or that they no longer are. While they are, a switch to
 * INFER is refused, since it would lose them. Does nothing while an arrow runs. Local. */
void treadle_switch_accumulate(treadle_switch *sw, bool begun);

/* The arrows: changes of mode. Entering the current mode does nothing. Refused: an arrow that does not exist; the
 * message names both modes. TREADLE_STATE: another thread runs an arrow.
 *
 * To INFER, in this order: optimizer state goes to the host, gradients are dropped or go to the host, the weights move.
 * When all ranks have written every destination byte once, the ranks commit together. Then the engine is bound, and
 * then there is a KV cache.
 *
 * If an arrow to INFER fails, it returns on every rank:
 *
 *   keep=host            The old state is there on all ranks, whenever it failed.
 *   keep=infer           The old state is there, unless a page was already reused. Then the mode is LOST, and the
 *                        message says so.
 *   only bind failed     With keep=infer the mode is INFER with nothing bound; treadle_switch_to_infer tries to bind
 *                        again. A failure on the way back that leaves the mode INFER does likewise.
 *
 * If another process holds the infer window (treadle_attach.h), an arrow out of INFER waits for it. After the switch's
 * time limit, all ranks refuse the arrow with TREADLE_TIMEOUT, and everything stays as it was.
 *
 * Arrows to INFER, and out of it, are collective. The others are local copies, but all ranks must take them before the
 * next collective one. */
treadle_status treadle_switch_to_infer(treadle_switch *sw);
treadle_status treadle_switch_to_train(treadle_switch *sw);
treadle_status treadle_switch_to_forward(treadle_switch *sw);
treadle_status treadle_switch_to_host(treadle_switch *sw);

/* Brings the infer params to the next version, in mode INFER. The engine is unbound, and the weights move again from
 * the present params. When all destination bytes are proved to be written, the ranks commit together, the version grows
 * by one, and the engine is bound. Ranks may train in mode INFER, in windows that stay on the device or in registered
 * memory. While an update runs, they must not write params. Unless the switch has double_infer, the infer window must
 * not be used until the update has returned on this rank. The KV cache keeps its window and its contents. These belong
 * to the old version; the engine decides what becomes of them.
 *
 * TREADLE_STATE: another mode; params leave the device (offload_train_param is not off); alias, since the trainer must
 * not write shared pages. A rank that holds no params sets offload_train_param off, too. Collective.
 *
 * A failed update leaves params as they are and the mode INFER, with nothing bound. If no rank had started to write, or
 * all ranks keep what they write over (undo_bytes), the old version is there, and treadle_switch_to_infer binds it
 * again. Otherwise the infer window holds no version on any rank and must not be read. The next update repairs it, or
 * treadle_switch_to_infer, which then acts as an update. treadle_switch_is_valid says which case it is. If only a bind
 * failed, the new version is there, unbound. Arrows to TRAIN and FORWARD work in any case.
 *
 * With double_infer, the engine keeps the old version until all ranks have proved the next one. Then it is unbound, the
 * ranks commit, the window maps the pages of the next version at its old address, and the engine is bound. The window
 * may be read until unbind is called. A rank without an engine does not learn when its bytes change. An update that
 * fails before the commit leaves the old version, which stays valid throughout. That version stays bound, unless
 * engines were already being unbound: then treadle_switch_to_infer or the next update binds it.
 *
 * treadle_switch_start_update starts an update in a thread of its own. Test, wait and cancel work as below. */
treadle_status treadle_switch_update(treadle_switch *sw);
treadle_status treadle_switch_start_update(treadle_switch *sw);

/* Arrows in a thread beside the caller. treadle_switch_to_infer does what treadle_switch_start(sw, TREADLE_INFER) and
 * treadle_switch_wait do, but in the caller's thread. Some ranks may start an arrow while others call it.
 *
 *   start   Makes a thread that takes the arrow, and returns. An arrow that does not exist and a second start are
 *           refused at once. Until wait has returned, the switch uses the group, and calls that would change the switch
 *           are refused. A window may then be used only if both modes hold it. Hooks and `watch` run in the new thread,
 *           which blocks signals to the process. TREADLE_SYSTEM: the thread could not be made, and nothing has started.
 *   test    Does not block: *done_p says whether the arrow has ended. wait says with which result.
 *   wait    Blocks until the arrow has ended. Returns what treadle_switch_to_* would, with the message in this thread.
 *           Every start needs one wait (or treadle_switch_destroy). TREADLE_STATE: without a start, a second time, in
 *           two threads at once, or in a callback of the arrow.
 *   cancel  Asks the running arrow to end, whether it was started or called. It may be called from any thread, also in
 *           callbacks, and does not block. TREADLE_OK: the arrow was asked, now or before. TREADLE_STATE: no arrow
 *           runs.
 *
 * A cancelled arrow ends with TREADLE_CANCELLED on this rank and TREADLE_PEER on the others. It leaves the state that
 * any other failure of that arrow leaves (above). The arrow looks for the request between copies and wherever it waits
 * for others. So it ends within a tenth of a second, plus the time to copy 64 MiB or one class of registered memory.
 * After the ranks have committed it is too late: the arrow ends as usual, with TREADLE_OK. While engines bind, only
 * binding fails. Of the arrows that need no other rank, only those to HOST can be cancelled.
 *
 * Progress: stats are updated after each wave. copied_bytes grows from 0 to copied_bytes of treadle_plan_get_info, and
 * filled_bytes to the part of infer_bytes that is neither copied nor aliased. start, test, wait and cancel are local;
 * the arrow is collective or local as it says above. */
treadle_status treadle_switch_start(treadle_switch *sw, treadle_mode mode);
treadle_status treadle_switch_test(treadle_switch *sw, bool *done_p);
treadle_status treadle_switch_wait(treadle_switch *sw);
treadle_status treadle_switch_cancel(treadle_switch *sw);

/* Gives pages that no class holds back to the system. The next switch that writes them is slower. Refused on CUDA.
 * Local. */
treadle_status treadle_switch_trim(treadle_switch *sw);

/* treadle_switch_bound: the most bytes that this rank may hold during a switch. It is the sum of what stays on the
 * device, the cap, and the larger of params and infer params (both, if params stay). treadle_switch_pool_bound: the
 * most at any time. It is more if training takes more; if infer params, work memory and the KV cache of kv_bytes do; or
 * if a budget was given. Else 0. */
size_t treadle_switch_bound(const treadle_switch *sw);
size_t treadle_switch_pool_bound(const treadle_switch *sw);

/* Figures of this rank, of the last switch unless they say otherwise. */
typedef struct treadle_switch_stats {
  size_t struct_size;
  double seconds;         /* from entry to bind; the next five are parts of it */
  double wait_seconds;    /* waiting for others */
  double offload_seconds; /* copying to the host */
  double wave_seconds;    /* in the waves, without waiting and without copying to the host */
  double bind_seconds;    /* in the engine */
  double load_seconds;    /* copying from the host */
  size_t copied_bytes;    /* destination bytes of data written */
  size_t pulled_bytes;    /* from other ranks, in the narrower dtype of both sides */
  size_t filled_bytes;
  size_t offloaded_bytes, loaded_bytes;
  /* Accounted device bytes at the fullest moment of all switches so far, without a KV cache that stays in an update. */
  size_t peak_bytes;
  size_t pool_bytes;    /* what the system has given the pool now; host: st_blocks of its file */
  size_t host_bytes;    /* host memory of the twins */
  size_t foreign_bytes; /* registered by the caller: stay where they are */
  size_t staged_bytes;  /* of own tensors, copied to staging so that other ranks could read them */
  size_t own_bytes;     /* of own tensors: they stay where they are */
  /* Several nodes: bytes that came from other nodes to this rank, as they travelled; bytes read from ranks of its node
   * that had them from other nodes. */
  size_t node_moved_bytes, relayed_bytes;
  size_t node_sent_bytes;   /* sent to other nodes */
  double net_seconds;       /* waiting for messages, or unpacking them */
  size_t net_staging_bytes; /* host memory for messages, beside host_bytes; none of it is in the cap */
  /* With delta: bytes sent to other nodes, message heads included, as they would be without delta (dense) and as they
   * were (delta). node_moved_bytes and node_sent_bytes count as if there were no delta. */
  size_t dense_bytes, delta_bytes;
  double unbound_seconds; /* of the last committed update: from the engine's unbind until it was bound again */
  /* The last switch: packing messages and computing their sums; in the net; checking sums and unpacking. */
  double net_pack_seconds, net_wire_seconds, net_unpack_seconds;
  size_t net_window_bytes; /* that came from other nodes right into the window, without a copy after the net */
  /* Devices; on the host all are 0. The last switch: seconds in which the device had work; launches of kernels; the
   * most waves that it had been asked for and had not done. And device memory for the kernels' tables. */
  double copy_seconds;
  uint64_t kernel_launches;
  int32_t waves_in_flight;
  size_t table_bytes;
  size_t slab_bytes; /* the part of pool_bytes that the device has in pieces of several pages */
} treadle_switch_stats;

/* The stats after the last wave, or after the last call that changed the switch, all of one moment. pool_bytes is of
 * now. Any thread. Else zeros. */
void treadle_switch_get_stats(const treadle_switch *sw, treadle_switch_stats *stats_p);

/* The digest of the weights: the sum over all canonical elements, each once, of a hash of tensor, index and value. It
 * depends on the values, not on the layout. It reads the window of the present mode. Collective. */
treadle_status treadle_switch_digest(treadle_switch *sw, uint64_t *digest_p);

/* ---- Loading and saving -------------------------------------------------------------------------- */

/* Fills `window` [treadle_layout_window_bytes] with what `rank` holds in `layout`: values of the checkpoint, or made-up
 * ones if the model was opened so (treadle_model_weights). The window may be NULL if it has no bytes. Refused: a model
 * without values. TREADLE_DIFFERENT: a file became shorter, or was written to, since the model was opened. The window
 * may be one of a switch, whatever memory that has. Local. */
treadle_status treadle_layout_load(const treadle_layout *layout, int64_t rank, void *window);
/* Does what treadle_layout_load does, but `weights` says where values come from. FILES: refused if the model has none.
 * RANDOM: values are made up, however the model was opened. NONE: exactly treadle_layout_load. */
treadle_status treadle_layout_load_weights(const treadle_layout *layout, int64_t rank, treadle_weights weights,
                                           void *window);

typedef struct treadle_save_options {
  size_t struct_size;
  /* Of the files: fp32, bf16 or fp16. Some tensors must keep their type. TREADLE_DTYPE_NONE: the layout's. */
  treadle_dtype dtype;
  size_t shard_bytes; /* the most bytes of tensors in one file, unless a single tensor has more; 0: 5 GB */
  bool weights_only;  /* do not write config.json, tokenizer and the other files beside the model's own weights */
  /* Take the tokenizer and the like from this folder, not from beside the model's weights. NULL: from beside them. */
  const char *companions;
} treadle_save_options;

/* Saves the windows of all ranks as a Hugging Face folder, which treadle_model_open opens: safetensors under Hugging
 * Face's names, a tied tensor once. If one file would be too large, there are several with an index. Files beside the
 * model's own weights are copied; config.json gets the type of the tensors if that changed. The rank of the group is
 * the rank of the layout; group: NULL is for a layout of one rank. Each rank writes a share of the elements straight to
 * their places, so no rank has a whole tensor in memory. Copies of an element are taken as equal.
 *
 * `folder` must be missing or empty, in an existing folder. When the call has returned TREADLE_OK, it is on the disk
 * and whole, and not before. Until then its files are in FOLDER.PID-N.tmp beside it. If a rank fails or dies, this
 * temporary folder is removed. It stays only if rank 0 is killed at the very end, or all ranks are. If everything else
 * succeeded but rank 0 does not answer in time, the others fail, though the folder may appear.
 *
 * Refused: quantised models; models that are part of a larger one. A window may be NULL if it has no bytes, and may be
 * one of a switch, whatever memory that has. Windows must not change during the call. It waits as treadle_group_barrier
 * does, before and after the writing. Collective: if one rank is refused, all fail. */
treadle_status treadle_layout_save(treadle_group *group, const treadle_layout *layout, const void *window,
                                   const char *folder, const treadle_save_options *options);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

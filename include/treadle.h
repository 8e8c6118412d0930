/* treadle: moves a language model's weights between the layout it is trained in and the layout it
 * generates in, on the same devices. This header is all a user of the library needs; it reads as a manual.
 *
 * The parts, in the order in which a program uses them:
 *
 *   1. treadle_model_open    which tensors there are: a Hugging Face directory or a config.json
 *   2. treadle_layout_create which part of them each rank holds, and where: "megatron:tp=4", "vllm:tp=2"
 *   3. treadle_plan_create   the exact copies of one rank, in waves; needs no weights, and can be printed
 *   4. treadle_group_*       the ranks: one process, threads, or processes of an MPI launcher
 *   5. treadle_switch_*      windows of one pool of pages, and the state machine that runs the plan
 *
 * Conventions. Functions return treadle_status: 0 is good, all others are negative. After a failure
 * treadle_error_message() says, in the same thread, what is wrong with which tensor, rank or number. Outputs come last and
 * end in _p. Objects made by *_create or *_open are freed by *_destroy or *_close, which accept NULL. Offsets and counts are in
 * elements, sizes in bytes, unless the name says otherwise. The library never exits, never prints and never reads the
 * environment.
 *
 * Arguments are checked before anything is done. These are wrong: NULL where something is needed; a rank or a storage tensor that
 * does not exist; an enum or a number out of its range (sizes above 2^60, a time limit that is not a number, a struct_size that is
 * not a multiple of 8 or is above 4,096). A function with a status then returns TREADLE_REFUSED, and its outputs that are objects
 * are NULL. A function without a status returns what its declaration says ("else ..."). If that says nothing, it returns -1 as a
 * signed number, 0 as a size, NULL as a pointer or a text, or false. A function without a result does nothing, and fills its output
 * with zeros. The reason is in treadle_error_message(). Only options, and what is said to be optional, may be NULL. Not
 * checked, since it cannot be: a pointer to an object that was freed, a text without an end, an array that is shorter than its
 * count.
 *
 * While a model with weights is open, the library has a handler for SIGBUS. If a file becomes shorter while it is mapped, the
 * call fails and names the file. The handler treats only the library's own mappings. It passes everything else to the handler that
 * was there before, which is set again when the last model is closed. A handler that a program sets in between must do the same:
 * pass on to the one that it found.
 *
 * "Collective" means that every rank of the group calls the function, in the same order. All other functions are
 * local.
 *
 * For each kind of object: what must outlive it, how long its texts live, and which threads may use it:
 *
 *   model    needs nothing. Its texts live as long as it does. It never changes: any number of threads may ask it.
 *   layout   needs its model. Its texts live as long as it does, names of the model's tensors as long as the model. Never changes.
 *   plan     needs its two layouts. Never changes.
 *   report   needs its two layouts. Never changes.
 *   group    needs nothing. One thread at a time; any thread may ask for rank and size. From treadle_switch_start until
 *            treadle_switch_wait the switch uses it.
 *   switch   needs its group and its two layouts; also the caller's registered memory and what hooks point to.
 *            One thread at a time changes it: while an arrow (a change of mode) runs, other changes are refused (TREADLE_STATE).
 *            Any thread may at any time cancel an arrow, test a started one, and ask for mode, version, stats, windows, bounds and
 *            the plan. Any thread may use the windows that the mode has.
 *   attached needs nothing. Any number of threads may use it.
 *   convert  needs nothing: options are copied. One thread at a time.
 *
 * An object is freed by one thread, when no other uses it. Options are read only during the call, except callbacks and
 * their contexts. */
#ifndef TREADLE_H
#define TREADLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* the shared library shows what is declared here, nothing else */

#define TREADLE_VERSION        "0.2.0"
#define TREADLE_VERSION_NUMBER 200 /* major * 10000 + minor * 100 + patch */

/* The version of the library that runs, which may be newer than this header: as TREADLE_VERSION_NUMBER, and as text. The text is
 * never NULL and lives as long as the program. Any thread. */
int treadle_version_number(void);
const char *treadle_version_text(void);

/* Structs that begin with struct_size can grow in later versions. Their user writes the size there, as this macro does, which sets
 * all other fields to zero:
 *
 *   treadle_plan_options options = TREADLE_INIT(treadle_plan_options);
 *
 * In C `{.struct_size = sizeof options, .page_bytes = 4096}` does the same.
 *
 *   a library newer than the program   takes missing fields for zero, and does not write them
 *   a library older than the program   refuses options and hooks with a field that it does not know and that is not zero; in
 *                                      outputs it fills such fields with zeros
 *
 * Other structs never change, since they are elements of arrays or passed by value; their comments say that they are frozen. */
#ifdef __cplusplus
#define TREADLE_INIT(type)                                                                                 \
  ([] {                                                                                                    \
    type init = type();                                                                                    \
    init.struct_size = sizeof(type);                                                                       \
    return init;                                                                                           \
  }())
#else
#define TREADLE_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

/* ---- Statuses ---------------------------------------------------------------------------------- */

typedef enum treadle_status {
  TREADLE_OK = 0,
  TREADLE_REFUSED = -1,   /* an input breaks a rule: a file, a config, a layout text, an option */
  TREADLE_NO_MEMORY = -2, /* memory is out, or a pool would exceed its budget */
  TREADLE_SYSTEM = -3,    /* the operating system said no */
  TREADLE_PEER = -4,      /* another rank failed, died or runs something else */
  TREADLE_TIMEOUT = -5,   /* a wait took longer than its limit */
  TREADLE_DIFFERENT = -6, /* a check found a difference */
  TREADLE_STATE = -7,     /* a call in the wrong mode */
  TREADLE_CANCELLED = -8  /* a watcher, or treadle_switch_cancel, ended the work */
} treadle_status;

/* A status in words: "refused", "no memory", ..., "unknown status". Never NULL. */
const char *treadle_status_text(treadle_status status);

/* The message of the last failure in this thread; "" before the first. Valid until the next failure in it. One line of at most
 * 1,023 bytes in UTF-8. In quoted names, control characters and bytes that are not UTF-8 are written as \xNN. */
const char *treadle_error_message(void);

/* Says why a function fails that the caller gives the library (a hook, a store, a watcher): it becomes this thread's message. Returns the
 * status, for `return treadle_error_set(TREADLE_SYSTEM, "the disk is full");`. Any thread. */
treadle_status treadle_error_set(treadle_status status, const char *message);

/* A function that watches long work. It is called now and then, in the thread that called the library: `doing` says what is being
 * done ("plan of equal ranks") and lives as long as the program, `done` of `total` how far it is. A result of false ends the work with
 * TREADLE_CANCELLED. It may not use the objects that are being worked on. */
typedef bool (*treadle_watcher)(void *context, const char *doing, int64_t done, int64_t total);

/* Sets who watches the waits of the calling thread: for other ranks, where they meet, in an arrow of a switch, for a version. It is called
 * every 20 ms or so while a function of the library waits in this thread, and between the copies of an arrow, with `done` and `total` of
 * 0. A result of false ends the wait: the function returns TREADLE_CANCELLED, and other ranks that wait for this one TREADLE_PEER. So
 * programs that handle signals between two calls, as Python does, can handle them in a call. NULL: nobody, as at first. Any thread. */
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

/* Where the values of a model's weights come from. They are never made up unasked. */
typedef enum treadle_weights {
  /* Nowhere: a model to plan with. In options: as the path says (treadle_model_open). */
  TREADLE_WEIGHTS_NONE = 0,
  /* model.safetensors, or shards with an index. */
  TREADLE_WEIGHTS_FILES,
  /* They are made up: hashes of tensor and canonical index. */
  TREADLE_WEIGHTS_RANDOM
} treadle_weights;

typedef struct treadle_model_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  /* Not 0: a smaller model of the same structure, whose weights are made up, with at most so many elements: fewer layers, experts and
   * heads, a smaller vocabulary, narrower matrices. For trying layouts of models that are too large for the machine. */
  int64_t scale_down;
  /* Files: refused if there are none. Random: made up, even if there are files. None: as the path says. */
  treadle_weights weights;
} treadle_model_options;

/* Reads `path`, a Hugging Face directory (config.json and model.safetensors, one file or shards with
 * model.safetensors.index.json) or a config.json alone, and the family file that covers its model_type.
 * With weights, names, shapes and dtypes are compared with the family; a tensor that is missing or
 * left over is refused by name. Options may be NULL. On failure *model_p is NULL.
 *
 * A directory without these files opens, too, unless the options ask for files: layouts and plans need no values. Calls that need values
 * are then refused (treadle_model_need_weights). A path that names a file, a config.json, means made-up weights. */
treadle_status treadle_model_open(const char *path, const treadle_model_options *options,
                                  treadle_model **model_p);
void treadle_model_close(treadle_model *model);

typedef struct treadle_tensor_info {
  size_t struct_size;
  const char *name;    /* Hugging Face's name; both texts live as long as the model */
  const char *same_as; /* tied: the canonical tensor that this name is a copy of; else NULL */
  int ndim;
  int64_t shape[4];
  int64_t elems;
  treadle_dtype dtype;
  int32_t layer; /* decoder layer, -1 outside */
} treadle_tensor_info;

/* How many names of tensors the model has: each expert has one, and tied tensors (same_as) come last. Else -1. */
int32_t treadle_model_tensor_count(const treadle_model *model);
/* Facts about tensor number `tensor`, from 0. Refused: a number that is out of range. */
treadle_status treadle_model_tensor(const treadle_model *model, int32_t tensor,
                                    treadle_tensor_info *info_p);
const char *treadle_model_family(const treadle_model *model); /* lives as long as the model; else NULL */
int64_t treadle_model_elems(const treadle_model *model);      /* each canonical element once; else -1 */
int64_t treadle_model_bytes(const treadle_model *model);      /* of these elements; else -1 */
bool treadle_model_has_weights(const treadle_model *model);   /* opened with a checkpoint; else false */
/* Where its values come from; else none. */
treadle_weights treadle_model_weights(const treadle_model *model);
/* TREADLE_OK if the model has values, of files or made up. Else TREADLE_REFUSED: the message says what its folder has instead, and what
 * to do. */
treadle_status treadle_model_need_weights(const treadle_model *model);

/* ---- Layouts: what each rank holds ------------------------------------------------------------- */

typedef struct treadle_layout treadle_layout;

typedef enum treadle_rank_map {
  TREADLE_CONTIGUOUS = 0, /* rank r takes coordinate r of the mesh; what vLLM expects */
  TREADLE_STRIDED,        /* inside each block of tp_train ranks, tp group j is ranks j, j+f, j+2f, ...
                             with f = tp_train / tp, which must be whole (MindSpeed-RL 2.0, HybridFlow) */
  TREADLE_BEST /* of contiguous and all strides, the one with the fewest bytes between nodes; among equals
                             the one in which the rank that pulls most pulls least, then the smallest mean */
} treadle_rank_map;

typedef struct treadle_layout_options {
  size_t struct_size;
  treadle_rank_map rank_map; /* which rank takes which coordinate of this layout */
  /* The training layout, of the same model and number of ranks. It gives tp_train and, for TREADLE_BEST, the bytes that are there
   * already. Used while the layout is made, and not kept. Needed by all rank maps except TREADLE_CONTIGUOUS. */
  const treadle_layout *train;
  /* [ranks] for TREADLE_BEST, which rank is on which node: any numbers, equal for ranks of one node. NULL: all are on one. Not kept. */
  const int32_t *node_of;
} treadle_layout_options;

/* Makes the layout `text` of a model on `ranks` ranks. The text form is described in docs/layouts.md:
 *   hf | megatron:tp=4,pp=2,vpp=2 | fsdp:dp=8 | fsdp2:dp=4,tp=2 | zero3:dp=8 | distopt:tp=2 |
 *   vllm:tp=2 | sglang:tp=4,attn_dp=2 | pieces:@file | placements:@file
 * A layout that cannot exist is refused here, with the rule and the numbers. Options may be NULL. On failure *layout_p is
 * NULL. The model must outlive the layout. A layout never changes: any number of threads may use it and make plans from it. */
treadle_status treadle_layout_create(const treadle_model *model, const char *text, int64_t ranks,
                                     const treadle_layout_options *options, treadle_layout **layout_p);

/* A piece of a storage tensor of one rank, for layouts that no rule describes. The box `start`, `size` [ndim of the tensor] is in
 * the shape of the Hugging Face tensor. `offset` and `stride` are in elements of the storage tensor, whose row-major shape is
 * `storage_shape` [storage_ndim]. Pieces with the same rank and name make up one storage tensor; what no piece covers is filled with
 * zeros. Every number is checked against the tensor and the storage: ranks from 0, 1 to 4 dimensions, sizes and strides from 1.
 * An element of an array: this struct is frozen. */
typedef struct treadle_explicit_piece {
  int64_t rank;
  const char *storage; /* name of the storage tensor on that rank */
  int storage_ndim;
  int64_t storage_shape[4];
  treadle_dtype dtype; /* TREADLE_DTYPE_NONE: that of the tensor */
  const char *tensor;  /* Hugging Face name */
  int64_t start[4], size[4];
  int64_t offset, stride[4];
} treadle_explicit_piece;

/* Makes a layout from `count` pieces of all ranks. They are copied. Refused: pieces of a rank that overlap in memory, and elements of
 * the model that no rank has. On failure *layout_p is NULL. The model must outlive the layout. */
treadle_status treadle_layout_from_pieces(const treadle_model *model, int64_t ranks,
                                          const treadle_explicit_piece *pieces, size_t count,
                                          treadle_layout **layout_p);

/* How one dimension of a device mesh divides a tensor: torch's DTensor placements.
 * `dim` is a dimension of the tensor as its name has it, from 0 on. Mesh dimensions cut one after the other, the first one first: each cuts
 * what those before it have left. The exception is TREADLE_FULLY_SHARD.
 *   TREADLE_REPLICATE      not at all
 *   TREADLE_SHARD          Shard(dim), as torch.chunk: parts of ceil(n / ranks), later ones smaller or empty
 *   TREADLE_STRIDED_SHARD  _StridedShard(dim, split_factor=split): into `split` chunks, each of them over all ranks
 *   TREADLE_FULLY_SHARD    as TREADLE_SHARD, but behind the mesh dimensions to its right. That is what fully_shard (FSDP2) does where tensor
 *                          parallel cuts the same dimension. torch prints such a parameter as [_StridedShard(0, tp), Shard(0)], which
 *                          distribute_tensor cuts in another way where sizes do not divide evenly: docs/layouts.md. A shard
 *                          without elements has no rows, whatever its other dimensions
 *   TREADLE_PARTIAL        refused: a sum that is not yet made has no value that could be moved */
typedef enum treadle_placement_type {
  TREADLE_REPLICATE = 0,
  TREADLE_SHARD,
  TREADLE_STRIDED_SHARD,
  TREADLE_FULLY_SHARD,
  TREADLE_PARTIAL
} treadle_placement_type;

/* An element of an array: this struct is frozen. */
typedef struct treadle_placement {
  treadle_placement_type type;
  int32_t dim;
  int64_t split; /* TREADLE_STRIDED_SHARD alone: from 1 on */
} treadle_placement;

/* torch's DeviceMesh: `size` [ndim] ranks in 1 to 8 dimensions. `ranks` [product of the sizes], row-major, says which rank has which
 * coordinate. If it is NULL, the rank is first + the sum of coordinate * stride; if all strides are 0 too, they are those of a row-major
 * grid. Meshes of many ranks cost no table where their ranks are at even distances, however they are given. A mesh may have a part of
 * the ranks, in any order, and none twice. An element of an array: this struct is frozen. */
typedef struct treadle_placed_mesh {
  int32_t ndim;
  int64_t size[8];
  const int64_t *ranks;
  int64_t first, stride[8];
} treadle_placed_mesh;

/* A tensor that a mesh's ranks hold, each the part that the placements [ndim of the mesh] give it, row-major and without gaps.
 * `tensor` is a Hugging Face name, of the files (each expert has one) or of the module (transformers 5: experts stacked); if both have the
 * name with different shapes, `shape` says which is meant (of equal shapes the module's), and without it that of the files. Ranks outside of the mesh do not have
 * the storage tensor. An element of an array: this struct is frozen. */
typedef struct treadle_placed_tensor {
  const char *storage; /* its name on the ranks; NULL: `tensor` */
  const char *tensor;
  treadle_dtype dtype; /* TREADLE_DTYPE_NONE: that of the tensor */
  int32_t mesh;        /* number in the list of meshes; -1: all ranks have all of it */
  int32_t ndim;        /* 0: the shape is not given */
  int64_t shape[4];    /* of the whole tensor: refused where it is another one */
  treadle_placement placements[8];
} treadle_placed_tensor;

/* Makes a layout of tensors by mesh and placements (DTensors): one description for all ranks, which is copied. The cost does not grow
 * with the number of ranks. A window has the storage tensors of its rank in the order of `tensors`, and room for the largest shard of
 * each; treadle_layout_storage says how large the rank's own is. Refused: a name that the model does not have (the nearest is
 * named), a tensor that nobody has, the same name twice on a rank, Partial, meshes with ranks that do not exist or are there twice. A
 * tied tensor may be given under both names or under one. Blocks of fp8 models are held as values. On failure *layout_p is
 * NULL. The model must outlive the layout. */
treadle_status treadle_layout_from_placements(const treadle_model *model, int64_t ranks,
                                              const treadle_placed_mesh *meshes, size_t mesh_count,
                                              const treadle_placed_tensor *tensors, size_t tensor_count,
                                              treadle_layout **layout_p);

/* The rank map: "contiguous", "strided" or, after TREADLE_BEST, the one that was chosen ("strided:2"). Lives as long as the layout.
 * Else NULL. */
const char *treadle_layout_rank_map(const treadle_layout *layout);

void treadle_layout_destroy(treadle_layout *layout);
/* The normal form of the layout's text; parsing it gives the same layout. Lives as long as the layout. Else NULL. */
const char *treadle_layout_text(const treadle_layout *layout);
/* Of the group, whether they hold it or not. Else -1. */
int64_t treadle_layout_ranks(const treadle_layout *layout);
/* True when the rank is one of those that hold the layout: all, or those of on= in its text. The others have no storage tensors, and a
 * window of 0 bytes. */
bool treadle_layout_holds(const treadle_layout *layout, int64_t rank);
/* True for layouts of training engines and of files (hf, megatron, fsdp, pieces, ...), false for those of inference engines. Else
 * false. */
bool treadle_layout_is_train(const treadle_layout *layout);
/* Bytes of a rank's window, not rounded up to pages. Else, also for a rank out of range: 0. */
size_t treadle_layout_window_bytes(const treadle_layout *layout, int64_t rank);

/* One storage tensor of a rank, in the order of its window. */
typedef struct treadle_storage_info {
  size_t struct_size;
  char name[256]; /* the engine's own name on that rank */
  int32_t chunk;  /* virtual pipeline stage, else 0 */
  int ndim;
  int64_t shape[4];
  treadle_dtype dtype;
  bool derived;               /* made after loading, not a parameter */
  size_t offset_bytes, bytes; /* in the window */
} treadle_storage_info;

/* How many storage tensors a rank has. Else, also for a rank out of range: -1. */
int32_t treadle_layout_storage_count(const treadle_layout *layout, int64_t rank);
/* Facts about storage tensor number `storage` of a rank, from 0. Refused: a rank or a number out of range. */
treadle_status treadle_layout_storage(const treadle_layout *layout, int64_t rank, int32_t storage,
                                      treadle_storage_info *info_p);
/* The number of the storage tensor with this name on that rank; the first one, if several virtual stages have the name. Else, also
 * for a name that the rank does not have: -1. */
int32_t treadle_layout_find(const treadle_layout *layout, int64_t rank, const char *name);

/* What padding holds; in treadle_run.tensor in place of a tensor's number. */
enum { TREADLE_FILL_ZEROS = -1, TREADLE_FILL_MINUS_INFINITY = -2 };

/* A maximal run of a storage tensor's row-major elements: element local_start + i is element
 * start + i * stride of the Hugging Face tensor `tensor`, plus `add`, for i < count. If `tensor` is below 0, the run is padding:
 * TREADLE_FILL_ZEROS or TREADLE_FILL_MINUS_INFINITY. An element of an array: this struct is frozen. */
typedef struct treadle_run {
  int64_t local_start;
  int32_t tensor;
  int64_t start, stride, count;
  int8_t add; /* what is stored is the tensor's value plus this */
} treadle_run;

/* How a layout cuts the model's largest tensor, experts stacked. */
typedef struct treadle_cut_info {
  size_t struct_size;
  const char *
      tensor; /* Hugging Face's name, with * for experts; lives as long as the model; NULL: the model has no tensor */
  int ndim;
  int64_t shape[4];
  size_t bytes;
  int64_t parts;
  int64_t part_shape[4]; /* of the largest part */
  size_t part_bytes;
  int64_t holders_min, holders_max; /* how many ranks have a part */
} treadle_cut_info;

treadle_status treadle_layout_largest_cut(const treadle_layout *layout, treadle_cut_info *info_p);

/* The runs of one storage tensor, in order, each local element once: *count_p of them. The caller frees *runs_p with free(); on
 * failure it is NULL. */
treadle_status treadle_layout_runs(const treadle_layout *layout, int64_t rank, int32_t storage,
                                   treadle_run **runs_p, size_t *count_p);

/* ---- Plans: what one rank copies --------------------------------------------------------------- */

typedef struct treadle_plan treadle_plan;

typedef struct treadle_plan_options {
  size_t struct_size;
  size_t page_bytes; /* a power of two from 4 KiB; 0: 2 MiB */
  size_t cap_bytes;  /* memory of a switch beyond max(train, infer); 0: the larger of 256 MiB and cap_min */
  /* 0: chosen from cap, for this rank alone. Ranks that switch together need the same number; treadle_switch_create makes them agree
   * on one. */
  int32_t waves;
  /* Whole pages that hold the same bytes in both windows are shared, not copied. Storage tensors of the to-window then lie
   * where treadle_plan_storage says. */
  bool alias;
  bool keep_params; /* the from-window stays as it is, and the way back has nothing to do */
  /* [ranks] equal for ranks of one node, which need not be neighbours; NULL: all ranks are on one. Then what enters a node does so once: of
   * its ranks that need it one pulls it, and the others read it there. Ranks that switch together say the same. */
  const int32_t *node_of;
} treadle_plan_options;

/* Makes the plan of `rank` from one layout to another, with the way back. Pure: the same input gives the same plan everywhere; no
 * other rank's plan is made. Both layouts have the same model and number of ranks, and must outlive the plan. Options may be NULL.
 * On failure *plan_p is NULL. */
treadle_status treadle_plan_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                   const treadle_plan_options *options, treadle_plan **plan_p);
void treadle_plan_destroy(treadle_plan *plan);

typedef struct treadle_plan_info {
  size_t struct_size;
  size_t from_bytes, to_bytes; /* windows, rounded up to pages; without padding */
  size_t moved_bytes;          /* pulled from other ranks, direction `to` */
  size_t lower_bound_bytes;    /* destination bytes that the rank does not already hold */
  size_t resident_bytes;       /* copied from this rank's own window, or aliased */
  size_t back_moved_bytes, back_lower_bound_bytes;
  int32_t waves;
  size_t page_bytes;
  size_t cap_bytes;        /* as given or chosen */
  size_t cap_min_bytes;    /* the smallest cap that this rank can do with */
  size_t peak_bytes;       /* device bytes at the fullest moment, both directions */
  size_t peak_bound_bytes; /* max(from, to) + cap; with keep_params from + to + cap; without padding */
  size_t padding_bytes;    /* what alias adds to the to-window */
  size_t infer_bytes;      /* of the to-window: data and fills */
  size_t copied_bytes;     /* of these, data that is written; the rest is fills and */
  size_t aliased_bytes;    /* what lies on pages of both windows */
  uint64_t digest;         /* of the inputs; equal on all ranks that run the same plan */
  bool lossless;           /* the way back gives the same bits */
  size_t node_moved_bytes; /* of those moved, from other nodes; */
  size_t relayed_bytes;    /* and from ranks of this node that have them from other nodes */
  size_t back_node_moved_bytes;
} treadle_plan_info;

void treadle_plan_get_info(const treadle_plan *plan, treadle_plan_info *info_p); /* else zeros */
/* As treadle_layout_storage, for this rank's to-window as the plan arranges it. */
treadle_status treadle_plan_storage(const treadle_plan *plan, int32_t storage,
                                    treadle_storage_info *info_p);
/* As treadle_layout_find, for this rank's to-window. Else -1. */
int32_t treadle_plan_find(const treadle_plan *plan, const char *name);
/* Is page number `page` of the to-window shared with the from-window (alias)? Else, also for a page out of range: false. */
bool treadle_plan_shares(const treadle_plan *plan, int64_t page);
/* Bytes pulled from each rank, direction `to`: bytes [ranks of the layout]. Without a plan it is not written. */
void treadle_plan_inbound(const treadle_plan *plan, size_t *bytes);
/* Writes the plan as text to `file`, which stays open: a line for each copy, wave by wave. */
treadle_status treadle_plan_print(const treadle_plan *plan, FILE *file);

/* ---- Reports: the plans of all ranks ------------------------------------------------------------ */

typedef struct treadle_report treadle_report;

typedef struct treadle_report_options {
  size_t struct_size;
  size_t page_bytes; /* as in treadle_plan_options */
  size_t cap_bytes;  /* 0: what the budget leaves, or the larger of 256 MiB and the smallest of all ranks */
  /* Device bytes that no rank may exceed; 0: no budget. A budget that is too small is not an error: the report is made with the
   * smallest cap, and `fits` is false. */
  size_t budget_bytes;
  bool alias;    /* as in treadle_plan_options */
  bool one_rank; /* report only on `rank`, from its own plan */
  int64_t rank;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
  /* [ranks] as in treadle_plan_options. Over several nodes a report of all ranks looks at each of them: 2 to 10 ms a rank. */
  const int32_t *node_of;
} treadle_report_options;

/* Chooses cap and waves as a switch of these layouts would, and measures one rank of each set of equal ranks, in several threads. Both
 * layouts have the same model and number of ranks, and must outlive the report. Options may be NULL. On failure *report_p is NULL. Any
 * number of threads may use a report. */
treadle_status treadle_report_create(const treadle_layout *from, const treadle_layout *to,
                                     const treadle_report_options *options, treadle_report **report_p);
void treadle_report_destroy(treadle_report *report);

typedef struct treadle_report_info {
  size_t struct_size;
  int64_t ranks;
  int32_t sets;     /* how many sets of equal ranks; 0 for one rank */
  bool has_inbound; /* treadle_report_inbound can be called: a report over all ranks, at most 16 of them */
  size_t page_bytes;
  size_t model_bytes;
  size_t moved_bytes, lower_bound_bytes, resident_bytes; /* sums over ranks, as in treadle_plan_info */
  size_t infer_bytes, copied_bytes, aliased_bytes;       /* and these */
  int32_t waves;
  size_t cap_bytes, cap_min_bytes;
  size_t from_bytes, to_bytes; /* the largest windows, rounded up to pages */
  size_t peak_bytes;           /* the largest */
  size_t bound_bytes;          /* the bound of the rank whose peak comes nearest to its bound: */
  int64_t tight_rank;          /* this rank */
  double inbound_max,
      inbound_mean; /* bytes that a rank receives over model_bytes; for one rank the mean is NaN */
  /* Bytes that a rank sends or receives, whichever is more: the largest over the mean. Above 128 ranks of received bytes alone. For
   * one rank NaN. */
  double link_load;
  bool fits;               /* without a budget: true */
  size_t budget_min_bytes; /* the smallest budget */

  /* Between nodes, direction `to`; with one node 0. For one rank: what that rank receives and sends (but for fp8 blocks that
   * are made or taken apart), and the bound of its node. */
  int32_t nodes;
  size_t node_moved_bytes; /* entering nodes, all together */
  /* Each element that some rank of a node wants and none has, once for each node, in the narrower type. Rows of fp8 blocks that are made
   * or taken apart on the way may move more. */
  size_t node_lower_bound_bytes;
  size_t node_inbound_max_bytes, node_outbound_max_bytes; /* of a node */
  /* Bytes that a node sends or receives, whichever is more: the largest over the mean; 1 where there are none. For one rank NaN. */
  double node_link_load;
  size_t relayed_bytes; /* read from ranks of the same node that have them from other nodes */
  /* Memory for messages on their way between nodes, both directions: the largest over ranks. */
  size_t staging_bytes;
} treadle_report_info;

void treadle_report_get_info(const treadle_report *report, treadle_report_info *info_p); /* else zeros */
/* The figures of one rank, without the digest and, in a report over all ranks, without cap and waves. */
treadle_status treadle_report_rank(const treadle_report *report, int64_t rank, treadle_plan_info *info_p);
typedef struct treadle_node_info {
  size_t struct_size;
  int64_t ranks;
  size_t moved_bytes;       /* from other nodes */
  size_t lower_bound_bytes; /* of them */
  size_t sent_bytes;        /* to other nodes */
} treadle_node_info;

/* The figures of a node between nodes, which are numbered by their first ranks. In a report of one rank that rank's node has some: what
 * the rank receives and sends, and the bound of the node. */
treadle_status treadle_report_node(const treadle_report *report, int32_t node, treadle_node_info *info_p);
/* Bytes that a rank pulls from each rank: bytes [ranks]. Refused unless has_inbound. */
treadle_status treadle_report_inbound(const treadle_report *report, int64_t rank, size_t *bytes);

/* ---- Groups: the ranks that switch together -----------------------------------------------------
 *
 * A time limit is for a whole call, however many ranks it waits for, and counts from the begin of the call. A call that gives up
 * returns at most a tenth of a second after its limit, even when other processes keep the processor busy. A limit is above 0,
 * finite and at most 2^30 seconds; anything else is refused. */

typedef struct treadle_group treadle_group;

/* One rank, this process. */
treadle_status treadle_group_self(treadle_group **group_p);

/* A group of processes of one machine that agree on a name (letters and digits, unique on the machine while it is used). Rank 0
 * opens the name, the others join. 1 to 1024 ranks. Collective; waits at most timeout_seconds, which is also the limit of
 * treadle_group_barrier and treadle_group_gather. The meeting fails for all as soon as the time of one rank that has found rank 0 is
 * over. On failure *group_p is NULL. */
treadle_status treadle_group_open(const char *name, int rank, int size, double timeout_seconds,
                                  treadle_group **group_p);

/* A place where ranks leave bytes under keys for each other: torch.distributed's store, a database, a folder. Functions fail with a status and
 * treadle_error_set. */
typedef struct treadle_store {
  size_t struct_size;
  void *context;
  /* Keeps [bytes] under a key, in place of what was there. */
  treadle_status (*set)(void *context, const char *key, const void *value, size_t bytes);
  /* Waits until the key is there, at most `seconds` (then TREADLE_TIMEOUT; 0: it only looks, and one that cannot says so, too), and gives what
   * it has: at most `capacity` bytes of it in `value`, and how many there are in *bytes_p. */
  treadle_status (*get)(void *context, const char *key, double seconds, void *value, size_t capacity,
                        size_t *bytes_p);
  const char *
      job; /* a part of all keys, of 1 to 200 bytes; NULL: "0". Groups that meet at the same time need different ones */
} treadle_store;

/* A store that the ranks of a job have between them: rank 0 serves it on an address of its machine, in a thread of its own; the others ask
 * it over TCP. Nothing of it is secret: who reaches the address and knows the job's name can take part. */
typedef struct treadle_store_options {
  size_t struct_size;
  const char *
      address; /* of rank 0's machine, which listens there and nowhere else: "10.0.0.1:7000", "[fe80::1%eth0]:7000", "name:7000" */
  const char *job;        /* 1 to 200 bytes; who comes with another name is refused */
  int rank, ranks;        /* 1 to 1024 ranks */
  double timeout_seconds; /* until all ranks are there; 0: 60 */
} treadle_store_options;

/* Waits until all ranks have called it, in any order. Others than rank 0 connect again and again; what else connects to the address holds up nobody.
 * Refused, on both sides: the same rank twice, another number of ranks, another job, another version of treadle's messages; on rank 0: an
 * address that is not this machine's, a port that is in use. TREADLE_TIMEOUT: rank 0, which tells the others, names the ranks that did not
 * come. TREADLE_PEER: a rank came and left. *store_p has its struct_size before; then it can be given to treadle_group_store. Keys have 1
 * to 250 bytes, values at most 1 MiB, all together 256 MiB. One thread at a time may use it; a name is looked up for as long as the
 * system's resolver takes. On failure *store_p has no functions. Collective. */
treadle_status treadle_store_open(const treadle_store_options *options, treadle_store *store_p);
/* Rank 0 waits until the others have closed theirs, so that they have what they ask for: until timeout_seconds after treadle_store_open began, but
 * at least a second. A store that is not of treadle_store_open stays as it is. */
void treadle_store_close(treadle_store *store);

/* A group of processes that meet by a store, which is not used afterwards. What an older job has left under the same keys does no harm. Ranks
 * may be on several nodes (machines): the first ones of each reach each other at the addresses by which they reached the store, and a
 * switch moves what goes between nodes by a net (treadle_net_ops). The built-in engines need all ranks on one node.
 *
 * node: which node this rank is on, any number from 0, equal for ranks of one node; -1 on all ranks: it is found, by what the kernel says of itself
 * (boot id, network and process namespace). Ranks that give the same number have to be in one kernel and its namespaces, too. Refused
 * for all, with the ranks: other sizes, other versions of treadle, some numbers given and others not. Else as treadle_group_open. */
treadle_status treadle_group_store(const treadle_store *store, int rank, int size, int node,
                                   double timeout_seconds, treadle_group **group_p);

/* Where a process is. Ranks give it to each other as it is: this struct is frozen. */
typedef struct treadle_node_address {
  uint8_t node[32]; /* equal for processes of one node: boot id, network and process namespace */
  /* By which others may reach this node, with a port of it that nobody has now: "10.0.0.1:40123", for treadle_store_open; "": none. */
  char address[128];
  bool outside; /* the address is not that of the loopback alone */
} treadle_node_address;

/* Where this process is. The address is the one from which this machine would send to a far one (that of its default route); where nothing
 * leads far away, the first one of an interface that leads outside, else that of the loopback. IPv4 comes before IPv6. Nothing is sent, and
 * nothing stays open: another process may take the port before it is used. */
treadle_status treadle_machine_address(treadle_node_address *address_p);

/* A group of the ranks of an MPI communicator. It is in a library of its own: link with -ltreadle_mpi, too. comm points to an MPI_Comm; NULL is MPI_COMM_WORLD. MPI must be
 * initialised. MPI is used in this call, so that the ranks meet, and never again. Collective. On failure *group_p is NULL.
 *
 * Ranks on several nodes (machines, or parts of one: treadle_group_store) meet further by a store, which rank 0 serves until all have met: at the address by
 * which its machine reaches others and at a port that is free, and at no other. Refused, where its machine has none: meet by treadle_store_open, with
 * an address.
 *
 * timeout_seconds bounds all waits after MPI's part, and those of treadle_group_barrier and treadle_group_gather. MPI's own calls have
 * no limit: MPI_Init, before this function, and MPI_Allreduce and MPI_Bcast in it wait for a missing rank until
 * the launcher ends the job. If that matters, use a launcher with a limit (mpirun --timeout), or treadle_group_open. If a rank's
 * arguments are refused, the others learn it through MPI and fail, too. */
treadle_status treadle_group_mpi(const void *comm, double timeout_seconds, treadle_group **group_p);

int treadle_group_rank(const treadle_group *group); /* else -1 */
int treadle_group_size(const treadle_group *group); /* else -1 */
/* Which node a rank is on: nodes are numbered from 0, by their first ranks. Else -1. */
int treadle_group_node(const treadle_group *group, int rank);
/* Waits until all ranks have called it. TREADLE_TIMEOUT; TREADLE_PEER when a rank died or failed. Collective. */
treadle_status treadle_group_barrier(treadle_group *group);
/* Every rank gives `bytes` bytes (at most 4096, the same number on all) and gets those of all in rank order: all [ranks * bytes]. A
 * call that is refused does not count, so the other ranks wait until their limit. Fails as treadle_group_barrier does. Collective. */
treadle_status treadle_group_gather(treadle_group *group, const void *mine, size_t bytes, void *all);
/* A way for messages between nodes, as a table of functions: treadle_device.h says how to write one. */
typedef struct treadle_net_ops treadle_net_ops;

/* Switches that are made on the group then move what goes between nodes by this net, in place of "tcp"; the same on all ranks, and before the first
 * of them. context: of its options when it is opened. It is closed after an attempt that failed, and opened again for the next one; the row may
 * refuse that. Functions are called by whichever thread runs an arrow, one at a time, also while the switch is destroyed. *ops and what it needs stay until the
 * group is closed. Refused: a table that lacks a function or a name, or has no part for a message, or none in host memory. Local. */
treadle_status treadle_group_set_net(treadle_group *group, const treadle_net_ops *ops, void *context);
/* The same with a net that is there: "tcp" (sockets, what a group has by itself) or "ucx" (for InfiniBand). Refused: another name, with those that
 * there are; "ucx" in a library that was built without it. Whether UCX is on this machine is seen when a switch is made. Local. */
treadle_status treadle_group_choose_net(treadle_group *group, const char *name);

void treadle_group_close(treadle_group *group); /* local; ranks that still wait see that this one left */

/* ---- The switch --------------------------------------------------------------------------------- */

/* A switch owns a pool of pages on the device, and windows over them, one for each class of bytes below. All windows are mapped when
 * it is made and keep their addresses. If a mode does not hold a class, the contents of its window are undefined. A training engine
 *
 *   1. makes the switch (mode TRAIN, windows full of zeros), says how large gradients and optimizer state are, and fills the
 *      windows (treadle_switch_filled), or registers memory of its own in their place (treadle_switch_register);
 *   2. trains in mode TRAIN, in the windows;
 *   3. calls treadle_switch_to_infer, after which an inference engine reads the infer window and writes the KV window;
 *   4. calls treadle_switch_to_train, after treadle_switch_to_forward if it computes log-probabilities, and goes on at 2.
 *
 * What happens to each class on the way to INFER, and on the way back:
 *
 *   params      offload_train_param on      (default) overwritten; rebuilt from the infer params, or copied back (keep)
 *                                   off     stay, and may be trained on in mode INFER; infer params lie on other pages, and
 *                                           treadle_switch_update brings them to the next version
 *   gradients   offload_train_grad on       dropped: undefined afterwards; with keep_grads copied out and back
 *                                  off      (default) stay
 *   optimizer   offload_train_optimizer on  copied out and back
 *                                       off (default) stays
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
  TREADLE_WORK,         /* what an inference engine computes in: activations, packed copies of weights */
  TREADLE_TRAIN_WORK,   /* the same of a training engine */
  TREADLE_REFERENCE, /* parameters of another model in the training layout, such as the reference of a KL */
  TREADLE_CLASSES    /* more may follow in later versions */
} treadle_class;

/* What lies on the device in each mode; "kept" is what the offload flags do not send away.
 *
 *   TRAIN    params, gradients, optimizer state, the trainer's work memory
 *   FORWARD  params (for log-probabilities), the work memory that this takes, kept gradients and optimizer state; or, while it is
 *            shown (treadle_switch_show_reference), the reference in place of these two
 *   INFER    infer params, the engine's work memory, KV cache, kept params, gradients and optimizer state
 *   HOST     nothing
 *   LOST     nothing that can be used: a failure lost the weights
 *
 * Arrows, the changes of mode that there are: HOST -> INFER | FORWARD | TRAIN, TRAIN -> INFER, INFER -> FORWARD | TRAIN, FORWARD -> TRAIN,
 * TRAIN | FORWARD -> HOST. And INFER -> INFER with the next version (treadle_switch_update). */
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
 *   INFER   the infer parameters: the way back is the reverse plan. No host memory; refused where the way back would lose bits.
 *           A failure after the first page was reused loses the weights; they must then come from the last checkpoint.
 *   HOST    a copy in host memory as large as the window, the twin. The way back is a local copy, pairs may lose bits, and a
 *           failure at any moment leaves the training state as it was. */
typedef enum treadle_keep { TREADLE_KEEP_INFER = 0, TREADLE_KEEP_HOST } treadle_keep;

/* The inference engine in this process. `bind` is called in mode INFER, after the switch was committed and before
 * there is a KV cache: the engine may keep the address of the window, which never changes, read it, and write its window of work
 * memory. `unbind` is called before the windows are overwritten. If one returns another status than TREADLE_OK, the switch is undone: see
 * treadle_switch_to_infer. Both are called in the thread that runs the arrow: that of treadle_switch_to_infer, or the one that
 * treadle_switch_start has made. They may call the functions of the switch that any thread may call at any time, also
 * treadle_switch_cancel; others are refused.
 *
 * The weights are those of the plan's storage table, treadle_plan_storage of treadle_switch_plan(sw): with alias a storage tensor may
 * lie elsewhere than its layout says. Windows never move, but bind must look the plan up each time, since treadle_switch_rejoin
 * replaces it. The KV window may be used when the arrow has ended. */
typedef struct treadle_engine_hooks {
  size_t struct_size;
  void *context;
  treadle_status (*bind)(void *context, void *infer_window, size_t bytes);
  treadle_status (*unbind)(void *context);
  bool
      transforms; /* it changes the weights in their window after loading (other types, other orders): nothing is
                      aliased then, and they cannot be what keeps the training weights (keep=host, or params stay) */
  /* Tells the engine which switch it belongs to, at the end of treadle_switch_create; and NULL when the switch is destroyed, after
   * which its windows are gone. Not called for a switch that could not be made. NULL: the engine need not know. */
  void (*attach)(void *context, const treadle_switch *sw);
  size_t work_bytes;     /* of TREADLE_WORK, on the device in mode INFER; 0: none. Of this rank alone */
  size_t kv_block_bytes; /* of the engine's cache, where the options leave it open (0) */
} treadle_engine_hooks;

/* The memory that the pool and its windows are made of. */
typedef enum treadle_memory_kind { TREADLE_MEMORY_HOST = 0, TREADLE_MEMORY_CUDA } treadle_memory_kind;
typedef struct treadle_memory {
  treadle_memory_kind kind; /* host; others are refused by name, as this library has none of them */
  int device;               /* number of the device among those of this kind; host: 0 */
  void *stream;             /* the stream on which work is done; host: NULL */
} treadle_memory;

/* Memory of the caller in which a storage tensor lies: number `storage` of this rank (treadle_layout_storage, treadle_layout_find),
 * of as many bytes, row-major without gaps, aligned to its elements. An element of an array: this struct is frozen. */
typedef struct treadle_own_tensor {
  int32_t storage;
  void *memory; /* NULL where the tensor has no bytes */
  size_t bytes;
} treadle_own_tensor;

typedef struct treadle_switch_options {
  size_t struct_size;
  size_t page_bytes;      /* as in treadle_plan_options */
  size_t cap_bytes;       /* 0: the larger of 256 MiB and cap_min over all ranks */
  size_t budget_bytes;    /* device bytes that no rank may exceed; 0: the largest bound. With a budget and
                             no cap, cap = budget - what a switch needs without one */
  double timeout_seconds; /* of every wait; 0: 60. Otherwise as in a group */
  bool one_way;           /* allow a pair whose way back is not bit-exact; to_train is then refused */

  size_t grads_bytes, optimizer_bytes;    /* windows for them; 0: none. Of this rank alone */
  treadle_choice offload_train_param;     /* params leave the device in mode INFER (default: on) */
  treadle_choice offload_train_grad;      /* gradients leave it (default: off); they are dropped, */
  bool keep_grads;                        /* or with this copied to the host */
  treadle_choice offload_train_optimizer; /* optimizer state leaves it, to the host (default: off) */
  treadle_keep keep;
  bool host; /* mode HOST can be entered: host memory for all classes of training */
  /* Size of a block of the KV cache; 0: no cache. It gets as many whole blocks as fit on the pages that are free in mode INFER; with
   * a budget also on the pages that the budget leaves, and at least kv_bytes. 0: what the engine says. */
  size_t kv_block_bytes;
  /* Pages that hold the same bytes in both layouts are shared, not copied: storage tensors of the infer window then lie
   * where treadle_plan_storage says. */
  bool alias;
  bool guard_pages; /* for debugging: bytes that a mode does not hold are overwritten, and their windows
                            cannot be touched */
  const treadle_engine_hooks *engine; /* copied; NULL: none */
  /* For pictures of the memory: called with the device bytes of each class, [classes], whenever they change, in the thread of the
   * arrow. A library newer than the program may have more classes than TREADLE_CLASSES. */
  void (*watch)(void *context, const size_t *bytes, int classes);
  void *watch_context;
  /* Other memory that the caller will take on this rank while the switch exists. It counts when creation checks that there is
   * enough. */
  size_t other_bytes;
  treadle_memory memory;
  /* A plan of this rank that was made before. The switch runs the same plan, or is refused with the reason. It must be from `train` to
   * `infer`, or between equal layouts of the same model; page_bytes and cap_bytes are 0 or the plan's, alias is the plan's, and params
   * leave the device unless the plan has keep_params. Either every rank gives its own plan, all with one page size, cap and number of
   * waves (a report over all ranks has those that a switch would choose), or none does. NULL: the switch makes one. Not kept. */
  const treadle_plan *plan;
  /* The KV cache has at least as many whole blocks as these bytes hold: the pool gets pages for them, and a budget that is too small for
   * them is refused. Of this rank alone. 0: what is free. */
  size_t kv_bytes;
  /* Work memory of the training engine in mode TRAIN, and how much of it, from its begin, mode FORWARD has; what is in it is lost by each
   * arrow. And parameters of another model. 0: none. Of this rank alone. */
  size_t train_work_bytes, forward_work_bytes, reference_bytes;
  /* Own tensors: storage tensors of this rank that lie in memory of the caller, and are read and written where they are. The arrays are
   * copied; ranks may give different ones, or none. See "Own tensors" below. */
  const treadle_own_tensor *own_train, *own_infer;
  size_t own_train_count, own_infer_count;
  const char *
      net_devices; /* network devices between nodes, "eth0,eth1"; NULL: those of the address by which the ranks met. Not kept */
  /* Between nodes, an update sends only what has changed since the one before it: bit for bit, and the whole message where that is shorter.
   * Each rank then keeps, in host memory (stats.host_bytes), what it sent to other nodes last; and what it got, where its infer window has it in
   * another type, is own tensors, or the engine transforms it. After an arrow that failed, out of mode INFER or in a new group, the next one sends all. Params
   * must stay (offload_train_param off). On one node nothing is kept. */
  bool delta;
  /* The infer window has pages for two versions: an update (treadle_switch_update) writes the next one while the engine has the present
   * one, and the engine is unbound for the moment of the commit alone. The same on all ranks. Params must stay (offload_train_param off); with alias, own
   * infer tensors or treadle_switch_handle it is refused. treadle_switch_bound counts both versions; a budget in which they do not fit is refused with
   * the numbers. */
  bool double_infer;
  /* Params of this rank that were never given values (treadle_switch_filled) are switched like the others, as zeros. */
  bool allow_unfilled;
} treadle_switch_options;

/* Own tensors. A trainer, or an engine, whose tensors exist already gives their addresses when the switch is made. The pool has no pages
 * for them: where a window would have them it cannot be touched, and a window of own tensors alone holds no memory. (Pages that they share
 * with a tensor in the window are there.) Addresses never change. treadle_switch_tensor says where each tensor lies.
 *
 *   train   These are params that stay: on all ranks offload_train_param is off then (on, host and keep=host are refused). They are
 *           read, and never written, by a switch to INFER; the way back copies nothing. What a rank needs itself is copied once, from
 *           tensor to tensor. What others need is copied to staging first, pages of the pool that they can read, in each wave
 *           (stats.staged_bytes): twice what others read in the fullest wave, which must fit in the cap. Smaller caps take more waves.
 *   infer   They are written by a switch to INFER, and undefined from its begin until one has succeeded; in other modes they keep
 *           their bytes, and the caller may use them. Params must stay, or be kept in host memory (keep=host).
 *
 * Nothing is aliased where a rank has own tensors (alias is ignored), and plans know nothing of them: their figures are those of whole
 * windows. treadle_switch_bound counts the pages that windows really have; where params leave the device, it counts whole windows if that
 * is less than both. Engines that transform their weights may do so in own tensors; the built-in engine refuses own infer tensors when it is
 * bound. treadle_switch_trim and guard_pages are about pages of the pool. treadle_switch_register takes no params on a rank with own train
 * tensors. A switch that rejoins keeps its own tensors; the new ranks give theirs. Ranks read each other's staging in place.
 *
 * Refused, with rank and name: a number that is no storage tensor, the same one twice, another size, memory that is not mapped or may
 * not be read and written (by /proc/self/maps), that is not aligned to an element or overlaps another own tensor; tensors that become, or
 * are made of, fp8 blocks on the way. Memory must stay until the switch is destroyed; an arrow whose memory is gone is TREADLE_STATE. */

/* Makes the plan of this rank, agrees with the others on cap and waves, and compares digests. Then it creates the pool
 * (touching every page it will ever use) and the host memory, and maps all windows. The mode is TRAIN; windows hold
 * zeros. The group and the layouts must outlive the switch. Options may be NULL. Collective: if one rank is refused, all
 * ranks fail, except when its group is NULL. On failure *switch_p is NULL.
 *
 * Before the first page is touched, the ranks add up the memory that they will take. TREADLE_NO_MEMORY, with the numbers, if that
 * is more than the machine leaves, or a control group (v1 or v2) for the ranks in it, or RLIMIT_AS for a rank. */
treadle_status treadle_switch_create(treadle_group *group, const treadle_layout *train,
                                     const treadle_layout *infer, const treadle_switch_options *options,
                                     treadle_switch **switch_p);
/* Frees the switch and its memory. An arrow that was started is cancelled and waited for. Does nothing while another call changes
 * the switch, or in a callback of an arrow. Local. */
void treadle_switch_destroy(treadle_switch *sw);

/* Takes the switch to another group of as many ranks, after a rank of the old group died. This rank keeps its memory and its mode; new
 * ranks call treadle_switch_create instead and are in mode TRAIN. The old group is not used any more and may be closed
 * afterwards. Refused when the modes of the ranks differ, with one exception: if some are in TRAIN and this one is in INFER, it goes to
 * TRAIN, provided that params are in host memory (keep=host) or have stayed on the device. A rank in FORWARD or HOST must go to
 * TRAIN first. Collective in the new group.
 *
 * So an engine replica that comes in the place of a dead one gets the present version in full by the next switch to INFER. For a larger group a new
 * switch is made, over the same own train tensors; the old one serves until then. */
treadle_status treadle_switch_rejoin(treadle_switch *sw, treadle_group *group);

/* The window of a class: its address, which is the same for the life of the switch, and its size in *bytes_p, which may be NULL. An
 * empty window is NULL and 0 bytes, and so is that of a number that is not a class. Storage tensors lie at their offset_bytes (infer
 * params with alias: those of treadle_plan_storage), but for own tensors, whose addresses treadle_switch_tensor says. A
 * window may be used in modes that hold its class. Read-only are: params in mode FORWARD; in mode INFER the pages that both windows of
 * parameters share (a write there is a segmentation fault). */
void *treadle_switch_window(const treadle_switch *sw, treadle_class which, size_t *bytes_p);
/* Where storage tensor number `storage` of TREADLE_PARAMS or TREADLE_INFER_PARAMS lies: in its window, or in memory of the caller
 * (own tensors). Its size in *bytes_p, which may be NULL. Else, also for another class or number: NULL and 0. */
void *treadle_switch_tensor(const treadle_switch *sw, treadle_class which, int32_t storage,
                            size_t *bytes_p);
void *treadle_switch_train_window(const treadle_switch *sw); /* of TREADLE_PARAMS */
void *treadle_switch_infer_window(const treadle_switch *sw); /* of TREADLE_INFER_PARAMS */
/* The mode. While an arrow runs it is the old one, until the ranks have committed. Else TREADLE_LOST. */
treadle_mode treadle_switch_mode(const treadle_switch *sw);
/* How many switches to INFER were committed, and updates. */
uint64_t treadle_switch_version(const treadle_switch *sw); /* else 0 */
/* False in mode LOST; and in mode INFER while an update writes the infer window (with double_infer it does not), and after one has failed and left no version in it. Any
 * thread. */
bool treadle_switch_is_valid(const treadle_switch *sw);
/* The plan that the switch runs. It lives until the switch is destroyed, or until treadle_switch_rejoin replaces it. Else NULL. */
const treadle_plan *treadle_switch_plan(const treadle_switch *sw);

/* The reference: parameters that never change, in host memory, which the caller fills once. Else NULL and 0. */
void *treadle_switch_reference_twin(const treadle_switch *sw, size_t *bytes_p);
/* In mode FORWARD: the reference's window holds them until it is hidden, or the mode is left. Gradients and optimizer state that are on the
 * device leave it before, the latter to host memory; the way to TRAIN brings it back, and leaves gradients undefined. Twice is nothing.
 * TREADLE_STATE in another mode, or without a reference. Local. */
treadle_status treadle_switch_show_reference(treadle_switch *sw);
treadle_status treadle_switch_hide_reference(treadle_switch *sw);

/* Device bytes that a class holds now, counted in pages of the pool. A page that two windows share counts once: for the infer
 * params, or for params where these stay on the device. Else, also for a number that is not a class: 0. */
size_t treadle_switch_resident(const treadle_switch *sw, treadle_class which);

/* Registers `bytes` of the caller's own memory in place of a part of a window: of params (at byte `offset` of the window, whole
 * storage tensors), or of gradients or optimizer state (offset 0). It is copied out on the way to INFER and back on the way to TRAIN,
 * as the flags say. Params that stay (offload_train_param off) are the caller's in mode INFER, too: they are copied out on the way
 * there and by each update, and never back. The switch cannot reuse this memory; stats.foreign_bytes says how much it is. Refused: memory that is not
 * mapped or may not be read and written (by /proc/self/maps), that overlaps registered memory or a window, or that is not aligned to 16
 * bytes. It must stay, and stay writable, until the switch is destroyed. Only in mode TRAIN. Local. */
treadle_status treadle_switch_register(treadle_switch *sw, treadle_class which, size_t offset, void *memory,
                                       size_t bytes);

/* A window starts full of zeros, which look like weights. So every storage tensor of a rank's params must be given values: by
 * treadle_layout_load into the window; by a trainer that loads, resumes or makes up its weights there; as own tensors; by
 * treadle_switch_register; or by the caller, who writes them and then says so:
 *
 *   treadle_switch_filled          all of this rank
 *   treadle_switch_tensor_filled   storage tensor number `storage`, as treadle_switch_tensor counts them
 *
 * Until then these are refused, with the names of the first such tensors: a switch to INFER or FORWARD, an update, treadle_switch_digest
 * in mode TRAIN, and treadle_layout_save of the window. Collective calls are refused on all ranks. options.allow_unfilled lets zeros
 * through. Tensors that are padding alone may be zeros. Once is enough: values that went to another mode and came back count as given.
 * Local; any thread. */
treadle_status treadle_switch_filled(treadle_switch *sw);
treadle_status treadle_switch_tensor_filled(treadle_switch *sw, int32_t storage);

/* Says that gradients are being accumulated (`begun` is true), or no longer. Until then a switch to INFER is refused, since it would
 * lose them. Does nothing while an arrow runs. Local. */
void treadle_switch_accumulate(treadle_switch *sw, bool begun);

/* The arrows: changes of mode. Entering the current mode does nothing. An arrow that does not exist is refused, and both modes
 * are named. A call is refused (TREADLE_STATE) while another thread runs an arrow.
 *
 * To INFER, in this order: optimizer state goes to the host, gradients are dropped or go to the host, the weights move. When all ranks
 * have written every destination byte once, the ranks commit together. Then the engine is bound, and then there is a KV cache.
 *
 * When an arrow to INFER fails, it returns on every rank:
 *
 *   keep=host             the old state is there on all ranks, at whatever moment it failed
 *   keep=infer            the old state is there, unless a page was reused already; then the mode is LOST, and the message says so
 *   only a bind failed    with keep=infer the mode is INFER, nothing is bound, and treadle_switch_to_infer tries to bind again. So it
 *                         is after a failure on the way back that left the mode INFER
 *
 * Arrows to INFER, and out of it, are collective. The others are local copies, but all ranks must have taken them
 * before the next collective one. */
treadle_status treadle_switch_to_infer(treadle_switch *sw);
treadle_status treadle_switch_to_train(treadle_switch *sw);
treadle_status treadle_switch_to_forward(treadle_switch *sw);
treadle_status treadle_switch_to_host(treadle_switch *sw);

/* The next version in mode INFER: the engine is unbound, the weights are moved again from the params as they are now, all destination
 * bytes are proved to be written, the ranks commit together, and the engine is bound. The version grows by one. Ranks that train go on
 * doing so in mode INFER, in windows of params, gradients and optimizer state that stay on the device, or in registered memory; while an
 * update runs they may not write params, and the infer window may not be used (but see double_infer), until it has returned on this rank. The KV cache keeps its window, and its contents are left as
 * they are: they belong to the old version, and what becomes of them is the engine's affair.
 *
 * TREADLE_STATE: in another mode; in a switch whose params leave the device (offload_train_param is not off); in one with alias, whose
 * shared pages the trainer may not write. Params stay where they are on a rank that holds none. Collective.
 *
 * A failed update, for whatever reason, leaves params as they are and the mode INFER, with nothing bound. If no rank had begun to write,
 * the old version is there, and treadle_switch_to_infer binds it again. Else the infer window holds no version, on all ranks: it may not
 * be read, and the next update (or treadle_switch_to_infer, which then does the same) repairs it. treadle_switch_is_valid says which.
 * Where only a bind failed the new version is there, and unbound. The ways to TRAIN and FORWARD are open in any case.
 *
 * With double_infer the engine has the old version until all ranks have proved the next one: then it is unbound, the ranks commit, the window, at
 * its address, lies on the pages of the next version, and the engine is bound. Until unbind is called the window may be read; without an
 * engine on this rank, nobody says when its bytes change. An update that fails before the commit leaves the old version, which is valid throughout, and
 * bound; or, where engines were being unbound, to be bound again by treadle_switch_to_infer or the next update.
 *
 * treadle_switch_start_update starts it in a thread of its own, with test, wait and cancel as below. */
treadle_status treadle_switch_update(treadle_switch *sw);
treadle_status treadle_switch_start_update(treadle_switch *sw);

/* The same arrows in a thread beside the caller. treadle_switch_to_infer does what treadle_switch_start(sw, TREADLE_INFER) and
 * treadle_switch_wait do, but in the caller's thread. Some ranks may start an arrow while others call it.
 *
 * start   makes a thread that takes the arrow, and returns. An arrow that does not exist and a second start are refused at once. Until
 *         wait has returned, the switch uses the group; calls that would change the switch are refused, and a window may be used
 *         only if both modes hold it. Hooks and `watch` are called in the new thread, in which signals to the process are
 *         blocked. TREADLE_SYSTEM: the thread could not be made, and nothing has begun.
 * test    does not block: *done_p says whether the arrow has ended. wait says with what result.
 * wait    blocks until it has ended, and returns what treadle_switch_to_* would, with the message in this thread. Every start
 *         needs one wait (or treadle_switch_destroy). TREADLE_STATE: without a start, a second time, in two threads at once, or in a
 *         callback of the arrow.
 * cancel  asks the arrow that runs to end, whoever started or called it. From any thread, also in callbacks. It does not block.
 *         TREADLE_OK: the arrow was asked, now or before. TREADLE_STATE: no arrow runs.
 *
 * A cancelled arrow ends with TREADLE_CANCELLED on this rank and TREADLE_PEER on the others. The state is then the same as after any
 * other failure of that arrow (above). The arrow looks for the request wherever it waits for others and between copies. So it ends
 * within a tenth of a second plus the time of a copy of 64 MiB, or of one class of registered memory. After the ranks have committed it is
 * too late: the arrow ends as usual, with TREADLE_OK; while engines bind, only binding fails. Of the arrows that need no other rank,
 * only those to HOST can be cancelled.
 *
 * Progress: stats are updated after each wave. copied_bytes grows from 0 to copied_bytes of treadle_plan_get_info, filled_bytes to
 * the part of infer_bytes that is neither copied nor aliased. start, test, wait and cancel are local; the arrow is as said above. */
treadle_status treadle_switch_start(treadle_switch *sw, treadle_mode mode);
treadle_status treadle_switch_test(treadle_switch *sw, bool *done_p);
treadle_status treadle_switch_wait(treadle_switch *sw);
treadle_status treadle_switch_cancel(treadle_switch *sw);

/* Gives pages of the pool that no class holds now back to the system. The next switch that writes them takes them again, and is
 * slower. Local. */
treadle_status treadle_switch_trim(treadle_switch *sw);

/* treadle_switch_bound: the most bytes that this rank may hold during a switch. That is the sum of what stays on the device, the
 * larger of params and infer params (both if params stay), and the cap. treadle_switch_pool_bound: the most at any time, which is more
 * if training takes more, if infer params, work memory and the KV cache of kv_bytes do, or if a budget was given. Else 0. */
size_t treadle_switch_bound(const treadle_switch *sw);
size_t treadle_switch_pool_bound(const treadle_switch *sw);

typedef struct treadle_switch_stats {
  size_t struct_size;
  double seconds;         /* of the last switch, this rank, from entry to bind */
  double wait_seconds;    /* of these, spent waiting for others, */
  double offload_seconds; /* copying to the host, */
  double wave_seconds;    /* in the waves, without both, */
  double bind_seconds;    /* in the engine, */
  double load_seconds;    /* copying from the host */
  size_t copied_bytes;    /* destination bytes of data written */
  size_t pulled_bytes;    /* from other ranks, in the narrower dtype of both sides */
  size_t filled_bytes;
  size_t offloaded_bytes, loaded_bytes;
  size_t
      peak_bytes; /* device bytes accounted at the fullest moment of all switches so far, but for a KV cache that stays in an update */
  size_t pool_bytes;    /* what the pool's file holds (st_blocks) */
  size_t host_bytes;    /* host memory of the twins */
  size_t foreign_bytes; /* registered by the caller: stay where they are */
  size_t
      staged_bytes; /* of own tensors, copied once more in the last switch so that other ranks could read them */
  size_t own_bytes; /* of own tensors: they stay where they are */
  /* Several nodes: bytes of the last switch that came from other nodes to this rank, as they travelled; that it read of ranks of its node which
   * had them from other nodes; seconds that it waited for messages, or unpacked them; and what is set aside for messages. */
  size_t node_moved_bytes, relayed_bytes;
  size_t node_sent_bytes; /* and what it sent to other nodes */
  double net_seconds;
  size_t net_staging_bytes;
  /* With delta: bytes that this rank sent to other nodes in the last switch, heads of messages and all; and what they would have been without.
   * node_moved_bytes and node_sent_bytes are the same as without. */
  size_t dense_bytes, delta_bytes;
  /* Of the last update that was committed: from the unbind of the engine until it was bound again. */
  double unbound_seconds;
  /* Of the last switch between nodes, on this rank: packing messages and their sums; in the net; checking sums and unpacking. */
  double net_pack_seconds, net_wire_seconds, net_unpack_seconds;
  /* Bytes that came from other nodes right into the window, without a copy after the net. */
  size_t net_window_bytes;
} treadle_switch_stats;

/* The stats after the last wave, or after the last call that changed the switch, all of one moment; pool_bytes is of now. Any
 * thread. */
void treadle_switch_get_stats(const treadle_switch *sw, treadle_switch_stats *stats_p); /* else zeros */

/* The digest of the weights: a sum over all canonical elements, each once, of a hash of tensor, index and value. It is the same in
 * every layout that holds the same values. It reads the window of the present mode. Collective. */
treadle_status treadle_switch_digest(treadle_switch *sw, uint64_t *digest_p);

/* ---- Windows in other processes ------------------------------------------------------------------ */

/* A process on the same machine, such as an engine of its own, reads the infer parameters of a rank where they lie:
 *
 *   the rank       treadle_switch_handle; sends the bytes of the handle as it likes: a file, a socket, an argument
 *   the reader     treadle_attach: maps the window read-only, at one address until treadle_detach
 *                  treadle_attached_wait(version): the version is in the window;
 *                  treadle_attached_hold: it stays there; the reader generates; treadle_attached_release
 *
 * Each arrow out of mode INFER makes the version invalid and then waits, on every rank, until no process holds a window. After the time
 * limit of the switch it is refused on all ranks: TREADLE_TIMEOUT names the process that held, and mode, bytes and version are as before. A
 * holder that died is dropped at once. Without a hold a reader must expect that the bytes change under it, as soon as
 * treadle_attached_is_valid is false.
 *
 * When the switch was destroyed, or its process has died, the window stays mapped with the bytes that it had, no version is valid, and waits
 * return TREADLE_PEER. The window's arrangement and its storage tensors never change: treadle_switch_rejoin keeps the plan or is refused, so
 * readers stay attached. */

enum { TREADLE_HANDLE_BYTES = 4096 }; /* more than any handle has */

/* The handle of a window of this rank, of class TREADLE_INFER_PARAMS: *bytes_p bytes, the same each time. With the first one the switch gets
 * a thread and a local socket, by which readers of the same user get the pool (to read) and a small file (versions and holds). Refused:
 * another class; an engine that changes its weights (transforms); infer parameters that are own tensors; a `capacity` that is too small
 * (TREADLE_HANDLE_BYTES is enough). TREADLE_STATE while an arrow runs. In any mode. Local. */
treadle_status treadle_switch_handle(treadle_switch *sw, treadle_class which, void *handle, size_t capacity,
                                     size_t *bytes_p);

/* Ends all handles of the switch, for an owner that is done with it though its memory stays: readers keep the window as it is, no version is
 * valid for them and holds are over, their waits are TREADLE_PEER, and nobody attaches any more. TREADLE_STATE while an arrow runs. Local. */
treadle_status treadle_switch_withdraw(treadle_switch *sw);

/* A window of another process, or of this one. It needs nothing. Any number of threads may use it at once. In a child made by fork the
 * window is there, too, and what the parent holds is not the child's. */
typedef struct treadle_attached treadle_attached;

/* Attaches to a window by its handle. The pages are mapped but not touched. TREADLE_REFUSED, before anything is done by it: a handle that was
 * cut or altered, is of another format, another machine, another process namespace or another user. TREADLE_PEER: its process has died, or
 * its switch was destroyed. TREADLE_TIMEOUT: its process does not answer. On failure *attached_p is NULL. */
treadle_status treadle_attach(const void *handle, size_t bytes, double timeout_seconds,
                              treadle_attached **attached_p);
/* Lets go of what this process holds by it, and unmaps the window. NULL is nothing. */
void treadle_detach(treadle_attached *attached);

typedef struct treadle_attached_info {
  size_t struct_size;
  int32_t process; /* of the owner */
  int32_t rank, ranks;
  uint64_t version; /* the last one that was committed; 0: none */
  bool valid;       /* it is in the window now */
  bool alive;       /* the owner lives, and has not destroyed its switch */
  size_t page_bytes;
  char layout[256]; /* the begin of its text */
} treadle_attached_info;

void treadle_attached_get_info(const treadle_attached *attached,
                               treadle_attached_info *info_p); /* else zeros */

/* The window's address, which stays, and its size in *bytes_p, which may be NULL. Without bytes: NULL. It may be read only. */
const void *treadle_attached_window(const treadle_attached *attached, size_t *bytes_p);
/* The storage tensors, as treadle_plan_storage of the owner's plan says; by number from 0, and by name (the first with it; else -1). */
int32_t treadle_attached_storage_count(const treadle_attached *attached); /* else -1 */
treadle_status treadle_attached_storage(const treadle_attached *attached, int32_t storage,
                                        treadle_storage_info *info_p);
int32_t treadle_attached_find(const treadle_attached *attached, const char *name);

/* The last version that the owner has committed, in the window or not; and whether it is there now: the owner is in mode INFER. */
uint64_t treadle_attached_version(const treadle_attached *attached); /* else 0 */
bool treadle_attached_is_valid(const treadle_attached *attached);    /* else false */

/* Waits until a version of at least `version` is in the window. `watch` (NULL: nobody) is called every 50 ms or more often, and
 * ends the wait with TREADLE_CANCELLED. TREADLE_TIMEOUT: it did not come. TREADLE_PEER: the owner has died or destroyed its switch. */
treadle_status treadle_attached_wait(treadle_attached *attached, uint64_t version, double timeout_seconds,
                                     treadle_watcher watch, void *context);

/* Holds the version that is in the window, *version_p: its bytes stay until as many calls of release, or until this process dies. Holds do
 * not block. At most 64 objects hold a window at a time. TREADLE_STATE: there is no valid version, or those 64 hold already.
 * TREADLE_PEER: as above. */
treadle_status treadle_attached_hold(treadle_attached *attached, uint64_t *version_p);
/* Ends a hold of that version. TREADLE_STATE: this process holds no such version by this object. */
treadle_status treadle_attached_release(treadle_attached *attached, uint64_t version);

/* ---- Loading and saving -------------------------------------------------------------------------- */

/* Fills `window`, of treadle_layout_window_bytes, with what `rank` holds in `layout`: values of the checkpoint, or those that are
 * made up, where the model was opened so (treadle_model_weights). Refused: a model that has neither. TREADLE_DIFFERENT: a file became
 * shorter, or was written to, since the model was opened. The window may be NULL if it has no bytes. Local. */
treadle_status treadle_layout_load(const treadle_layout *layout, int64_t rank, void *window);
/* Does what treadle_layout_load does, with weights from where the caller says, however the model was opened. Files: refused if it has
 * none. Random: they are made up. None: treadle_layout_load itself. */
treadle_status treadle_layout_load_weights(const treadle_layout *layout, int64_t rank,
                                           treadle_weights weights, void *window);

typedef struct treadle_save_options {
  size_t struct_size;
  treadle_dtype
      dtype; /* of the files: fp32, bf16 or fp16; tensors whose type never changes keep it. TREADLE_DTYPE_NONE: as the layout has it */
  size_t shard_bytes; /* of the tensors in one file, at most, unless it has only one; 0: 5 GB */
  bool
      weights_only; /* config.json, tokenizer and what else stands beside the model's own weights are not written */
  const char *
      companions; /* a folder whose tokenizer and the like are written, in place of what stands beside the model's weights; NULL */
} treadle_save_options;

/* Saves the windows of all ranks as a Hugging Face folder, which treadle_model_open opens: safetensors under Hugging Face's names, a tied
 * tensor once, in several files with an index where one would be too large. What the model's own folder has beside its weights is copied; in
 * config.json the type of the tensors is told where it has changed. The rank of the group is that of the layout. Each rank writes a share
 * of the elements straight to their places, so that no rank has a whole tensor in memory; copies of an element are taken for equal.
 *
 * `folder` does not exist yet, or is empty; the folder above it exists. It is there, on the disk and whole, when the call has returned
 * TREADLE_OK, and not before. Until then the files are in FOLDER.PID-N.tmp beside it. That is removed when a rank fails or dies, and stays only
 * when rank 0 is killed at the very end, or all ranks are. If rank 0 does not answer in time after all else has succeeded, the others
 * fail, though the folder may come.
 *
 * Refused: quantised models, and models that are part of a larger one. group: NULL, and the layout has one rank. A window may be NULL if it
 * has no bytes. Options may be NULL. The windows do not change meanwhile. Waits as a barrier of the group does, before and after the
 * writing. Collective: if one rank is refused, all fail. */
treadle_status treadle_layout_save(treadle_group *group, const treadle_layout *layout, const void *window,
                                   const char *folder, const treadle_save_options *options);

/* ---- Converting checkpoints ---------------------------------------------------------------------
 *
 * From files to files, a few MiB at a time, so that memory does not depend on the model. A conversion that was killed at any
 * moment, or cancelled, is continued by the next one with the same inputs: a file has its name only when it is whole.
 *
 * Several processes may share one conversion: each opens it, and writes files rank, rank + ranks, ... The caller must make sure that
 * all processes have ended a step successfully before any of them begins the next one:
 *
 *   treadle_convert_open     checks names, shapes and types
 *   treadle_convert_compare  checks that copies of one weight in several files are the same (each process a part of them); not needed
 *                            if treadle_convert_resumes is true on rank 0
 *   treadle_convert_begin    rank 0: makes the folder, checks the room on the disk
 *   treadle_convert_write    writes the weights (each process a part of them)
 *   treadle_convert_finish   rank 0: writes the other files, last those by which others find the checkpoint
 *
 * Another order is TREADLE_STATE. After a step that has failed, so is every call except closing. One thread at a time. */
typedef struct treadle_convert treadle_convert;

typedef struct treadle_convert_options {
  size_t struct_size;
  const char *in, *out;  /* folders */
  const char *from, *to; /* layouts: "hf", "megatron:tp=2", "torch_dist" */
  const char *model;     /* of a source that is not hf: a directory or config.json; NULL: in/hf */
  const char *families;  /* as in treadle_model_options */
  bool trust;            /* copies of 1 MiB and more are not compared */
  int rank, ranks;       /* of the processes that share it; ranks 0: this one alone */
  treadle_watcher watch; /* bytes of this process's files; NULL: nobody */
  void *watch_context;
  /* Is told what is not as it should be where the conversion goes on all the same. NULL: nobody is told. */
  void (*warn)(void *context, const char *line);
  void *warn_context;
} treadle_convert_options;

/* Options are copied with the texts that they point to; the watcher's context is not. On failure *convert_p is NULL. Local. */
treadle_status treadle_convert_open(const treadle_convert_options *options, treadle_convert **convert_p);
treadle_status treadle_convert_compare(treadle_convert *convert);
treadle_status treadle_convert_begin(treadle_convert *convert);
treadle_status treadle_convert_write(treadle_convert *convert);
treadle_status treadle_convert_finish(treadle_convert *convert);
void treadle_convert_close(treadle_convert *convert);

/* The model that is converted, which lives as long as the conversion. Else NULL. */
const treadle_model *treadle_convert_model(const treadle_convert *convert);
/* On rank 0, after opening: was the same conversion begun before, so that copies were compared already? Else false. */
bool treadle_convert_resumes(const treadle_convert *convert);

typedef struct treadle_convert_figures {
  size_t struct_size;
  int64_t bytes_read, bytes_written; /* weights */
  int64_t tensors;                   /* of all files */
  int64_t files, resumed;  /* files of this process; those of them that an earlier run had finished */
  int64_t skipped, opaque; /* values of the source that are not weights */
} treadle_convert_figures;

/* What this process has done so far. */
void treadle_convert_get_figures(const treadle_convert *convert,
                                 treadle_convert_figures *figures_p); /* else zeros */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

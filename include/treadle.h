/* treadle: moves a language model's weights between the layout it is trained in and the layout it
 * generates in, on the same devices. This header is all a user of the library needs; it reads as a manual.
 *
 * The road through it:
 *
 *   1. treadle_model_open    which tensors there are: a Hugging Face directory or a config.json
 *   2. treadle_layout_create which part of them each rank holds, and where: "megatron:tp=4", "vllm:tp=2"
 *   3. treadle_plan_create   the exact copies of one rank, in waves; can be printed without any weights
 *   4. treadle_group_*       the ranks: one process, threads, or processes of an MPI launcher
 *   5. treadle_switch_*      windows of one pool of pages, and the state machine that runs the plan
 *
 * Conventions. Functions return treadle_status: 0 is good, the rest are negative, and
 * treadle_error_message() then says, in the calling thread, what is wrong with which tensor, rank or
 * number. Outputs come last and end in _p. Objects made by *_create or *_open are ended by *_destroy or
 * *_close, which take NULL. Offsets and counts are in elements, sizes in bytes, unless the name says
 * otherwise. The library never exits, never prints and never reads the environment.
 *
 * Arguments are checked before anything is done: NULL where something is needed, a rank or a storage tensor that is not
 * there, an enum or a number out of its range (sizes above 2^60, a time limit that is no number, a struct_size that is no multiple
 * of 8 or above 4,096). A function with a status then returns TREADLE_REFUSED, and outputs that are objects are NULL. Functions
 * without a status return what their
 * declaration says ("else ..."), or where it says nothing: -1 as a signed number, 0 as a size, NULL as a pointer or a text,
 * false; functions without a result do nothing, and fill an output with zeros. All leave the reason in
 * treadle_error_message(). Only options, and what is said to be optional, may be NULL. What cannot be checked: a pointer to
 * memory that is no such object any more, a text without an end, an array that is shorter than its count.
 *
 * While a model with weights is open, the library has a handler for SIGBUS: a file that somebody cuts off while it is
 * mapped becomes a failure that names it. It concerns itself with its own mappings only, hands everything else to the handler
 * that was there, and sets that again when the last model is closed. A program that sets its own meanwhile hands on from it.
 *
 * "Collective" means that every rank of the group calls the function, in the same order. Everything else is
 * local.
 *
 * Who must outlive whom, whose texts live how long, and which threads may call:
 *
 *   model    needs nothing. Its texts live as long as it does. It never changes: any number of threads may ask it.
 *   layout   needs its model. Its texts, and infos but for those of the model, live as long as it does. Never changes.
 *   plan     needs its two layouts. Never changes.
 *   report   needs its two layouts. Never changes.
 *   group    needs nothing. One thread at a time; rank and size may be asked by any. A switch that was started uses it until it
 *            was waited for.
 *   switch   needs its group and its two layouts; the caller's registered memory and what hooks point to must be there, too.
 *            One thread at a time changes it: what would do so beside an arrow is refused (TREADLE_STATE). Any thread may at any
 *            time cancel an arrow, test a started one, and ask for mode, version, stats, windows, bounds and the plan. Windows may
 *            be used by any thread, as modes say.
 *   convert  needs nothing: options are copied. One thread at a time.
 *
 * An object is ended by one thread, when no other uses it. Options are looked at during the call alone, but for callbacks and
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

#define TREADLE_VERSION        "0.1.0"
#define TREADLE_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch */

/* Those of the library that runs, which may be newer than this header. The text is never NULL and lives as long as the
 * program. */
int treadle_version_number(void);
const char *treadle_version_text(void);

/* Structs that begin with struct_size can grow: their user writes its size there, as this does, with all else zero:
 *
 *   treadle_plan_options options = TREADLE_INIT(treadle_plan_options);
 *
 * In C `{.struct_size = sizeof options, .page_bytes = 4096}` does the same. A library that knows more fields takes those that
 * are not there for zero, and leaves them out of what it fills; one that knows fewer refuses options and hooks in which a field
 * that it does not know is not zero, and fills those of others with zeros. Other structs are frozen, since arrays are
 * made of them; they say so. */
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
  TREADLE_CANCELLED = -8  /* who watches the work, or treadle_switch_cancel, has said so */
} treadle_status;

/* The word of a status: "refused", "no memory", ..., "unknown status". Never NULL. */
const char *treadle_status_text(treadle_status status);

/* What the last failure in this thread was; "" before the first. Valid until the next failure. One line of at most 1,023 bytes in
 * UTF-8: what it quotes may be any bytes, and control characters and what is no UTF-8 stand there as \xNN. */
const char *treadle_error_message(void);

/* Who watches long work is called now and then, in the thread that has called the function: what is being done ("plan of
 * equal ranks"), and how much of it. A result of false ends the work with TREADLE_CANCELLED. `doing` lives as long as the program. It may
 * not call the objects that are being worked on. */
typedef bool (*treadle_watcher)(void *context, const char *doing, int64_t done, int64_t total);

/* ---- Element types ----------------------------------------------------------------------------- */

typedef enum treadle_dtype {
  TREADLE_DTYPE_NONE = 0, /* not said: take the tensor's own */
  TREADLE_FP32,
  TREADLE_BF16,
  TREADLE_FP16,
  TREADLE_FP8_E4M3, /* 1 sign, 4 exponent, 3 fraction bits; up to 448, no infinity */
  TREADLE_INT32     /* of tables that no layout casts */
} treadle_dtype;

/* ---- The model: canonical tensors -------------------------------------------------------------- */

typedef struct treadle_model treadle_model;

typedef struct treadle_model_options {
  size_t struct_size;
  const char *families; /* folder of family files; NULL: those built into the library */
  /* Not 0: the model of another config, of the same structure and at most so many elements: fewer layers, experts, words and
   * heads, narrower matrices; without weights. For layouts of models that no machine here could hold. */
  int64_t scale_down;
} treadle_model_options;

/* Reads `path`, a Hugging Face directory (config.json and model.safetensors, one file or shards with
 * model.safetensors.index.json) or a config.json alone, and the family file that covers its model_type.
 * With weights, names, shapes and dtypes are compared with the family; a tensor that is missing or
 * left over is refused by name. Options may be NULL. On failure *model_p is NULL. */
treadle_status treadle_model_open(const char *path, const treadle_model_options *options,
                                  treadle_model **model_p);
void treadle_model_close(treadle_model *model);

typedef struct treadle_tensor_info {
  size_t struct_size;
  const char *name;    /* Hugging Face's name; lives as long as the model, as does */
  const char *same_as; /* tied: the canonical tensor that this name is a copy of; else NULL */
  int ndim;
  int64_t shape[4];
  int64_t elems;
  treadle_dtype dtype;
  int32_t layer; /* decoder layer, -1 outside */
} treadle_tensor_info;

int32_t treadle_model_tensor_count(const treadle_model *model); /* else -1 */
treadle_status treadle_model_tensor(const treadle_model *model, int32_t tensor,
                                    treadle_tensor_info *info_p);
const char *treadle_model_family(const treadle_model *model); /* lives as long as the model; else NULL */
int64_t treadle_model_elems(const treadle_model *model);      /* each canonical element once; else -1 */
int64_t treadle_model_bytes(const treadle_model *model);      /* else -1 */
bool treadle_model_has_weights(const treadle_model *model);   /* else false */

/* ---- Layouts: what each rank holds ------------------------------------------------------------- */

typedef struct treadle_layout treadle_layout;

typedef enum treadle_rank_map {
  TREADLE_CONTIGUOUS = 0, /* rank r takes coordinate r of the mesh; what vLLM expects */
  TREADLE_STRIDED,        /* inside each block of tp_train ranks, tp group j is ranks j, j+f, j+2f, ...
                             with f = tp_train / tp, which must be whole (MindSpeed-RL 2.0, HybridFlow) */
  TREADLE_BEST            /* of a fixed list, the smallest inbound maximum, then the smallest mean */
} treadle_rank_map;

typedef struct treadle_layout_options {
  size_t struct_size;
  treadle_rank_map rank_map; /* which rank takes which coordinate of this layout */
  /* Gives tp_train and, for TREADLE_BEST, the bytes that are there already; of the same model and rank count. Looked at
   * while the layout is made, and not kept. Needed by all rank maps but TREADLE_CONTIGUOUS. */
  const treadle_layout *train;
} treadle_layout_options;

/* Makes the layout `text` of a model on `ranks` ranks. The text form is described in docs/layouts.md:
 *   hf | megatron:tp=4,pp=2,vpp=2 | fsdp:dp=8 | fsdp2:dp=4,tp=2 | zero3:dp=8 | distopt:tp=2 |
 *   vllm:tp=2 | sglang:tp=4,attn_dp=2 | pieces:@file
 * A layout that cannot be is refused here, with the rule and the numbers. Options may be NULL. On failure *layout_p is
 * NULL. The model must outlive the layout. A layout never changes: any number of threads may ask it and make plans of it. */
treadle_status treadle_layout_create(const treadle_model *model, const char *text, int64_t ranks,
                                     const treadle_layout_options *options, treadle_layout **layout_p);

/* One storage tensor of a rank given piece by piece, for layouts that no rule describes. Boxes are in
 * the shape of the Hugging Face tensor; strides and offsets are elements of the storage tensor, row-major
 * shape `storage_shape`. What no piece covers is filled with zeros. Every number is checked against the tensor and the storage;
 * ranks from 0, 1 to 4 dimensions, sizes and strides from 1. An element of an array: this struct is frozen. */
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

treadle_status treadle_layout_from_pieces(const treadle_model *model, int64_t ranks,
                                          const treadle_explicit_piece *pieces, size_t count,
                                          treadle_layout **layout_p);

/* "contiguous", "strided" or, after TREADLE_BEST, which one it is ("strided:2"). Lives as long as the layout, as all of its
 * texts do. Else NULL. */
const char *treadle_layout_rank_map(const treadle_layout *layout);

void treadle_layout_destroy(treadle_layout *layout);
const char *treadle_layout_text(const treadle_layout *layout); /* parsing it gives the same layout */
int64_t treadle_layout_ranks(const treadle_layout *layout);    /* else -1 */
/* Is it one of training engines, or of files (hf, megatron, fsdp, pieces, ...)? Else one of inference engines. */
bool treadle_layout_is_train(const treadle_layout *layout); /* else false */
/* Not rounded to pages. Else, as for a rank that is none of the layout's: 0. */
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

/* Else, as for a rank that is none of the layout's: -1. */
int32_t treadle_layout_storage_count(const treadle_layout *layout, int64_t rank);
treadle_status treadle_layout_storage(const treadle_layout *layout, int64_t rank, int32_t storage,
                                      treadle_storage_info *info_p);
/* The number of the storage tensor that has this name on that rank, the first where several virtual stages have one of the
 * name. Else, as for a name that is none there: -1. */
int32_t treadle_layout_find(const treadle_layout *layout, int64_t rank, const char *name);

/* What padding holds, in the place of a tensor's number. */
enum { TREADLE_FILL_ZEROS = -1, TREADLE_FILL_MINUS_INFINITY = -2 };

/* A maximal run of a storage tensor's row-major elements: element local_start + i is element
 * start + i * stride of the Hugging Face tensor `tensor`, plus `add`, for i < count; below 0 it is a fill, TREADLE_FILL_ZEROS
 * or another one. An element of an array: this struct is frozen. */
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

/* The runs of one storage tensor, in order, each local element once. *runs_p is ended by free(); on failure it is NULL. */
treadle_status treadle_layout_runs(const treadle_layout *layout, int64_t rank, int32_t storage,
                                   treadle_run **runs_p, size_t *count_p);

/* ---- Plans: what one rank copies --------------------------------------------------------------- */

typedef struct treadle_plan treadle_plan;

typedef struct treadle_plan_options {
  size_t struct_size;
  size_t page_bytes; /* a power of two from 4 KiB; 0: 2 MiB */
  size_t cap_bytes;  /* memory of a switch beyond max(train, infer); 0: the larger of 256 MiB and cap_min */
  /* 0: chosen from cap, for this rank alone. Ranks that switch together need the same number: treadle_switch_create
   * settles it among them. */
  int32_t waves;
  /* Whole pages that hold the same in both windows are one page, and not copied: storage tensors of the to-window then lie
   * where treadle_plan_storage says. */
  bool alias;
  bool keep_params; /* the from-window stays as it is, and the way back has nothing to do */
} treadle_plan_options;

/* Makes the plan of `rank` from one layout to another, with the way back. Pure: the same input gives the
 * same plan everywhere; no other rank's plan is made. Layouts of the same model and rank count. They must
 * outlive the plan. Options may be NULL. On failure *plan_p is NULL. */
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
} treadle_plan_info;

void treadle_plan_get_info(const treadle_plan *plan, treadle_plan_info *info_p); /* else zeros */
/* As treadle_layout_storage, of the to-window as this plan arranges it. */
treadle_status treadle_plan_storage(const treadle_plan *plan, int32_t storage,
                                    treadle_storage_info *info_p);
/* The number of a storage tensor of the to-window, as treadle_layout_find. */
int32_t treadle_plan_find(const treadle_plan *plan, const char *name);
/* Is this page of the to-window one of the from-window, too (alias)? Else, as for a page that is none: false. */
bool treadle_plan_shares(const treadle_plan *plan, int64_t page);
/* Bytes pulled from each peer, direction `to`; bytes has room for all ranks of the layout. Without a plan it is not written. */
void treadle_plan_inbound(const treadle_plan *plan, size_t *bytes);
/* The plan as text: a line an operation, in waves. */
treadle_status treadle_plan_print(const treadle_plan *plan, FILE *file);

/* ---- Reports: the plans of all ranks ------------------------------------------------------------ */

typedef struct treadle_report treadle_report;

typedef struct treadle_report_options {
  size_t struct_size;
  size_t page_bytes; /* as in treadle_plan_options */
  size_t cap_bytes;  /* 0: what the budget leaves, or the larger of 256 MiB and the smallest of all ranks */
  /* Device bytes that no rank may exceed; 0: none. One that is too small is an answer: then the cap is the smallest, and
   * the report does not fit. */
  size_t budget_bytes;
  bool alias;    /* as in treadle_plan_options */
  bool one_rank; /* of `rank` alone, whose very plan is made */
  int64_t rank;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
} treadle_report_options;

/* Settles cap and waves as a switch of these layouts would, and measures one rank of each set of equal ranks, with several threads. Layouts of
 * the same model and rank count. They must outlive the report. Options may be NULL. On failure *report_p is NULL. Any number of
 * threads may ask a report. */
treadle_status treadle_report_create(const treadle_layout *from, const treadle_layout *to,
                                     const treadle_report_options *options, treadle_report **report_p);
void treadle_report_destroy(treadle_report *report);

typedef struct treadle_report_info {
  size_t struct_size;
  int64_t ranks;
  int32_t sets;     /* of ranks; 0 for one rank */
  bool has_inbound; /* treadle_report_inbound can be asked: a report over all ranks, and at most 16 */
  size_t page_bytes;
  size_t model_bytes;
  size_t moved_bytes, lower_bound_bytes, resident_bytes; /* sums over ranks, as in treadle_plan_info */
  size_t infer_bytes, copied_bytes, aliased_bytes;       /* and these */
  int32_t waves;
  size_t cap_bytes, cap_min_bytes;
  size_t from_bytes, to_bytes;      /* the largest windows, rounded up to pages */
  size_t peak_bytes;                /* the largest */
  size_t bound_bytes;               /* the bound of the rank with the least room, */
  int64_t tight_rank;               /* which is this */
  double inbound_max, inbound_mean; /* received by a rank over model_bytes; the mean of one rank is NaN */
  /* Sent and received by a rank: the largest over the mean. Above 128 ranks of what is received alone; of one rank NaN. */
  double link_load;
  bool fits;               /* without a budget: true */
  size_t budget_min_bytes; /* the smallest budget */
} treadle_report_info;

void treadle_report_get_info(const treadle_report *report, treadle_report_info *info_p); /* else zeros */
/* The figures of one rank, but for the digest and, in a report over all ranks, cap and waves. */
treadle_status treadle_report_rank(const treadle_report *report, int64_t rank, treadle_plan_info *info_p);
/* What a rank pulls from each peer: bytes has room for all ranks. */
treadle_status treadle_report_inbound(const treadle_report *report, int64_t rank, size_t *bytes);

/* ---- Groups: the ranks that switch together -----------------------------------------------------
 *
 * A time limit is of a whole call, however many ranks it waits for, and counts from its begin: a call that has to give up has
 * returned a tenth of a second after its limit at the latest, also beside other processes that take the processor. A limit is
 * above 0, finite and at most 2^30 seconds; anything else is refused. */

typedef struct treadle_group treadle_group;

/* One rank, this process. */
treadle_status treadle_group_self(treadle_group **group_p);

/* Processes of one machine that agree on a name (letters and digits, unique on the machine while it is
 * used); rank 0 opens the name, the others join. 1 to 1024 ranks. Collective; waits at most timeout_seconds, which is also the
 * limit of treadle_group_barrier and treadle_group_gather. The meeting fails when the time of the first rank is over that
 * has found rank 0. On failure *group_p is NULL. */
treadle_status treadle_group_open(const char *name, int rank, int size, double timeout_seconds,
                                  treadle_group **group_p);

/* The ranks of an MPI communicator, all on one machine. comm points to an MPI_Comm; NULL is
 * MPI_COMM_WORLD. MPI must be initialised. MPI is used here to meet and never again. Collective.
 *
 * timeout_seconds bounds all that comes after MPI's part. MPI's own calls have no limit: MPI_Init, before this function, and
 * MPI_Comm_split_type, MPI_Allreduce and MPI_Bcast in it wait for ever for a rank that does not come, or until the launcher
 * ends the job. Where that matters, start with a launcher that has a limit (mpirun --timeout), or meet by
 * treadle_group_open. A rank whose arguments are refused says so to the others, by MPI. */
treadle_status treadle_group_mpi(const void *comm, double timeout_seconds, treadle_group **group_p);

int treadle_group_rank(const treadle_group *group); /* else -1 */
int treadle_group_size(const treadle_group *group); /* else -1 */
/* All ranks arrive, or TREADLE_TIMEOUT, or TREADLE_PEER when one died or failed. Collective. */
treadle_status treadle_group_barrier(treadle_group *group);
/* Every rank gives `bytes` bytes (at most 4096, the same on all) and gets those of all, in rank order. A rank whose
 * arguments are refused has not called: the others wait until their limit. Collective. */
treadle_status treadle_group_gather(treadle_group *group, const void *mine, size_t bytes, void *all);
void treadle_group_close(treadle_group *group); /* local; peers that still wait see that this rank left */

/* ---- The switch --------------------------------------------------------------------------------- */

/* A switch owns a pool of pages on the device, and windows over them, one for each class of bytes below. All windows are mapped
 * when it is made and keep their addresses; what a mode does not hold, its window has no bytes for. A training engine
 *
 *   1. makes the switch (mode TRAIN, windows full of zeros), says how large gradients and optimizer state are, and fills the
 *      windows, or registers memory of its own in their place (treadle_switch_register);
 *   2. trains in mode TRAIN, in the windows;
 *   3. calls treadle_switch_to_infer, after which an inference engine reads the infer window and writes the KV window;
 *   4. calls treadle_switch_to_train, by way of treadle_switch_to_forward where log-probabilities are wanted, and goes on at 2.
 *
 * What happens to a class on the way to INFER, and when it is back:
 *
 *   params      offload_train_param on      (default) overwritten; rebuilt from the infer params, or copied back (keep)
 *                                   off     stay; infer params lie on other pages
 *   gradients   offload_train_grad on       dropped: they mean nothing afterwards; with keep_grads copied out and back
 *                                  off      (default) stay
 *   optimizer   offload_train_optimizer on  copied out and back
 *                                       off (default) stays
 *
 * examples/04_training_engine.c does all of this. */
typedef struct treadle_switch treadle_switch;

/* What the device holds for whom. */
typedef enum treadle_class {
  TREADLE_PARAMS = 0,   /* parameters in the training layout */
  TREADLE_GRADS,        /* gradients */
  TREADLE_OPTIMIZER,    /* master weights and moments */
  TREADLE_INFER_PARAMS, /* parameters in the inference layout */
  TREADLE_KV,           /* KV cache */
  TREADLE_CLASSES
} treadle_class;

/* What lies on the device in each mode; "kept" is what the offload flags do not send away.
 *
 *   TRAIN    params, gradients, optimizer state
 *   FORWARD  params (for log-probabilities), kept gradients and optimizer state
 *   INFER    infer params, KV cache, kept params, gradients and optimizer state
 *   HOST     nothing
 *   LOST     nothing that means anything
 *
 * Arrows: HOST -> INFER | FORWARD | TRAIN, TRAIN -> INFER, INFER -> FORWARD | TRAIN, FORWARD -> TRAIN,
 * TRAIN | FORWARD -> HOST. */
typedef enum treadle_mode {
  TREADLE_TRAIN = 0,
  TREADLE_INFER = 1,
  TREADLE_LOST = 2,
  TREADLE_FORWARD = 3,
  TREADLE_HOST = 4
} treadle_mode;

/* "train", "infer", ...; "(none)" for a number that is none. Never NULL. */
const char *treadle_mode_text(treadle_mode mode);

typedef enum treadle_choice { TREADLE_DEFAULT = 0, TREADLE_OFF, TREADLE_ON } treadle_choice;

/* What keeps the training parameters while they are off the device.
 *
 *   INFER   the infer parameters: the way back is the reverse plan. No host memory; refused where the way back would lose bits.
 *           A failure after the first page was reused loses the weights: then the last checkpoint is what is left.
 *   HOST    a copy in host memory as large as the window, the twin. The way back is a local copy, pairs may lose bits, and a
 *           failure at any moment leaves the training state as it was. */
typedef enum treadle_keep { TREADLE_KEEP_INFER = 0, TREADLE_KEEP_HOST } treadle_keep;

/* The inference engine in this process. `bind` is called in mode INFER, after the switch was committed and before
 * there is a KV cache: the engine may keep the address of the window, which never changes. `unbind` is called
 * before the bytes of the window go. A status that is not TREADLE_OK undoes the switch: see
 * treadle_switch_to_infer. Both are called in the thread that runs the arrow: that of treadle_switch_to_infer, or the one that
 * treadle_switch_start has made. Of the switch they may call what any thread may at any time, treadle_switch_cancel, too; all else
 * is refused. */
typedef struct treadle_engine_hooks {
  size_t struct_size;
  void *context;
  treadle_status (*bind)(void *context, void *infer_window, size_t bytes);
  treadle_status (*unbind)(void *context);
  bool
      transforms; /* it changes the weights in their window after loading (other types, other orders): nothing is
                      aliased then, and they cannot be what keeps the training weights (keep=host, or params stay) */
} treadle_engine_hooks;

/* The memory that the pool and its windows are made of. */
typedef enum treadle_memory_kind { TREADLE_MEMORY_HOST = 0, TREADLE_MEMORY_CUDA } treadle_memory_kind;
typedef struct treadle_memory {
  treadle_memory_kind kind; /* host; others are refused by name, as this library has none of them */
  int device;               /* among those of its kind; host: 0 */
  void *stream;             /* on which work is done; host: NULL */
} treadle_memory;

typedef struct treadle_switch_options {
  size_t struct_size;
  size_t page_bytes;      /* as in treadle_plan_options */
  size_t cap_bytes;       /* 0: the larger of 256 MiB and cap_min over all ranks */
  size_t budget_bytes;    /* device bytes that no rank may exceed; 0: the largest bound. With a budget and
                             no cap, cap = budget - what a switch needs without one */
  double timeout_seconds; /* of every wait; 0: 60. Otherwise as in a group */
  bool one_way;           /* allow a pair whose way back is not bit-exact; to_train is then refused */

  size_t grads_bytes, optimizer_bytes;    /* windows for them; 0: none. Of this rank alone */
  treadle_choice offload_train_param;     /* params leave the device in mode INFER (on) */
  treadle_choice offload_train_grad;      /* gradients leave it (off): they are dropped, */
  bool keep_grads;                        /* or copied to the host */
  treadle_choice offload_train_optimizer; /* optimizer state leaves it, to the host (off) */
  treadle_keep keep;
  bool host; /* mode HOST can be entered: host memory for all classes of training */
  /* Of the KV cache; 0: none. It gets as many blocks as fit the pages that are free in mode INFER; with a budget, those
   * that the budget leaves, too. */
  size_t kv_block_bytes;
  /* Pages that hold the same bytes in both layouts are shared, not copied: storage tensors of the infer window then lie
   * where treadle_plan_storage says. */
  bool alias;
  bool guard_pages; /* a help for debugging: bytes that a mode does not hold are spoiled, and their windows
                            cannot be touched */
  const treadle_engine_hooks *engine; /* copied; NULL: none */
  /* Called with the device bytes of each class whenever they change, in the thread that changes them, as hooks are; for
   * pictures. */
  void (*watch)(void *context, const size_t bytes[TREADLE_CLASSES]);
  void *watch_context;
  /* Memory that the caller will take besides, on this rank, while the switch is there: it counts when creation asks whether
   * there is enough. */
  size_t other_bytes;
  treadle_memory memory;
  /* A plan of this rank, which was made before and looked at: the switch runs that one, or is refused in words. It is from `train`
   * to `infer`, or layouts that say the same of the same model; page_bytes and cap_bytes are 0 or the plan's, alias is the plan's, and
   * params leave the device unless it has keep_params. Every rank gives its own, all with one page size, cap and number of waves (a
   * report over all ranks has those that a switch would choose), or none does. NULL: the switch makes one. Not kept. */
  const treadle_plan *plan;
} treadle_switch_options;

/* Makes the plan of this rank, agrees with the others on cap and waves, compares digests, creates the pool
 * (touching every page it will ever use), the host memory, and maps all windows. Mode is TRAIN; windows hold
 * zeros. The group and the layouts must outlive the switch. Options may be NULL. Collective: one rank's refusal is every rank's
 * failure, but for a group that is NULL. On failure *switch_p is NULL.
 *
 * Before the first page is touched the ranks add up what they will take: TREADLE_NO_MEMORY, with the numbers, where that is
 * more than this machine, a control group (v1 or v2) with those of them that are in it, or a rank's RLIMIT_AS leaves. */
treadle_status treadle_switch_create(treadle_group *group, const treadle_layout *train,
                                     const treadle_layout *infer, const treadle_switch_options *options,
                                     treadle_switch **switch_p);
/* A switch that was started is cancelled and waited for. Does nothing while another call changes the switch, or from a callback of
 * an arrow. Local. */
void treadle_switch_destroy(treadle_switch *sw);

/* Takes the switch to another group of as many ranks, after one of the old group died: this rank keeps its memory
 * and its mode, those that are new call treadle_switch_create and are in mode TRAIN. The old group is not touched
 * any more and may be closed afterwards. Refused when the modes of the ranks differ; but where some are in TRAIN
 * and this one is in INFER, it goes to TRAIN when params are in host memory (keep=host) or have stayed on the
 * device. From FORWARD and HOST one goes to TRAIN first. Collective in the new group. */
treadle_status treadle_switch_rejoin(treadle_switch *sw, treadle_group *group);

/* A class's window: a stable address for the life of the switch; NULL when empty, and 0 bytes; so for a class that is none.
 * bytes_p may be NULL. Storage
 * tensors lie at their offset_bytes (infer params with alias: those of treadle_plan_storage). A window may be used in modes that
 * hold its class. For reading alone: params in mode FORWARD; in mode INFER the pages that both windows of parameters
 * share (a write there is a segmentation fault). */
void *treadle_switch_window(const treadle_switch *sw, treadle_class which, size_t *bytes_p);
void *treadle_switch_train_window(const treadle_switch *sw); /* of TREADLE_PARAMS */
void *treadle_switch_infer_window(const treadle_switch *sw); /* of TREADLE_INFER_PARAMS */
/* While an arrow runs: that from which it goes, until the ranks have committed. */
treadle_mode treadle_switch_mode(const treadle_switch *sw); /* else TREADLE_LOST */
/* How many switches to INFER were committed. */
uint64_t treadle_switch_version(const treadle_switch *sw); /* else 0 */
const treadle_plan *treadle_switch_plan(const treadle_switch *sw);

/* Device bytes that a class holds now, counted in pages of the pool. A page that two windows share counts once: for the infer
 * params, or for params where these stay on the device. Else, as for a class that is none: 0. */
size_t treadle_switch_resident(const treadle_switch *sw, treadle_class which);

/* The caller's own memory in place of a part of a window: of params (at byte `offset` of the window, whole
 * storage tensors), or of gradients or optimizer state (offset 0). It is copied out on the way to INFER and back
 * on the way to TRAIN, as the flags say; as it is the caller's, nothing of it can be reclaimed, which
 * stats.foreign_bytes tells. Refused: memory that is not mapped or may not be read and written (by /proc/self/maps), that
 * overlaps what is registered or a window, that is not aligned to 16 bytes. It must stay, and stay writable, until the switch is
 * destroyed. In mode TRAIN. Local. */
treadle_status treadle_switch_register(treadle_switch *sw, treadle_class which, size_t offset, void *memory,
                                       size_t bytes);

/* Gradients are being accumulated: while this is so (begun), a switch to INFER is refused, since it would lose them. Does nothing
 * while an arrow runs. Local. */
void treadle_switch_accumulate(treadle_switch *sw, bool begun);

/* The arrows. Entering the mode one is in does nothing; an arrow that is not there is refused, and both modes
 * are named. A call while another thread is in one is refused.
 *
 * To INFER: optimizer state goes to the host, gradients are dropped or go too, the weights move; nothing is bound
 * before all ranks have written every destination byte once and one word says committed; then the engine is
 * bound, then there is a KV cache. On failure every rank returns. With keep=host the old state stands on all of
 * them, whenever it happened. With keep=infer it stands until the first page was reclaimed, afterwards the mode is
 * LOST and the message says so; where only a bind failed, the mode is INFER, nothing is bound, and
 * treadle_switch_to_infer tries to bind again. So it is after a failure on the way back that left INFER standing.
 *
 * To INFER, and out of it: collective. The other arrows are local copies, but all ranks must have taken them
 * before the next collective one. */
treadle_status treadle_switch_to_infer(treadle_switch *sw);
treadle_status treadle_switch_to_train(treadle_switch *sw);
treadle_status treadle_switch_to_forward(treadle_switch *sw);
treadle_status treadle_switch_to_host(treadle_switch *sw);

/* The same beside the caller: treadle_switch_to_infer is treadle_switch_start(sw, TREADLE_INFER) and treadle_switch_wait, but that
 * it runs in the caller's thread and needs no other. Some ranks may start an arrow and others call it.
 *
 * start   makes a thread that takes the arrow, and returns. An arrow that is not there is refused at once, as is a second start.
 *         From here until wait has returned the group is the switch's; all that would change the switch is refused, and windows
 *         may be used only where both modes hold them. Hooks and `watch` are called in that thread, in which signals to the
 *         process are blocked. TREADLE_SYSTEM: there is no thread to be had, and nothing has begun.
 * test    does not block: *done_p says whether the arrow has ended. How, wait says.
 * wait    blocks until it has ended, and returns what treadle_switch_to_* would, with its message in this thread. Every start
 *         needs one wait (or treadle_switch_destroy). Without a start, a second time, in two threads and from a callback of the
 *         arrow: TREADLE_STATE.
 * cancel  from any thread, callbacks too: the arrow that runs, whoever started or called it, is to end. It does not block. TREADLE_OK
 *         says that the arrow was told, again after the first time; TREADLE_STATE that none runs: before start, after the end.
 *
 * An arrow that was told ends with TREADLE_CANCELLED on this rank and TREADLE_PEER on the others, and all stands as after any other
 * failure of that arrow (above). It looks for that wherever it waits for others and between copies, so it ends within a tenth of a
 * second and the time of a copy of 64 MiB, or of a class of registered memory. Where the ranks have committed already it is too late:
 * the arrow ends as ever, with TREADLE_OK; but while engines bind, only binding fails. Arrows that need no other rank can be
 * cancelled on the way to HOST; the others are done before they would look.
 *
 * Progress: stats are told after each wave. copied_bytes and filled_bytes go from 0 to copied_bytes of treadle_plan_get_info, and to
 * the rest of infer_bytes that is not aliased. Local, but for what the arrow does. */
treadle_status treadle_switch_start(treadle_switch *sw, treadle_mode mode);
treadle_status treadle_switch_test(treadle_switch *sw, bool *done_p);
treadle_status treadle_switch_wait(treadle_switch *sw);
treadle_status treadle_switch_cancel(treadle_switch *sw);

/* Gives pages of the pool that no class holds now back to the system; they are asked for again when they are next
 * written, which makes that switch slower. Local. */
treadle_status treadle_switch_trim(treadle_switch *sw);

/* The most bytes that this rank may hold in a switch: what stays on the device, the larger of params and infer params
 * (both where params stay), and the cap; and in all, where training takes more or a budget was given. Else 0. */
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
  size_t peak_bytes;    /* device bytes accounted at the fullest moment of all switches so far */
  size_t pool_bytes;    /* what the pool's file holds (st_blocks) */
  size_t host_bytes;    /* host memory of the twins */
  size_t foreign_bytes; /* registered by the caller: stay where they are */
} treadle_switch_stats;

/* As they were after the last wave, or the last call that changed the switch, all of one moment; pool_bytes are asked for now. */
void treadle_switch_get_stats(const treadle_switch *sw, treadle_switch_stats *stats_p); /* else zeros */

/* A sum over all canonical elements, each once, of a hash of tensor, index and value: the same in every
 * layout that holds the same values. Of the window of the present mode. Collective. */
treadle_status treadle_switch_digest(treadle_switch *sw, uint64_t *digest_p);

/* ---- Loading ------------------------------------------------------------------------------------ */

/* Fills `window` as `layout` places it on `rank`: from the checkpoint, or, for a model without weights, with
 * values made by a hash of tensor and canonical index. A file that became shorter, or was written to, since the model was
 * opened is TREADLE_DIFFERENT. The window may be NULL where it has no bytes. Local. */
treadle_status treadle_layout_load(const treadle_layout *layout, int64_t rank, void *window);

/* ---- Converting checkpoints ---------------------------------------------------------------------
 *
 * From files to files, a few MiB at a time, so that memory does not depend on the model. A conversion that was stopped at any
 * moment, or cancelled, is taken up by the next one of the same inputs: files stand under their names when they are whole.
 *
 * Several processes share one: each opens it, and writes files rank, rank + ranks, ... All have to have ended a step well
 * before any begins the next, which the caller sees to:
 *
 *   treadle_convert_open     everything that can be refused from names, shapes and types
 *   treadle_convert_compare  copies of one weight in several files are the same (a part on each process); not needed where rank 0
 *                            says treadle_convert_resumes
 *   treadle_convert_begin    rank 0: the folder, room on the disk
 *   treadle_convert_write    the weights (a part on each process)
 *   treadle_convert_finish   rank 0: what stands beside the weights, what makes the checkpoint be found
 *
 * Another order is TREADLE_STATE, and so is anything but closing after a step that has failed. One thread at a time. */
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
} treadle_convert_options;

/* Options are copied, and what they point to but for the watcher's context. On failure *convert_p is NULL. Local. */
treadle_status treadle_convert_open(const treadle_convert_options *options, treadle_convert **convert_p);
treadle_status treadle_convert_compare(treadle_convert *convert);
treadle_status treadle_convert_begin(treadle_convert *convert);
treadle_status treadle_convert_write(treadle_convert *convert);
treadle_status treadle_convert_finish(treadle_convert *convert);
void treadle_convert_close(treadle_convert *convert);

/* The model that is converted, as long as the conversion is there. Else NULL. */
const treadle_model *treadle_convert_model(const treadle_convert *convert);
/* Rank 0, once opened: was the same conversion begun before, so that its files were compared already? Else false. */
bool treadle_convert_resumes(const treadle_convert *convert);

typedef struct treadle_convert_figures {
  size_t struct_size;
  int64_t bytes_read, bytes_written; /* weights */
  int64_t tensors;                   /* of all files */
  int64_t files, resumed;            /* files that this process had to write; those that were there */
  int64_t skipped, opaque;           /* values of the source that are no weights */
} treadle_convert_figures;

/* What this process has done so far. */
void treadle_convert_get_figures(const treadle_convert *convert,
                                 treadle_convert_figures *figures_p); /* else zeros */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

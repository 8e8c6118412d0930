/* treadle for tools: reports on the plans of all ranks, conversions of checkpoints, families, the contents of a model,
 * generated models, the limits of the machine, and meeting by MPI.
 *
 * The conventions are those of treadle.h. A report needs its two layouts; the other objects of this header need no
 * other object to outlive them. Their texts live as long as they do, and any number of threads may use them, but a
 * conversion takes one thread at a time. All functions are local, except those of MPI and treadle_group_nodes. */
#ifndef TREADLE_TOOLS_H
#define TREADLE_TOOLS_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Reports: the plans of all ranks ------------------------------------------------------------ */

typedef struct treadle_report treadle_report;

typedef struct treadle_report_options {
  size_t struct_size;
  size_t page_bytes; /* as in treadle_plan_options */
  /* 0: what the budget leaves, or the larger of 256 MiB (CUDA: 1 GiB) and the smallest cap of all ranks. */
  size_t cap_bytes;
  /* Device bytes that no rank may exceed; 0: no budget. A budget that is too small is not an error: the report uses the
   * smallest cap, and `fits` is false. */
  size_t budget_bytes;
  bool alias;    /* as in treadle_plan_options */
  bool one_rank; /* report only on `rank`, from its own plan */
  int64_t rank;
  treadle_watcher watch; /* NULL: nobody */
  void *watch_context;
  /* [ranks] as in treadle_plan_options. Over several nodes, a report of all ranks takes 2 to 10 ms for each rank. */
  const int32_t *node_of;
  treadle_memory_kind memory; /* as in treadle_plan_options */
} treadle_report_options;

/* Chooses cap and waves as a switch between these layouts would. Then it measures one rank of each set of equal ranks,
 * in several threads. Both layouts have one model and one number of ranks, and must outlive the report. Any number of
 * threads may use a report. */
treadle_status treadle_report_create(const treadle_layout *from, const treadle_layout *to,
                                     const treadle_report_options *options, treadle_report **report_p);
void treadle_report_destroy(treadle_report *report);

typedef struct treadle_report_info {
  size_t struct_size;
  int64_t ranks;
  int32_t sets;     /* the number of sets of equal ranks; 0: a report of one rank */
  bool has_inbound; /* treadle_report_inbound works: a report of all ranks, at most 16 of them */
  size_t page_bytes;
  size_t model_bytes;
  size_t moved_bytes, lower_bound_bytes, resident_bytes; /* sums over ranks, as in treadle_plan_info */
  size_t infer_bytes, copied_bytes, aliased_bytes;       /* sums over ranks, as in treadle_plan_info */
  int32_t waves;
  size_t cap_bytes, cap_min_bytes;
  size_t from_bytes, to_bytes; /* the largest windows, rounded up to pages */
  size_t peak_bytes;           /* the largest of any rank */
  size_t bound_bytes;          /* the bound of tight_rank */
  int64_t tight_rank;          /* the rank whose peak comes nearest to its bound */
  /* Bytes that a rank receives, divided by model_bytes: the most, and the mean over ranks. For one rank the mean is
   * NaN. */
  double inbound_max, inbound_mean;
  /* A rank's load is the larger of the bytes that it sends and receives; above 128 ranks, the bytes that it receives.
   * This is the largest load divided by the mean load. For one rank it is NaN. */
  double link_load;
  bool fits;               /* within the budget; without a budget: true */
  size_t budget_min_bytes; /* the smallest budget that fits */

  /* Between nodes, direction `to`. With one node these are 0. A report of one rank has the bound of its node, and what
   * that rank receives and sends. It leaves out fp8 blocks that are encoded or decoded on the way. */
  int32_t nodes;
  size_t node_moved_bytes; /* that enter nodes, all nodes together */
  /* Elements that some rank of a node wants and no rank of that node has. Each counts once for each node, in the
   * narrower type. Rows of fp8 blocks that are encoded or decoded on the way may move more. */
  size_t node_lower_bound_bytes;
  size_t node_inbound_max_bytes, node_outbound_max_bytes; /* the largest of any node */
  /* A node's load is the larger of the bytes that it sends and receives. This is the largest load divided by the mean
   * load. If nothing moves, it is 1; for one rank it is NaN. */
  double node_link_load;
  size_t relayed_bytes; /* read from ranks of the same node that have them from other nodes */
  size_t staging_bytes; /* memory for messages between nodes, both directions; the largest over ranks */
} treadle_report_info;

void treadle_report_get_info(const treadle_report *report, treadle_report_info *info_p); /* else zeros */
/* The figures of one rank, without the digest. In a report of all ranks, cap and waves are missing too. */
treadle_status treadle_report_rank(const treadle_report *report, int64_t rank, treadle_plan_info *info_p);
typedef struct treadle_node_info {
  size_t struct_size;
  int64_t ranks;
  size_t moved_bytes;       /* from other nodes */
  size_t lower_bound_bytes; /* of moved_bytes */
  size_t sent_bytes;        /* to other nodes */
} treadle_node_info;

/* The figures of one node. Nodes are numbered from 0, in the order of their first ranks. A report of one rank has
 * figures for that rank's node alone: what the rank receives and sends, and the bound of the node. */
treadle_status treadle_report_node(const treadle_report *report, int32_t node, treadle_node_info *info_p);
/* The bytes that a rank pulls from each rank: bytes [ranks]. Refused, unless has_inbound is true. */
treadle_status treadle_report_inbound(const treadle_report *report, int64_t rank, size_t *bytes);

/* ---- Converting checkpoints ---------------------------------------------------------------------
 *
 * A conversion goes from files to files, a few MiB at a time, so its memory does not depend on the model. A file has
 * its name only when it is whole. So if a conversion was killed or cancelled, the next one with the same inputs
 * continues it.
 *
 * Several processes may share one conversion. Each opens it, and writes files rank, rank + ranks, ... The caller must
 * make sure that every process has succeeded at a step before any process starts the next one:
 *
 *   treadle_convert_open     checks names, shapes and types
 *   treadle_convert_compare  checks that copies of one weight in several files are equal; each process checks a part.
 *                            Not needed if treadle_convert_resumes is true on rank 0
 *   treadle_convert_begin    rank 0: makes the folder, checks the room on the disk
 *   treadle_convert_write    writes the weights; each process writes a part
 *   treadle_convert_finish   rank 0: writes the other files; those by which others find the checkpoint come last
 *
 * TREADLE_STATE: another order; and after a step has failed, every call except closing. One thread at a time. */
typedef struct treadle_convert treadle_convert;

typedef struct treadle_convert_options {
  size_t struct_size;
  const char *in, *out;  /* folders */
  const char *from, *to; /* layouts: "hf", "megatron:tp=2", "torch_dist" */
  const char *model;     /* of a source that is not hf: a directory or config.json; NULL: in/hf */
  const char *families;  /* as in treadle_model_options */
  bool trust;            /* do not compare copies of 1 MiB and more */
  int rank, ranks;       /* of the processes that share it; ranks 0: this one alone */
  treadle_watcher watch; /* counts bytes of this process's files; NULL: nobody */
  void *watch_context;
  /* Called with a line about something that is wrong but does not stop the conversion. NULL: nobody. */
  void (*warn)(void *context, const char *line);
  void *warn_context;
  const char *lora; /* a folder of peft's: its adapters are merged into the weights; NULL: none */
} treadle_convert_options;

/* Copies the options, which must not be NULL, and the texts that they point to, but not the callbacks' contexts. Local,
 * as are all these steps. */
treadle_status treadle_convert_open(const treadle_convert_options *options, treadle_convert **convert_p);
treadle_status treadle_convert_compare(treadle_convert *convert);
treadle_status treadle_convert_begin(treadle_convert *convert);
treadle_status treadle_convert_write(treadle_convert *convert);
treadle_status treadle_convert_finish(treadle_convert *convert);
void treadle_convert_close(treadle_convert *convert);

/* The model that is converted. It lives as long as the conversion. Else NULL. */
const treadle_model *treadle_convert_model(const treadle_convert *convert);
/* On rank 0, after opening: did an earlier run start this conversion, and compare copies? Else false. */
bool treadle_convert_resumes(const treadle_convert *convert);

typedef struct treadle_convert_figures {
  size_t struct_size;
  int64_t bytes_read, bytes_written; /* weights */
  int64_t tensors;                   /* of all files */
  int64_t files, resumed;            /* files of this process; those that an earlier run had finished */
  int64_t skipped, opaque;           /* values of the source that are not weights */
} treadle_convert_figures;

/* What this process has done so far. Else zeros. */
void treadle_convert_get_figures(const treadle_convert *convert, treadle_convert_figures *figures_p);

/* ---- Families ---------------------------------------------------------------------------------- */

/* The family files of a folder. A family file says which tensors the models of one type have, and how engines store
 * them (docs/families.md). */
typedef struct treadle_families treadle_families;

typedef struct treadle_family_info {
  size_t struct_size;
  const char *name;
  const char *path;               /* of its file; "families/NAME.yaml" if it is built into the library */
  const char *const *model_types; /* a list that ends with NULL */
  const char *const *engines;     /* a list that ends with NULL */
  int32_t tensors;                /* patterns of tensors */
  int32_t open; /* points of its to_say: questions that a draft could not answer, and nobody has answered since */
  /* Why treadle's own engines do not generate with models of the family, and why they do not train them: "experts".
   * NULL: they do, except for models that they refuse for what the config has. */
  const char *not_generated, *not_trained;
} treadle_family_info;

/* Opens the families of a folder; NULL: those built into the library. On failure *families_p is NULL. */
treadle_status treadle_families_open(const char *folder, treadle_families **families_p);
void treadle_families_close(treadle_families *families);
int32_t treadle_families_count(const treadle_families *families); /* else -1 */
/* Facts about family number `family`, from 0. Refused: a number out of range. */
treadle_status treadle_families_get(const treadle_families *families, int32_t family, treadle_family_info *info_p);
/* The number of the family with this name. Else -1, and the message has the nearest name. */
int32_t treadle_families_find(const treadle_families *families, const char *name);
/* Gives the file of a family, unchanged, ended by a 0 byte. The caller frees *text_p with free(); on failure it is
 * NULL. */
treadle_status treadle_families_text(const treadle_families *families, int32_t family, char **text_p);
/* Gives the family as one file that needs no other file and gives equal layouts: its file, put together with all that
 * it extends, its blocks and its changes. The caller frees *text_p with free(); on failure it is NULL. */
treadle_status treadle_families_expanded(const treadle_families *families, int32_t family, char **text_p);

/* ---- Does a family cover a checkpoint? --------------------------------------------------------- */

typedef struct treadle_family_check treadle_family_check;

typedef struct treadle_family_check_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options */
  int64_t scale_down;   /* as in treadle_model_options; for a config alone */
  const char *model;    /* config.json, or its folder, if `path` has none beside it */
} treadle_family_check_options;

/* Compares the names of a family's tensors with those of `path`, and their shapes if files have them. `path` is a
 * folder, an index, a config.json alone, or a list of tensors (NAME.tsv, NAME.tsv.gz). Missing and left-over names are
 * results, not failures. Options may be NULL. On failure *check_p is NULL. */
treadle_status treadle_family_check_open(const char *path, const treadle_family_check_options *options,
                                         treadle_family_check **check_p);
void treadle_family_check_close(treadle_family_check *check);

typedef struct treadle_family_check_info {
  size_t struct_size;
  bool has_names;  /* there were names to compare; otherwise only the config was checked */
  bool index_only; /* there is an index without its files, so shapes are unknown */
  int32_t names;   /* the number of names that were compared */
  int32_t missing, left_over;
  const char *missing_names, *left_over_names; /* a line for each name; never NULL */
  /* Among the names: stacked tensors, fp8 scales, tensors outside of the language model (carried), buffers
   * (skipped). */
  int32_t stacked, scales, carried, skipped;
  const char *carried_first, *skipped_first; /* the first such name, or NULL */
  int32_t open;                              /* the number of points of the family's to_say */
  const char *open_lines;                    /* a line for each point, with its file and line; never NULL */
} treadle_family_check_info;

/* Facts about the check. Else zeros. */
void treadle_family_check_get_info(const treadle_family_check *check, treadle_family_check_info *info_p);
/* The model of the config, without weights. It belongs to the check. Else NULL. */
const treadle_model *treadle_family_check_model(const treadle_family_check *check);

/* ---- A draft of a family ----------------------------------------------------------------------- */

typedef struct treadle_family_draft treadle_family_draft;

typedef struct treadle_family_draft_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options; the draft may also extend built-in families */
  const char *model;    /* config.json, or its folder, if `path` has none beside it */
  const char *like;     /* the file name of the family that the draft extends; NULL: the nearest family */
} treadle_family_draft_options;

/* Drafts a family file for a checkpoint that no family covers. It uses the config.json, the names of the tensors, and
 * their shapes if they are known. `path` is a folder, an index or a list of tensors (NAME.tsv, NAME.tsv.gz). The draft
 * extends the nearest family; it is read and compared with the checkpoint like any family. A question that the
 * checkpoint does not answer becomes a point of its to_say, and a comment "# TO SAY:" in its place. Refused: no config;
 * no names; names that follow no rule. Options may be NULL. On failure *draft_p is NULL. */
treadle_status treadle_family_draft_create(const char *path, const treadle_family_draft_options *options,
                                           treadle_family_draft **draft_p);
void treadle_family_draft_destroy(treadle_family_draft *draft);

typedef struct treadle_family_draft_info {
  size_t struct_size;
  const char *text;                 /* of the file; "" if the checkpoint is already covered */
  const char *family;               /* the draft's name */
  const char *like;                 /* the family that it extends, or that covers the checkpoint */
  bool covered;                     /* an existing family covers the checkpoint: no draft was made */
  bool same;                        /* only the model_type differs from `like`: the draft has three lines */
  const char *refusal;              /* why the draft cannot be read as a family yet; NULL: it can */
  int32_t names;                    /* the number of the checkpoint's tensor names */
  int32_t patterns, renamed, added; /* patterns of these names; how many of them the draft renames; how many it adds */
  int32_t open;                     /* the number of comments "TO SAY" */
  const char *open_lines;           /* a line for each comment; never NULL */
  int32_t missing, left_over;       /* names, if draft and checkpoint are compared; 0: no draft that can be read */
  const char *missing_names, *left_over_names; /* a line for each name; never NULL */
} treadle_family_draft_info;

/* Facts about the draft. Else zeros. */
void treadle_family_draft_get_info(const treadle_family_draft *draft, treadle_family_draft_info *info_p);

/* ---- What is in a model ------------------------------------------------------------------------ */

typedef struct treadle_model_info {
  size_t struct_size;
  const char *family, *family_path; /* these texts live as long as the model */
  /* What scale_down has changed: "num_hidden_layers=4 hidden_size=256"; NULL: it was not used. */
  const char *changes;
  int64_t elems, bytes; /* as treadle_model_elems and treadle_model_bytes */
  int32_t layers;       /* decoder layers */
  int32_t mtp_layers;   /* layers of multi-token prediction after them */
  bool has_mtp;         /* the family has rules for such layers */
  /* Names of canonical tensors. Later numbers of treadle_model_tensor are tied to one of these. */
  int32_t tensors;
  int32_t dims, patterns, files; /* how many treadle_model_dim, treadle_model_pattern and treadle_model_file have */
  /* In the files, besides canonical tensors: stacked tensors, fp8 scales, tensors outside of the language model
   * (carried), buffers (skipped). */
  int32_t stacked, scales, carried, skipped;
  const char *carried_first, *skipped_first; /* the first such name, or NULL */
  int32_t open; /* points of the family's to_say; while there are any, how engines store the model is not certain */
  const char *notes; /* a line for each thing that was not taken as config or files say; "": none */
} treadle_model_info;

void treadle_model_get_info(const treadle_model *model, treadle_model_info *info_p); /* else zeros */

/* Writes to line [room] which settings of generation_config.json, beside the model's config.json, treadle ignores; ""
 * if there are none. It leaves out what does not fit. */
treadle_status treadle_model_unheard(const treadle_model *model, char *line, size_t room);

/* A number that the family computes from the config: dim number `dim`, from 0. The name lives as long as the model. If
 * this config does not have it, *value_p is 0 and *name_p is NULL. */
treadle_status treadle_model_dim(const treadle_model *model, int32_t dim, const char **name_p, int64_t *value_p);
/* The path of file number `file` with weights, from 0. It lives as long as the model. Else NULL. */
const char *treadle_model_file(const treadle_model *model, int32_t file);
/* The number of elements of canonical tensors with this type. Else -1. */
int64_t treadle_model_elems_of(const treadle_model *model, treadle_dtype dtype);

/* Canonical tensors that differ only in their layers; experts are stacked. */
typedef struct treadle_pattern_info {
  size_t struct_size;
  const char *name; /* with {l} for the layer and * for the expert; lives as long as the model */
  int32_t count;    /* the number of these tensors; 0: the other fields are zeros */
  int ndim;
  int64_t shape[4];    /* of the first tensor */
  treadle_dtype dtype; /* of the first tensor; TREADLE_DTYPE_NONE: they differ */
  int64_t bytes;       /* of all these tensors */
} treadle_pattern_info;

/* Facts about pattern number `pattern`, from 0. Refused: a number out of range. */
treadle_status treadle_model_pattern(const treadle_model *model, int32_t pattern, treadle_pattern_info *info_p);

/* ---- Models to try things out ------------------------------------------------------------------ */

typedef struct treadle_make_options {
  size_t struct_size;
  const char *families;   /* as in treadle_model_options */
  int64_t scale_down;     /* as in treadle_model_options; for `config` */
  const char *config;     /* the model's config.json, or its folder; NULL: the next fields describe the model */
  const char *model_type; /* NULL: llama */
  treadle_dtype dtype;    /* not fp8; TREADLE_DTYPE_NONE: bf16 */
  int64_t layers;         /* 0: 8 */
  int64_t hidden;         /* a multiple of 64; 0: 512 */
  int64_t vocab;          /* 0: 8000 */
  bool stacked;           /* experts as one tensor, if the family has a form for that */
} treadle_make_options;

/* Writes config.json and model.safetensors of a model into a folder that is new or has no config.json. Values are
 * hashes of tensor and canonical index, as for TREADLE_WEIGHTS_RANDOM. *model_p is the model, without weights; the
 * caller closes it. Options may be NULL. On failure *model_p is NULL. */
treadle_status treadle_make_model(const char *folder, const treadle_make_options *options, treadle_model **model_p);

/* ---- The machine, files ------------------------------------------------------------------------ */

typedef enum treadle_limit_kind {
  TREADLE_OF_MACHINE = 0, /* its memory */
  TREADLE_OF_GROUP,       /* of this process's control groups (v1 or v2), the one that leaves least */
  TREADLE_OF_ADDRESSES    /* RLIMIT_AS */
} treadle_limit_kind;

typedef struct treadle_limit_info {
  size_t struct_size;
  bool limited;       /* false: there is no such limit, and the other fields are zeros */
  size_t bytes, left; /* the limit, and how much of it this process may still take */
  char text[192];     /* "this machine", "control group /sys/fs/cgroup/a (memory.max)", "RLIMIT_AS" */
} treadle_limit_info;

/* A limit on the memory of this process, counted as treadle_switch_create counts it. */
treadle_status treadle_machine_limit(treadle_limit_kind pattern, treadle_limit_info *info_p);

typedef struct treadle_kernel_info {
  size_t struct_size;
  const char *name;  /* "plain", "avx2", ...: what --kernels takes */
  const char *needs; /* what the processor must have */
  bool usable;       /* on this machine */
  const char *lacks; /* why not; "" if it is usable */
} treadle_kernel_info;

/* The kernels of this library, which compute products of activations and weights: how many there are, and facts about
 * kernel number `kernel`, from 0. The default is the last one that this machine can run. The texts are never freed.
 * Refused: a number out of range. */
int32_t treadle_machine_kernel_count(void);
treadle_status treadle_machine_kernel(int32_t kernel, treadle_kernel_info *info_p);

typedef struct treadle_net_info {
  size_t struct_size;
  const char *name;  /* "ucx": what --net takes */
  bool usable;       /* on this machine */
  char version[32];  /* of the library that it uses; "" if it uses none */
  char devices[512]; /* network devices that it would use, with their transports: "tcp/eth0, rc/mlx5_0:1" */
  char lacks[320];   /* why it cannot be used, and what to install; "" if it is usable */
} treadle_net_info;

/* The nets of this library, by which ranks on different nodes send each other messages: how many there are, and facts
 * about net number `net`, from 0. It looks for the net in this process: UCX is loaded and stays. Refused: a number out
 * of range. */
int32_t treadle_machine_net_count(void);
treadle_status treadle_machine_net(int32_t net, treadle_net_info *info_p);

typedef struct treadle_device_info {
  size_t struct_size;
  char name[96];                  /* "NVIDIA H200" */
  char uuid[48];                  /* "GPU-5f0c..."; "MIG-..." of a part of one */
  int driver_major, driver_minor; /* version of CUDA that the driver has */
  int major, minor;               /* compute capability */
  size_t bytes, left_bytes;       /* its memory, and what is free now */
  size_t page_bytes;              /* pages of a switch are a multiple of this */
  bool handles;                   /* its memory can be given to other processes, by a descriptor */
  bool shared;                    /* contexts of several processes run at once (MPS) */
  uint64_t peers;                 /* bit i: it can read the memory of device i, below 64 */
  bool usable;                    /* by treadle */
  char lacks[320];                /* why not; "" if it is usable */
} treadle_device_info;

/* The CUDA devices that this process sees: how many there are, and facts about device number `device`, from 0. Both
 * start the driver in this process. If there is none, treadle_error_message says why. Refused: a number out of
 * range. */
int32_t treadle_machine_device_count(void);
/* Was this library built with the kernels of CUDA devices (make cuda)? Without them no device is usable. */
bool treadle_machine_has_kernels(void);
treadle_status treadle_machine_device(int32_t device, treadle_device_info *info_p);

/* ---- MPI: libtreadle_mpi -------------------------------------------------------------------------
 *
 * treadle_group_mpi and the treadle_mpi_* functions are in libtreadle_mpi (link with -ltreadle_mpi), which needs the
 * MPI that it was built with. A program that runs with and without MPI may load it with dlopen when an MPI launcher has
 * started it, as the command does. */

/* Start initialises MPI, unless it is initialised, so that its errors are returned and do not end the process. A
 * process without a launcher is rank 0 of 1. The ranks then meet with treadle_group_mpi. Stop finalises MPI and waits
 * for the other ranks: do not call it after a switch has failed. Both are collective. */
treadle_status treadle_mpi_start(int *rank_p, int *size_p);
void treadle_mpi_stop(void);

/* What ranks of a communicator tell each other so that they can meet. Frozen. */
typedef struct treadle_mpi_meeting {
  int rank, size;
  char name[33]; /* for treadle_group_open; equal on all ranks, and new each time */
  char why[512]; /* why it failed, for people; "" if nothing is wrong */
} treadle_mpi_meeting;

/* Makes a name by which ranks on one machine can meet. refused: this rank knows that its arguments will be refused;
 * then all ranks fail. Refused: ranks on several machines. A failure has its reason in meeting_p->why, and not in
 * treadle_error_message, since this function needs no other function of treadle. Collective. */
treadle_status treadle_mpi_meet(const void *comm, bool refused, treadle_mpi_meeting *meeting_p);

/* Does what treadle_mpi_meet does, for ranks on any number of nodes. treadle_group_mpi calls it before its ranks meet.
 * `mine` comes from treadle_machine_address, on every rank. address_p has 128 bytes. It becomes "" if all ranks are on
 * one node; they then meet by the name (treadle_group_open). Otherwise it becomes the address of rank 0 for
 * treadle_store_open, with the name as its job. Refused: several nodes, if rank 0 has no address that they can reach.
 * Collective. */
treadle_status treadle_mpi_meet_nodes(const void *comm, bool refused, const treadle_node_address *mine,
                                      treadle_mpi_meeting *meeting_p, char *address_p);

/* Makes a group by a store, like treadle_group_store, for programs that know the number of nodes. It divides the ranks
 * into `nodes` nodes of equally many neighbouring ranks, on whatever machines; 0: treadle finds the nodes. All ranks
 * give one number. With a store of treadle_store_open, the meeting counts against the time limit of that store, and
 * timeout_seconds is the group's limit afterwards. Refused: ranks that do not divide evenly. Collective. */
treadle_status treadle_group_nodes(const treadle_store *store, int rank, int size, int nodes, double timeout_seconds,
                                   treadle_group **group_p);

/* treadle_output_write writes a file beside `path`, syncs it and renames it, so `path` appears whole or not at all. An
 * existing `path` must be a plain file. treadle_output_ask checks beforehand that `path` may be written, for contents
 * that take long to make. */
treadle_status treadle_output_ask(const char *path);
treadle_status treadle_output_write(const char *path, const void *bytes, size_t count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

/* treadle, for tools: what the command does beside planning, switching and converting. Families, the contents of a model, generated
 * models, the memory limits of the machine. treadle.h has the conventions.
 *
 * No other object has to outlive an object of this header. Its texts live as long as it does, and any number of threads may use
 * it. All functions are local, except those of MPI. */
#ifndef TREADLE_TOOLS_H
#define TREADLE_TOOLS_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Families ---------------------------------------------------------------------------------- */

typedef struct treadle_families treadle_families;

typedef struct treadle_family_info {
  size_t struct_size;
  const char *name;
  const char *path;               /* of its file; "families/NAME.yaml" if it is built into the library */
  const char *const *model_types; /* both lists end with NULL */
  const char *const *engines;
  int32_t tensors; /* patterns of tensors */
  int32_t open;    /* points of its to_say: what a draft could not see, and nobody has said since */
} treadle_family_info;

/* Opens the families of a folder of family files; NULL: those built into the library. On failure *families_p is NULL. */
treadle_status treadle_families_open(const char *folder, treadle_families **families_p);
void treadle_families_close(treadle_families *families);
int32_t treadle_families_count(const treadle_families *families); /* else -1 */
/* Facts about family number `family`, from 0. Refused: a number out of range. */
treadle_status treadle_families_get(const treadle_families *families, int32_t family,
                                    treadle_family_info *info_p);
/* The number of the family with this name. Else -1, and the message has the nearest name. */
int32_t treadle_families_find(const treadle_families *families, const char *name);
/* The file of a family as it is, ended by a 0 byte. The caller frees *text_p with free(); on failure it is NULL. */
treadle_status treadle_families_text(const treadle_families *families, int32_t family, char **text_p);
/* The same, put together with all that the file extends, its blocks and its changes: one file that needs no other and gives the
 * same layouts. */
treadle_status treadle_families_expanded(const treadle_families *families, int32_t family, char **text_p);

/* ---- Does a family cover a checkpoint? --------------------------------------------------------- */

typedef struct treadle_family_check treadle_family_check;

typedef struct treadle_family_check_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options, */
  int64_t scale_down;   /* as this; for a config alone */
  const char *model;    /* config.json, or its folder, if `path` has none beside it */
} treadle_family_check_options;

/* Compares the names of a family's tensors, and their shapes if files have them, with those of `path`: a folder, an index, a
 * config.json alone, or a list of tensors (NAME.tsv, NAME.tsv.gz). Missing and left-over names are results, not failures.
 * Options may be NULL. On failure *check_p is NULL. */
treadle_status treadle_family_check_open(const char *path, const treadle_family_check_options *options,
                                         treadle_family_check **check_p);
void treadle_family_check_close(treadle_family_check *check);

typedef struct treadle_family_check_info {
  size_t struct_size;
  bool has_names;  /* there were names to compare; else only the config was looked at */
  bool index_only; /* there is an index without its files: shapes are unknown */
  int32_t names;   /* how many were compared */
  int32_t missing, left_over;
  const char *missing_names, *left_over_names; /* each on a line of its own; never NULL */
  /* Among the names: stacked tensors, fp8 scales, tensors that are not part of the language model (carried), buffers (skipped); and
   * the first name of the last two, or NULL. */
  int32_t stacked, scales, carried, skipped;
  const char *carried_first, *skipped_first;
  int32_t open; /* points of the family's to_say, each on a line with its file and line; never NULL */
  const char *open_lines;
} treadle_family_check_info;

void treadle_family_check_get_info(const treadle_family_check *check,
                                   treadle_family_check_info *info_p); /* else zeros */
/* The model of the config, without weights. It belongs to the check. Else NULL. */
const treadle_model *treadle_family_check_model(const treadle_family_check *check);

/* ---- A draft of a family ----------------------------------------------------------------------- */

typedef struct treadle_family_draft treadle_family_draft;

typedef struct treadle_family_draft_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options; those built in may be extended as well */
  const char *model;    /* config.json, or its folder, if `path` has none beside it */
  const char *like;     /* the name of the file of the family that the draft extends; NULL: the nearest */
} treadle_family_draft_options;

/* Makes a draft of a family file for a checkpoint that no family covers, from its config.json and the names of its tensors, and their
 * shapes if they are known. `path` is a folder, an index or a list of tensors (NAME.tsv, NAME.tsv.gz). The draft extends the
 * nearest family; it is read and compared with the checkpoint as any family is. What the checkpoint does not show is a
 * point of its to_say, and a comment "# TO SAY:" in its place. Refused: no config, no names, names that follow no rule. Options may be NULL. On failure *draft_p is NULL. */
treadle_status treadle_family_draft_create(const char *path, const treadle_family_draft_options *options,
                                           treadle_family_draft **draft_p);
void treadle_family_draft_destroy(treadle_family_draft *draft);

typedef struct treadle_family_draft_info {
  size_t struct_size;
  const char *text;    /* of the file; "" if the checkpoint is covered already */
  const char *family;  /* its name */
  const char *like;    /* the family that it extends, or that covers the checkpoint */
  bool covered;        /* an existing family covers the checkpoint: no draft was made */
  bool same;           /* only the model_type differs from `like`: the draft has three lines */
  const char *refusal; /* why the draft cannot be read as a family yet; NULL: it can */
  int32_t names;       /* of the checkpoint's tensors */
  int32_t patterns, renamed,
      added;              /* patterns of these names; how many of them are renamed or added in the draft */
  int32_t open;           /* comments "TO SAY" */
  const char *open_lines; /* each on a line of its own; never NULL */
  int32_t missing, left_over; /* of the draft and the checkpoint; 0 without a draft that can be read */
  const char *missing_names, *left_over_names; /* each on a line of its own; never NULL */
} treadle_family_draft_info;

void treadle_family_draft_get_info(const treadle_family_draft *draft,
                                   treadle_family_draft_info *info_p); /* else zeros */

/* ---- What is in a model ------------------------------------------------------------------------ */

typedef struct treadle_model_info {
  size_t struct_size;
  const char *family, *family_path; /* these texts live as long as the model */
  const char *
      changes; /* what scale_down has changed: "num_hidden_layers=4 hidden_size=256"; NULL: it was not used */
  int64_t elems, bytes; /* as treadle_model_elems, treadle_model_bytes */
  int32_t layers;       /* decoder layers */
  int32_t mtp_layers;   /* behind them; has_mtp: the family has rules for some */
  bool has_mtp;
  int32_t
      tensors; /* Hugging Face's names of canonical tensors; later numbers of treadle_model_tensor are tied to one of them */
  int32_t dims, patterns, files;
  /* In the files, beside canonical tensors: stacked tensors, fp8 scales, tensors that are not part of the language model (carried),
   * buffers (skipped); and the first name of the last two, or NULL. */
  int32_t stacked, scales, carried, skipped;
  const char *carried_first, *skipped_first;
  int32_t open; /* points of the family's to_say: while there are any, what engines have is not certain */
  const char *notes; /* a line each: what was taken in another way than config or files say, or "" */
} treadle_model_info;

void treadle_model_get_info(const treadle_model *model, treadle_model_info *info_p); /* else zeros */

/* A line that names what generation_config.json, beside the model's config.json, says of generating and treadle does not hear; "" where there
 * is nothing. What has no room in `line` is left out. */
treadle_status treadle_model_unheard(const treadle_model *model, char *line, size_t room);

/* A number that the family computes from the config: dim number `dim`, from 0. The name lives as long as the model. If this config
 * does not have it, *value_p is 0 and *name_p NULL. */
treadle_status treadle_model_dim(const treadle_model *model, int32_t dim, const char **name_p,
                                 int64_t *value_p);
/* The path of file of weights number `file`, from 0. It lives as long as the model. Else NULL. */
const char *treadle_model_file(const treadle_model *model, int32_t file);
/* How many elements of canonical tensors have this type. Else -1. */
int64_t treadle_model_elems_of(const treadle_model *model, treadle_dtype dtype);

/* Canonical tensors that differ only in their layers; experts are stacked. */
typedef struct treadle_pattern_info {
  size_t struct_size;
  const char *name; /* with {l} for the layer and * for the expert; lives as long as the model */
  int32_t count;    /* how many there are; 0: the rest is zeros */
  int ndim;
  int64_t shape[4];    /* of the first */
  treadle_dtype dtype; /* of the first; TREADLE_DTYPE_NONE: they differ */
  int64_t bytes;       /* of all */
} treadle_pattern_info;

/* Facts about pattern number `pattern`, from 0. Refused: a number out of range. */
treadle_status treadle_model_pattern(const treadle_model *model, int32_t pattern,
                                     treadle_pattern_info *info_p);

/* ---- Models to try things out ------------------------------------------------------------------ */

typedef struct treadle_make_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options, */
  int64_t scale_down;   /* as this; for `config` */
  const char
      *config; /* the config.json, or its folder, of the model; NULL: the fields below describe a model */
  const char *model_type; /* NULL: llama */
  treadle_dtype dtype;    /* not fp8; TREADLE_DTYPE_NONE: bf16 */
  int64_t layers;         /* 0: 8 */
  int64_t hidden;         /* a multiple of 64; 0: 512 */
  int64_t vocab;          /* 0: 8000 */
  bool stacked;           /* experts as one tensor, if the family has a form for that */
} treadle_make_options;

/* Writes config.json and model.safetensors of a model into a folder that is new or has no config.json. Values are hashes of tensor and
 * canonical index, as in treadle_layout_load. Options may be NULL. *model_p is the model, without weights; the caller closes it. On
 * failure it is NULL. */
treadle_status treadle_make_model(const char *folder, const treadle_make_options *options,
                                  treadle_model **model_p);

/* ---- The machine, files ------------------------------------------------------------------------ */

typedef enum treadle_limit_kind {
  TREADLE_OF_MACHINE = 0, /* its memory */
  TREADLE_OF_GROUP, /* of the control groups (v1 or v2) that this process is in, the one that leaves least */
  TREADLE_OF_ADDRESSES /* RLIMIT_AS */
} treadle_limit_kind;

typedef struct treadle_limit_info {
  size_t struct_size;
  bool limited;       /* false: there is no such limit, and the rest is zeros */
  size_t bytes, left; /* the limit, and how much of it this process may still take */
  char text[192];     /* "this machine", "control group /sys/fs/cgroup/a (memory.max)", "RLIMIT_AS" */
} treadle_limit_info;

/* A limit on the memory of this process, counted as treadle_switch_create counts it. */
treadle_status treadle_machine_limit(treadle_limit_kind pattern, treadle_limit_info *info_p);

typedef struct treadle_kernel_info {
  size_t struct_size;
  const char *name;  /* "plain", "avx2", ...: what --kernels takes */
  const char *needs; /* of the processor */
  bool usable;       /* on this machine */
  const char *lacks; /* why not, "" where it is */
} treadle_kernel_info;

/* The kernels of this library, ways of computing products of activations and weights, and facts about kernel number `kernel`, from
 * 0. Of those that this machine can run the last is the default. The texts are never freed. Refused: a number out of range. */
int32_t treadle_machine_kernel_count(void);
treadle_status treadle_machine_kernel(int32_t kernel, treadle_kernel_info *info_p);

typedef struct treadle_net_info {
  size_t struct_size;
  const char *name; /* "ucx": what --net takes */
  bool usable;      /* on this machine */
  char version[32]; /* of the library behind it, "" where there is none */
  /* Network devices that it would use, with the transport of each: "tcp/eth0, rc/mlx5_0:1". */
  char devices[512];
  char lacks[320]; /* why it cannot be used, and what to install; "" where it can */
} treadle_net_info;

/* The nets, ways in which ranks on different nodes send each other messages, and facts about net number `net`, from 0, which
 * is looked for in this process (UCX is loaded and stays). Refused: a number out of range. */
int32_t treadle_machine_net_count(void);
treadle_status treadle_machine_net(int32_t net, treadle_net_info *info_p);

/* ---- MPI: libtreadle_mpi -------------------------------------------------------------------------
 *
 * These functions and treadle_group_mpi are in libtreadle_mpi (link with -ltreadle_mpi), which needs the MPI that it was built with. A program
 * that runs with and without MPI may load it with dlopen when it is started by an MPI launcher, as the command does. */

/* Initialises MPI unless that is done already, so that its errors are returned and do not end the process. A process without a
 * launcher is rank 0 of 1. The ranks then meet with treadle_group_mpi. Both functions are collective. treadle_mpi_stop finalises MPI and
 * waits for the other ranks: do not call it after a switch has failed. */
treadle_status treadle_mpi_start(int *rank_p, int *size_p);
void treadle_mpi_stop(void);

/* What ranks of a communicator tell each other so that they can meet; why is for people, "" where nothing is wrong. This struct is frozen. */
typedef struct treadle_mpi_meeting {
  int rank, size;
  char name[33]; /* for treadle_group_open; the same on all ranks, and new each time */
  char why[512];
} treadle_mpi_meeting;

/* What treadle_group_mpi does before the ranks meet: all are on one machine, and none has said that it will be `refused`. A failure has its
 * reason in `why`, and none in treadle_error_message: this function needs no other one of treadle. Collective. */
treadle_status treadle_mpi_meet(const void *comm, bool refused, treadle_mpi_meeting *meeting_p);

/* The same for ranks on any number of nodes; this is what treadle_group_mpi does. `mine` comes from treadle_machine_address on every rank. address_p, of
 * 128 bytes, gets "" where all ranks are on one node, who then meet by the name (treadle_group_open); else the address of rank 0, for
 * treadle_store_open with the name as its job. Refused: several nodes, and none reaches rank 0's. Collective. */
treadle_status treadle_mpi_meet_nodes(const void *comm, bool refused, const treadle_node_address *mine,
                                      treadle_mpi_meeting *meeting_p, char *address_p);

/* As treadle_group_store, for programs that are told how many nodes there are: `nodes` groups of equally many neighbouring ranks are the nodes, on whatever
 * machines; 0: nodes are found. All ranks say the same. With a store of treadle_store_open, meeting counts against the time limit of
 * that store; `timeout_seconds` is the group's limit afterwards. Refused: ranks that cannot be divided so. Collective. */
treadle_status treadle_group_nodes(const treadle_store *store, int rank, int size, int nodes,
                                   double timeout_seconds, treadle_group **group_p);

/* treadle_output_write writes a file beside `path`, syncs it and renames it: so `path` appears whole or not at all. If `path` exists, it
 * must be a plain file. treadle_output_ask checks beforehand that `path` may be written, for contents that take long to make. */
treadle_status treadle_output_ask(const char *path);
treadle_status treadle_output_write(const char *path, const void *bytes, size_t count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

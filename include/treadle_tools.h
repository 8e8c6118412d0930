/* treadle, for tools: what the command does beside planning, switching and converting. Families, what is in a model, models made
 * to try things out, what the machine leaves. treadle.h has the conventions.
 *
 * Objects of this header need no other object to outlive them; their texts live as long as they do. Any number of threads may
 * ask one of them. */
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
  const char *path;               /* of its file; "families/NAME.yaml" of those built into the library */
  const char *const *model_types; /* ended by NULL, as are */
  const char *const *engines;
  int32_t tensors; /* patterns of tensors */
  int32_t open;    /* points of its to_say: what a draft could not see, and nobody has said since */
} treadle_family_info;

/* The families of a folder of family files; NULL: those built into the library. On failure *families_p is NULL. */
treadle_status treadle_families_open(const char *folder, treadle_families **families_p);
void treadle_families_close(treadle_families *families);
int32_t treadle_families_count(const treadle_families *families); /* else -1 */
treadle_status treadle_families_get(const treadle_families *families, int32_t family,
                                    treadle_family_info *info_p);
/* The number of the family of a name. Else -1, and the message has the nearest name. */
int32_t treadle_families_find(const treadle_families *families, const char *name);
/* The file of a family as it stands, ended by a 0 byte. The text is ended by free(); on failure it is NULL. */
treadle_status treadle_families_text(const treadle_families *families, int32_t family, char **text_p);
/* The same for what the file comes to with all that it extends, its blocks and its changes: one file of the same language that
 * needs no other, and gives the same layouts. */
treadle_status treadle_families_expanded(const treadle_families *families, int32_t family, char **text_p);

/* ---- Does a family cover a checkpoint? --------------------------------------------------------- */

typedef struct treadle_family_check treadle_family_check;

typedef struct treadle_family_check_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options, as is */
  int64_t scale_down;   /* of a config alone */
  const char *model;    /* config.json, or its folder, of what has none beside it */
} treadle_family_check_options;

/* Compares the names that a family says, and shapes where files have them, with those of `path`: a folder, an index, a
 * config.json alone, or a list of tensors (NAME.tsv, NAME.tsv.gz). What is missing or left over is no failure of this function.
 * Options may be NULL. On failure *check_p is NULL. */
treadle_status treadle_family_check_open(const char *path, const treadle_family_check_options *options,
                                         treadle_family_check **check_p);
void treadle_family_check_close(treadle_family_check *check);

typedef struct treadle_family_check_info {
  size_t struct_size;
  bool has_names;  /* there were names to compare; else only the config was looked at */
  bool index_only; /* of an index whose files are not there: shapes are unknown */
  int32_t names;   /* that were compared */
  int32_t missing, left_over;
  const char *missing_names, *left_over_names; /* each on a line of its own; never NULL */
  /* Of the names: stacked tensors, fp8 scales, tensors of other parts, buffers; and the first name of both, or NULL. */
  int32_t stacked, scales, carried, skipped;
  const char *carried_first, *skipped_first;
  int32_t open; /* points of the family's to_say, each on a line with its file and line; never NULL */
  const char *open_lines;
} treadle_family_check_info;

void treadle_family_check_get_info(const treadle_family_check *check,
                                   treadle_family_check_info *info_p); /* else zeros */
/* The model of the config, without weights; it is the check's. Else NULL. */
const treadle_model *treadle_family_check_model(const treadle_family_check *check);

/* ---- A draft of a family ----------------------------------------------------------------------- */

typedef struct treadle_family_draft treadle_family_draft;

typedef struct treadle_family_draft_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options; those built in may be extended as well */
  const char *model;    /* config.json, or its folder, of what has none beside it */
  const char *like;     /* the name of the file of the family that the draft extends; NULL: the nearest */
} treadle_family_draft_options;

/* Makes a draft of a family file for a checkpoint that no family covers, out of its config.json and the names, and shapes where
 * they are there, of its tensors. `path` is a folder, an index or a list of tensors (NAME.tsv, NAME.tsv.gz). The draft extends
 * the nearest family; it is read and compared with the checkpoint as any family is. What cannot be seen is a point of its
 * to_say, and a comment "# TO SAY:" in its place. Refused: no config, no names, names that follow no rule. Options may be NULL. On failure *draft_p is NULL. */
treadle_status treadle_family_draft_create(const char *path, const treadle_family_draft_options *options,
                                           treadle_family_draft **draft_p);
void treadle_family_draft_destroy(treadle_family_draft *draft);

typedef struct treadle_family_draft_info {
  size_t struct_size;
  const char *text;    /* of the file; "" where the checkpoint is covered */
  const char *family;  /* its name */
  const char *like;    /* what it extends, or what covers the checkpoint */
  bool covered;        /* a family that is there says all: no draft was made */
  bool same;           /* `like` says all of it but the model_type: the draft has three lines */
  const char *refusal; /* why the draft cannot be read as a family yet; NULL: it can */
  int32_t names;       /* of the checkpoint, of so many patterns */
  int32_t patterns, renamed, added;
  int32_t open;               /* things to say */
  const char *open_lines;     /* each on a line of its own; never NULL, as are */
  int32_t missing, left_over; /* of the draft and the checkpoint; 0 without a draft that can be read */
  const char *missing_names, *left_over_names;
} treadle_family_draft_info;

void treadle_family_draft_get_info(const treadle_family_draft *draft,
                                   treadle_family_draft_info *info_p); /* else zeros */

/* ---- What is in a model ------------------------------------------------------------------------ */

typedef struct treadle_model_info {
  size_t struct_size;
  const char *family, *family_path; /* these texts live as long as the model */
  const char *
      changes; /* what scale_down has changed: "num_hidden_layers=4 hidden_size=256"; NULL: it was not asked */
  int64_t elems, bytes; /* as treadle_model_elems, treadle_model_bytes */
  int32_t layers;       /* decoder layers */
  int32_t mtp_layers;   /* behind them; has_mtp: the family knows of some */
  bool has_mtp;
  int32_t
      tensors; /* by Hugging Face's names; those behind (treadle_model_tensor) are tied to one of them */
  int32_t dims, patterns, files;
  /* In the files, beside canonical tensors: stacked ones, fp8 scales, tensors of other parts, buffers; and the first name of
   * both, or NULL. */
  int32_t stacked, scales, carried, skipped;
  const char *carried_first, *skipped_first;
  int32_t open; /* points of the family's to_say: while there are any, what engines have is not certain */
} treadle_model_info;

void treadle_model_get_info(const treadle_model *model, treadle_model_info *info_p); /* else zeros */

/* A number that the family makes of the config. The name lives as long as the model. *value_p is 0, and *name_p NULL, of one
 * that this config has not. */
treadle_status treadle_model_dim(const treadle_model *model, int32_t dim, const char **name_p,
                                 int64_t *value_p);
/* The path of a file of weights. Else NULL. */
const char *treadle_model_file(const treadle_model *model, int32_t file);
/* Elements of canonical tensors of a type. Else -1. */
int64_t treadle_model_elems_of(const treadle_model *model, treadle_dtype dtype);

/* Canonical tensors that differ in their layers alone; experts are stacked. */
typedef struct treadle_pattern_info {
  size_t struct_size;
  const char *name; /* with {l} for the layer and * for the expert; lives as long as the model */
  int32_t count;    /* how many there are; 0: the rest is zeros */
  int ndim;
  int64_t shape[4];    /* of the first */
  treadle_dtype dtype; /* of the first; TREADLE_DTYPE_NONE: they differ */
  int64_t bytes;       /* of all */
} treadle_pattern_info;

treadle_status treadle_model_pattern(const treadle_model *model, int32_t pattern,
                                     treadle_pattern_info *info_p);

/* ---- Models to try things out ------------------------------------------------------------------ */

typedef struct treadle_make_options {
  size_t struct_size;
  const char *families; /* as in treadle_model_options, as is */
  int64_t scale_down;   /* of `config` */
  const char
      *config; /* config.json, or its folder, of which a model is made; NULL: what follows says which */
  const char *model_type; /* NULL: llama */
  treadle_dtype dtype;    /* not fp8; TREADLE_DTYPE_NONE: bf16 */
  int64_t layers;         /* 0: 8 */
  int64_t hidden;         /* a multiple of 64; 0: 512 */
  int64_t vocab;          /* 0: 8000 */
  bool stacked;           /* experts as one tensor where the family says how */
} treadle_make_options;

/* Writes config.json and model.safetensors of a model into a new folder, or one without a config.json. Values are a hash of tensor
 * and canonical index, as treadle_layout_load makes them. Options may be NULL. The model, without weights, is the caller's.
 * On failure *model_p is NULL. */
treadle_status treadle_make_model(const char *folder, const treadle_make_options *options,
                                  treadle_model **model_p);

/* ---- The machine, files ------------------------------------------------------------------------ */

typedef enum treadle_limit_kind {
  TREADLE_OF_MACHINE = 0, /* its memory */
  TREADLE_OF_GROUP, /* the control group (v1 or v2) that leaves least, of all that this process lies in */
  TREADLE_OF_ADDRESSES /* RLIMIT_AS */
} treadle_limit_kind;

typedef struct treadle_limit_info {
  size_t struct_size;
  bool limited;       /* else the rest is zeros */
  size_t bytes, left; /* what it allows, and how much of that this process may still take */
  char text[192];     /* "this machine", "control group /sys/fs/cgroup/a (memory.max)", "RLIMIT_AS" */
} treadle_limit_info;

/* What limits the memory of this process, by the count that treadle_switch_create asks. */
treadle_status treadle_machine_limit(treadle_limit_kind pattern, treadle_limit_info *info_p);

/* Initialises MPI unless that is done, with errors returned instead of fatal. A process that no launcher started is rank 0 of
 * 1. The ranks then meet with treadle_group_mpi. Collective, as is stopping it: that waits for the others, so not after a switch
 * has failed. */
treadle_status treadle_mpi_start(int *rank_p, int *size_p);
void treadle_mpi_stop(void);

/* Writes a file beside `path`, syncs it and renames it: it is there whole or not at all. What is there before must be a plain file.
 * May it be written? is asked first where what is to be written takes long to make: the answer is the system's own. */
treadle_status treadle_output_ask(const char *path);
treadle_status treadle_output_write(const char *path, const void *bytes, size_t count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

/* A target: the files that a conversion writes, each a row of tensors, each tensor a few pieces of canonical tensors.
 *
 * A file's tensors are made when it is written, so that a target takes little memory whatever the model's size.
 *
 * fp8 is written as codes with a scale for each block, `NAME` and `NAME_scale_inv`. Where the files hold it so already,
 * and are the source, their bytes are taken over; else it is made of the values. Values of fp8 and MXFP4 files are
 * written without scales, and MXFP4 under the name without `_blocks`. */
#ifndef TREADLE_CONVERT_TARGET_H
#define TREADLE_CONVERT_TARGET_H

#include "convert/megatron_files.h"
#include "io/safetensors.h"
#include "io/torch_dist.h"
#include "model/stored.h"

typedef enum treadle_out_type {
  TREADLE_OUT_SAFETENSORS,
  TREADLE_OUT_TORCH,
  TREADLE_OUT_DIST
} treadle_out_type;

typedef enum treadle_making {
  TREADLE_MADE_OF_VALUES, /* canonical values, cut and cast */
  TREADLE_MADE_RAW,       /* the bytes of a tensor of the model's files */
  TREADLE_MADE_CODES,     /* fp8 of values, block by block */
  TREADLE_MADE_SCALES     /* fp32, one for each of these blocks */
} treadle_making;

/* One tensor of a file. Its pieces have offsets from its own first byte and cover it. Of codes and scales, they are those
 * of the values in fp32, matrices of rows x columns. */
typedef struct treadle_out_tensor {
  treadle_stored about; /* name, type, shape, bytes */
  treadle_making making;
  const char *entry; /* of the archive */
  const char *raw;
  size_t first_piece, piece_count;
  int64_t rows, columns, block[2];
} treadle_out_tensor;

typedef struct treadle_out_file {
  treadle_out_type type;
  const char *path; /* in the target's folder */
  treadle_out_tensor *tensors;
  int32_t count;
  treadle_pieces pieces;
  const treadle_header *header;   /* to be written as it is; NULL: made */
  const treadle_dist_part *parts; /* of torch_dist: what each tensor is a chunk of */
  int64_t bytes;                  /* of all tensors */
  treadle_arena arena;
} treadle_out_file;

/* A tensor of Hugging Face's files: like one of the model's own files, or all of an entry of the model. */
typedef struct treadle_out_entry {
  treadle_making making;
  const char *name;
  int32_t own;   /* of the checkpoint; of scales, the weight that they belong to */
  int32_t entry; /* -1: it is like `own` */
} treadle_out_entry;

/* A tensor of the model's own files. */
typedef struct treadle_original {
  treadle_coding coding;
  bool carried;   /* no part of the model */
  bool kept;      /* carried beside what is made of it (kept.h) */
  bool is_scales; /* of `weight` */
  int32_t weight;
  int32_t entry; /* MXFP4: what its values are all of */
} treadle_original;

typedef struct treadle_target treadle_target;

struct treadle_target {
  treadle_layout *layout;
  const treadle_model *model;
  const treadle_checkpoint
      *carried;     /* where carried tensors have their bytes, beside the model's own; may be NULL */
  const char *text; /* of the layout */
  bool is_hf, is_dist;
  bool from_own; /* the model's own files are the source */
  /* Megatron */
  treadle_megatron_files world;
  const char *folder; /* "release", "iter_0000012" */
  /* torch_dist: by first_item, as the files have them */
  treadle_dist_part *dist_parts;
  int32_t *dist_numbers; /* of the storage tensors */
  /* Hugging Face: the model's own files when they are known, else shards of at most 5 GB */
  treadle_header *headers;  /* by file; text NULL: to be made */
  int32_t *first_item;      /* by file, and one more */
  treadle_out_entry *items; /* of all files in file order */
  treadle_original *own;    /* by tensor of the model's own files; NULL: they are not known */
  treadle_pieces own_pieces;
  int32_t *own_first; /* [count + 1] into own_pieces, by tensor */
  bool as_they_are;   /* own files keep all names and types, headers included */
  bool decodes;       /* coded values are written as what they mean */
  /* All */
  int32_t
      file_count; /* weights first; then, but for hf, hf/carried.safetensors where something is carried */
  const char **paths;
  treadle_arena arena;
};

/* `iteration` names Megatron's folder: -1 is a release. `from_own`: the model's own files are what is converted. */
treadle_status treadle_target_open(const treadle_model *model, bool from_own,
                                   const treadle_checkpoint *carried, const char *text, int64_t iteration,
                                   treadle_target **target_p);
void treadle_target_close(treadle_target *target);

/* What file `number` consists of; ended by treadle_out_file_release(). */
treadle_status treadle_target_file(const treadle_target *target, int32_t number, treadle_out_file *file);
void treadle_out_file_release(treadle_out_file *file);

enum { TREADLE_DIST_BESIDE = 3 };
/* What stands beside the files of a torch_dist target: common.pt, .metadata, metadata.json. */
treadle_status treadle_target_dist_beside(const treadle_target *target, int which, treadle_arena *arena,
                                          const char **path_p);
/* What `.metadata` of a torch_dist target says; treadle_pickle_release() ends it. */
treadle_status treadle_target_dist_metadata(const treadle_target *target, treadle_pickle *pickle);

/* The index of a Hugging Face target, as text; NULL where it is one file without an index. treadle_free() ends it. */
treadle_status treadle_target_index(const treadle_target *target, const char *source_index, char **text_p);

#endif

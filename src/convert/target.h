/* A target: the files that a conversion writes, each a row of tensors, each tensor a few pieces of canonical tensors.
 *
 * A file's tensors are made when it is written, so that a target takes little memory whatever the model's size. */
#ifndef TREADLE_CONVERT_TARGET_H
#define TREADLE_CONVERT_TARGET_H

#include "convert/world.h"
#include "io/safetensors.h"

typedef enum treadle_out_kind { TREADLE_OUT_SAFETENSORS, TREADLE_OUT_TORCH } treadle_out_kind;

/* One tensor of a file. Its pieces have offsets from its own first byte and cover it; or it is carried: `raw` are its
 * bytes. */
typedef struct treadle_out_tensor {
  treadle_stored about; /* name, type, shape, bytes */
  const char *entry;    /* of the archive */
  const char *raw;
  size_t first_piece, piece_count;
} treadle_out_tensor;

typedef struct treadle_out_file {
  treadle_out_kind kind;
  const char *path; /* in the target's folder */
  treadle_out_tensor *tensors;
  int32_t count;
  treadle_pieces pieces;
  const treadle_header *header; /* to be written as it is; NULL: made */
  int64_t bytes;                /* of all tensors */
  treadle_arena arena;
} treadle_out_file;

typedef struct treadle_target treadle_target;

struct treadle_target {
  treadle_layout *layout;
  const treadle_model *model;
  const treadle_checkpoint
      *carried;     /* where carried tensors have their bytes, beside the model's own; may be NULL */
  const char *text; /* of the layout */
  bool is_hf;
  /* Megatron */
  treadle_world world;
  const char *folder; /* "release", "iter_0000012" */
  /* Hugging Face: the model's own files when they are known, else shards of at most 5 GB */
  treadle_header *headers; /* by file; text NULL: to be made */
  int32_t *file_of;        /* by file position: [file_count + 1] ranges of `order` */
  int32_t *order;          /* tensors of all files in file order: of the checkpoint, or entries */
  bool own_files;          /* the model's files are known: what their tensors consist of, by tensor */
  treadle_pieces own_pieces;
  int32_t *own_first; /* [count + 1] into own_pieces */
  bool *own_carried;  /* no part of the model */
  bool same_types;    /* ... and stay what they are, headers included */
  /* Both */
  int32_t
      file_count; /* weights first; then, with Megatron, hf/carried.safetensors where something is carried */
  const char **paths;
  treadle_arena arena;
};

/* `iteration` names Megatron's folder: -1 is a release. */
treadle_status treadle_target_open(const treadle_model *model, const treadle_checkpoint *carried,
                                   const char *text, int64_t iteration, treadle_target **target_p);
void treadle_target_close(treadle_target *target);

/* What file `number` consists of; ended by treadle_out_file_release(). */
treadle_status treadle_target_file(const treadle_target *target, int32_t number, treadle_out_file *file);
void treadle_out_file_release(treadle_out_file *file);

/* The index of a Hugging Face target, as text; NULL where it is one file without an index. treadle_free() ends it. */
treadle_status treadle_target_index(const treadle_target *target, const char *source_index, char **text_p);

#endif

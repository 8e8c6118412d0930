/* Checkpoints of torch.distributed.checkpoint, Megatron's torch_dist format: read where they are mapped.
 *
 * Format (torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch): a folder with
 * `.metadata`, the pickle of a Metadata whose state_dict_metadata names global tensors, each with its
 * element type, size and chunks (offset and size per dimension), and whose storage_data says for each chunk
 * the file and the bytes in it; and files of any names (`__0_1.distcp`), in which each chunk is a
 * torch.save archive of one tensor. The pickles are read as plain values; nothing in them is run.
 *
 * The chunks of a tensor must fill it, each element once. What the format keeps as bytes, and tensors
 * whose key has the name to be skipped, is left out and counted. */
#ifndef TREADLE_IO_TORCH_DIST_H
#define TREADLE_IO_TORCH_DIST_H

#include "io/torch.h"

typedef struct treadle_dist_box {
  int64_t offset[8], size[8];
  int64_t strides[8]; /* in elements, of the data */
  bool contiguous;
  const void *data;            /* the first element, inside a mapping; of any alignment */
  size_t bytes;                /* of its elements */
  treadle_torch_entry storage; /* without a name */
  const char *path;            /* of its file */
} treadle_dist_box;

typedef struct treadle_dist_tensor {
  const char *key;
  treadle_dtype dtype;    /* TREADLE_DTYPE_NONE for what is not moved (I64, ...) */
  const char *dtype_text; /* as safetensors calls it: "BF16" */
  int ndim;
  int64_t shape[8];
  int64_t elems;
  size_t bytes;
  treadle_dist_box *chunks;
  int32_t chunk_count;
} treadle_dist_tensor;

typedef struct treadle_torch_dist {
  treadle_dist_tensor *tensors; /* in the order of the metadata */
  int32_t count;
  int64_t skipped;    /* entries left out */
  size_t total_bytes; /* of all tensors */
  treadle_arena arena;
  struct treadle_dist_file *files;
  int32_t file_count;
} treadle_torch_dist;

/* `skipped`: keys that end so, or go on behind it with "/", are left out ("_extra_state"); NULL: none
 * are. */
treadle_status treadle_torch_dist_open(const char *folder, const char *skipped,
                                       treadle_torch_dist **dist_p);
void treadle_torch_dist_close(treadle_torch_dist *dist);
/* The path of file `number` of file_count, and where it is mapped. */
const char *treadle_torch_dist_file(const treadle_torch_dist *dist, int32_t number, const void **image_p);

/* Writing: a file of chunks, each an archive of its own, one behind the other; and, once all files are there, the metadata
 * that says where they are. Both follow from the same chunks, so that who writes the one need not have written the other. */
typedef struct treadle_dist_part {
  const char *key; /* of the global tensor */
  treadle_dtype dtype;
  int ndim;
  int64_t shape[8];           /* of the global tensor */
  int64_t offset[8], size[8]; /* of the chunk */
} treadle_dist_part;

typedef struct treadle_dist_writer treadle_dist_writer;
/* Create, append the bytes of all parts one after the other in pieces of any size, finish, as with treadle_torch_create(). */
treadle_status treadle_dist_create(const char *path, const treadle_dist_part *parts, int32_t count,
                                   treadle_dist_writer **writer_p);
treadle_status treadle_dist_append(treadle_dist_writer *writer, const void *bytes, size_t count);
treadle_status treadle_dist_finish(treadle_dist_writer *writer);
/* After finish: treadle_file_writer_sum(). */
void treadle_dist_writer_sum(const treadle_dist_writer *writer, int64_t *bytes_p, uint64_t *sum_p);
void treadle_dist_writer_destroy(treadle_dist_writer *writer);

typedef struct treadle_dist_written { /* a file of parts */
  const char *path;                   /* from the folder of the metadata */
  const treadle_dist_part *parts;
  int32_t count;
} treadle_dist_written;

/* The pickle of `.metadata`; parts of one key follow one another, in one file or from one to the next. treadle_pickle_release()
 * ends it. */
treadle_status treadle_dist_metadata_make(const char *what, const treadle_dist_written *files,
                                          int32_t count, treadle_pickle *pickle);

#endif

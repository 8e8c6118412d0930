/* safetensors: one file or shards with an index, read by mapping, written whole or not at all.
 *
 * Format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets: [begin,
 * end)}}, offsets relative to the end of the header, optional __metadata__ (text to text), then the data.
 * Refused: header longer than 100 MB or than the file; offsets that are negative, beyond the file, overlap,
 * leave holes or do not match shape and dtype; names twice; a shard that the index names and that lacks
 * the tensor, or has one that the index does not know. dtypes we do not move (U8, I64, F64, BOOL, ...) are
 * listed with dtype TREADLE_DTYPE_NONE and their raw name. */
#ifndef TREADLE_IO_SAFETENSORS_H
#define TREADLE_IO_SAFETENSORS_H

#include "base/arena.h"
#include "base/hash_map.h"
#include "base/status.h"

#include <stdint.h>

typedef struct treadle_stored {
  const char *name;
  treadle_dtype dtype;
  const char *dtype_text; /* as in the file: "BF16" */
  int ndim;
  int64_t shape[8];
  int64_t elems;
  const void *data; /* inside the mapping; NULL when only the index was read */
  size_t bytes;
  size_t begin; /* bytes from the start of its file's data */
  int32_t file; /* which shard */
} treadle_stored;

/* A file's header as it stands there, without the eight bytes of its length. */
typedef struct treadle_header {
  const char *file; /* name of the file, without its folder */
  const char *text; /* not ended by 0 */
  size_t length;
  size_t data_bytes; /* of the data behind it */
} treadle_header;

typedef struct treadle_checkpoint {
  treadle_stored *tensors; /* sorted by name */
  int32_t count;
  treadle_hash_map by_name; /* name to position in tensors */
  int32_t file_count;
  const char **files; /* paths */
  size_t total_bytes; /* data of all tensors */
  bool index_only;    /* the shards are not there: names only, no shapes */
  const char *note;   /* which safetensors files of the folder are not read, and why; NULL: all are */
  treadle_arena arena;
  struct treadle_checkpoint_mapping *mappings;
} treadle_checkpoint;

/* Opens DIR/model.safetensors (as transformers does, whatever else is there), or DIR/model.safetensors.index.json with its shards,
 * or one .safetensors file. *checkpoint_p is NULL and the status OK when the directory has none of these. */
treadle_status treadle_checkpoint_open(const char *path, treadle_checkpoint **checkpoint_p);
/* Reads an index.json alone: names and shards, no shapes (ndim -1). */
treadle_status treadle_checkpoint_open_index(const char *path, treadle_checkpoint **checkpoint_p);
/* Reads a list of tensors (tensor_list.c): names, types and shapes, no data and no files. A bad line is refused by its
 * number. */
treadle_status treadle_checkpoint_open_list(const char *path, treadle_checkpoint **checkpoint_p);
/* The same lines as an array in the arena. */
treadle_status treadle_tensor_list_read(const char *path, treadle_arena *arena, treadle_stored **tensors_p,
                                        int32_t *count_p);
void treadle_checkpoint_close(treadle_checkpoint *checkpoint);

/* Are its mapped files what they were when it was opened (treadle_file_unchanged)? To be asked after reading, and before
 * what was read is believed. NULL is unchanged. */
treadle_status treadle_checkpoint_unchanged(const treadle_checkpoint *checkpoint);
/* Where a file is mapped; NULL: it is not. */
const void *treadle_checkpoint_image(const treadle_checkpoint *checkpoint, int32_t file);
const treadle_stored *treadle_checkpoint_find(const treadle_checkpoint *checkpoint, const char *name);

/* The header of a shard of a checkpoint that has more than its index. */
treadle_header treadle_checkpoint_header(const treadle_checkpoint *checkpoint, int32_t file);
/* A checkpoint of which only the headers are there: names, types and shapes, no data. What the headers point to is
 * copied. `what` names them in messages. */
treadle_status treadle_checkpoint_from_headers(const char *what, const treadle_header *headers,
                                               int32_t count, treadle_checkpoint **checkpoint_p);

/* Checks the header of one file image, and gives its tensors, sorted by name, whose data lies in the image;
 * the fuzz target's door. */
treadle_status treadle_safetensors_parse(const char *what, const void *image, size_t bytes,
                                         treadle_arena *arena, treadle_stored **tensors_p,
                                         int32_t *count_p);

/* What to write: the same struct as read; name, dtype, ndim, shape, data. */
/* Writes one file: a temporary beside it, fsync, rename, fsync of the folder. On failure nothing is left.
 */
treadle_status treadle_safetensors_write(const char *path, const treadle_stored *tensors, int32_t count);

/* The same as a stream: create, append the bytes of all tensors one after the other in pieces of any size,
 * finish. The tensors lie in the file in the order given; of them name, dtype (or dtype_text), ndim and shape
 * count. `header` is written as it is and has to fit the tensors; NULL: one is made. The file is at its path from
 * finish on; destroy ends the writer and without finish leaves nothing. */
typedef struct treadle_safetensors_writer treadle_safetensors_writer;
treadle_status treadle_safetensors_create(const char *path, const treadle_stored *tensors, int32_t count,
                                          const treadle_header *header,
                                          treadle_safetensors_writer **writer_p);
treadle_status treadle_safetensors_append(treadle_safetensors_writer *writer, const void *bytes,
                                          size_t count);
treadle_status treadle_safetensors_finish(treadle_safetensors_writer *writer);
/* After finish: treadle_file_writer_sum(). */
void treadle_safetensors_writer_sum(const treadle_safetensors_writer *writer, int64_t *bytes_p,
                                    uint64_t *sum_p);
void treadle_safetensors_writer_destroy(treadle_safetensors_writer *writer);

/* The same for several writers, each of which puts what it has of a tensor at its place. `plan` makes the beginning of the file, the header with
 * its length in front, and sets `bytes` and `begin` of each tensor that has a name (others are left out); `begin` then counts from the start of the file. The largest elements lie first,
 * so that every tensor is aligned to its elements. `make` makes the file at its full size, with its beginning: the disk has room for the rest
 * from then on, which is zeros. Nobody must see it under that path yet. */
struct treadle_builder;
treadle_status treadle_safetensors_plan(const char *path, treadle_stored *tensors, int32_t count,
                                        struct treadle_builder *beginning, int64_t *file_bytes_p);
treadle_status treadle_safetensors_make(const char *path, const struct treadle_builder *beginning,
                                        int64_t file_bytes);

#endif

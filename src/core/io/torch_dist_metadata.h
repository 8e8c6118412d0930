/* The metadata of a distributed checkpoint, read; torch_dist.c then opens the chunks. */
#ifndef TREADLE_IO_TORCH_DIST_METADATA_H
#define TREADLE_IO_TORCH_DIST_METADATA_H

#include "base/hash_map.h"
#include "io/torch_dist.h"

/* Where a chunk is stored. */
typedef struct treadle_dist_extent {
  const char *file;
  int64_t offset, length;
} treadle_dist_extent;

typedef struct treadle_dist_reader {
  const char *what;    /* the metadata, in messages */
  const char *skipped; /* see treadle_torch_dist_open() */
  treadle_torch_dist *dist;
  treadle_hash_map places; /* key and offset of a chunk to its number in stored */
  treadle_dist_extent *stored;
  treadle_dist_extent **of_chunk; /* [all chunks in the order of the tensors] */
  size_t chunk_count;
} treadle_dist_reader;

/* what, skipped and dist are set; fills the rest, and the tensors of dist. The caller ends places. */
treadle_status treadle_dist_read_metadata(treadle_dist_reader *r, const void *image, size_t bytes);

treadle_status treadle_dist_no_memory(const char *what);

#endif

/* Explicit pieces: layouts that no rule describes, given piece by piece, by a program or a JSON file.
 *
 * A given piece is a box of the Hugging Face shape; in axes it is a few pieces. The cells of a tensor are the
 * grid that all edges of all its pieces make, so that every cell lies wholly inside or outside of a piece:
 * disjoint, and the same whoever asks. explicit.c answers, explicit_build.c and explicit_windows.c build and check, explicit_file.c reads
 * pieces:@file. */
#ifndef TREADLE_LAYOUT_EXPLICIT_H
#define TREADLE_LAYOUT_EXPLICIT_H

#include "layout/layout.h"

typedef struct treadle_rank_piece {
  int64_t rank;
  treadle_piece piece;
} treadle_rank_piece;

typedef struct treadle_borders { /* of one tensor, by axis, ascending, from 0 to the axis's size */
  int32_t count[TREADLE_MAX_AXES];
  int64_t *at[TREADLE_MAX_AXES];
} treadle_borders;

typedef struct treadle_explicit {
  int32_t storage_count;
  treadle_storage *storages; /* by rank, in order of appearance */
  const char **names;        /* of storages */
  int32_t *storage_first;    /* [ranks + 1] */
  int64_t *window_bytes;     /* [ranks] */
  int64_t window_bytes_max;
  treadle_rank_piece *by_rank;   /* by rank and storage, data before fills */
  size_t *rank_first;            /* [ranks + 1] */
  treadle_rank_piece *by_tensor; /* data only; by tensor, then rank */
  size_t *tensor_first;          /* [tensors + 1] */
  treadle_borders *edges;        /* by tensor */
  char fault[256];               /* of the layout's blocks */
  uint64_t *placement;           /* by tensor */
  treadle_arena arena;
} treadle_explicit;

extern const treadle_layout_ops treadle_explicit_ops;

/* Fills a layout whose model, text and ranks are set. Every element of the model lies on some rank, no two
 * pieces of a rank share memory, what no piece covers becomes fills; refused otherwise. */
treadle_status treadle_explicit_build(treadle_layout *layout, const treadle_explicit_piece *pieces,
                                      size_t count);

#endif

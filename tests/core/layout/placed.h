/* A tensor as a DTensor places it: every rank's shard, and the checks that shards of one side are the
 * tensor and that two sides fit together. */
#ifndef TREADLE_TESTS_PLACED_H
#define TREADLE_TESTS_PLACED_H

#include "flat/dtensor.h"

typedef struct placed_shard {
  int64_t local[TREADLE_MAX_AXES]; /* the local shape */
  treadle_strideds boxes;
  bool first; /* no rank before it has the same: index 0 in all replicated mesh dimensions */
} placed_shard;

typedef struct placed {
  int ndim;
  int64_t shape[TREADLE_MAX_AXES];
  int64_t ranks;
  placed_shard *shards; /* by rank, row-major in the mesh */
} placed;

/* mesh "2x4", placements "S0,R" (one a mesh dimension), shape "64x128x128". */
placed placed_open(const char *shape, const char *mesh, const char *placements);
void placed_close(placed *tensor);

/* The shards of the first replicas tile the tensor, and each local tensor is filled by its boxes. */
void placed_assert_tiles(const placed *tensor);
/* What each rank of `to` gets out of the first replicas of `from` is all of its shard, each element once. */
void placed_assert_moves(const placed *from, const placed *to);

#endif

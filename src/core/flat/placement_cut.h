/* How placements cut one dimension of a tensor: arithmetic, without a table of ranks or parts.
 *
 * A dimension of n elements is cut by steps, one after the other. A step divides what is left into `split` parts of
 * ceil(n / split) elements, each of these into `size` chunks of ceil(part / size), and the rank with coordinate i in the step's mesh dimension
 * has chunk i of each part, one behind the other. The last parts and chunks are smaller or empty. torch's Shard is a step with
 * split = 1, _StridedShard one with its split factor (docs/rules.md 10.3).
 *
 * A run is elements that follow each other in the tensor and on the ranks with some coordinates. Runs are disjoint and cover the
 * dimension, whoever asks. */
#ifndef TREADLE_FLAT_PLACEMENT_CUT_H
#define TREADLE_FLAT_PLACEMENT_CUT_H

#include "base/array.h"
#include "family/family.h"

#include <stdint.h>

enum { TREADLE_MAX_PLACED_DIMS = 8 /* of a device mesh */ };

typedef struct treadle_placement_step {
  int32_t mesh_dim;
  int64_t size;  /* of the mesh dimension; from 2 on */
  int64_t split; /* from 1 on */
} treadle_placement_step;

/* The placements of a tensor on a mesh: steps [first[d], first[d + 1]) cut dimension d, in this order. */
typedef struct treadle_placement_cut {
  int32_t mesh;
  int32_t first[TREADLE_MAX_DIMS + 1];
  treadle_placement_step steps[TREADLE_MAX_PLACED_DIMS];
  bool cuts
      [TREADLE_MAX_PLACED_DIMS]; /* by mesh dimension: ranks that differ in it have different elements */
  int64_t copies;                /* ranks that have the same elements */
  bool fully[TREADLE_MAX_DIMS]; /* by dimension of the tensor: fully_shard cuts it, if only over one rank */
} treadle_placement_cut;

/* A run [low, high) of a dimension. */
typedef struct treadle_placement_run {
  int64_t low, high;
  int64_t local;  /* where it begins among the elements of the ranks that have it */
  int64_t length; /* how many these have */
} treadle_placement_run;

/* How many of n elements of dimension `dim` the ranks with these coordinates have. */
int64_t treadle_placement_length(const treadle_placement_cut *cut, int dim, int64_t n,
                                 const int64_t *coordinates);
/* The most that any rank has. */
treadle_status treadle_placement_longest(const treadle_placement_cut *cut, int dim, int64_t n,
                                         int64_t *longest_p);
/* The run that has element `at`. Sets the coordinates of who has it, in the mesh dimensions that cut `dim`. */
treadle_placement_run treadle_placement_find(const treadle_placement_cut *cut, int dim, int64_t n,
                                             int64_t at, int64_t *coordinates);
/* Which element of n is number `local` of those with these coordinates; local < treadle_placement_length. */
int64_t treadle_placement_element(const treadle_placement_cut *cut, int dim, int64_t n,
                                  const int64_t *coordinates, int64_t local);

#endif

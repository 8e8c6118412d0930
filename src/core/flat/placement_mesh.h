/* Device meshes: which rank has which coordinate, and which ranks have which meshes.
 *
 * A place is a rank's number in a mesh, row-major. Ranks at even distances that do not interleave are arithmetic, others a list with
 * its inverse.
 *
 * Ranks that are in the same meshes make a group: they have the same storage tensors. Ranks here are layout ranks. */
#ifndef TREADLE_FLAT_PLACEMENT_MESH_H
#define TREADLE_FLAT_PLACEMENT_MESH_H

#include "base/arena.h"
#include "flat/flat.h"
#include "flat/placement_cut.h"

typedef struct treadle_placement_rank {
  int64_t rank, place;
} treadle_placement_rank;

typedef struct treadle_placement_mesh {
  int ndim;
  int64_t size[TREADLE_MAX_PLACED_DIMS], weight[TREADLE_MAX_PLACED_DIMS]; /* weight: places of one step */
  int64_t count;                                                          /* of ranks */
  int64_t first, stride[TREADLE_MAX_PLACED_DIMS];
  int by_stride[TREADLE_MAX_PLACED_DIMS], strides; /* dimensions above 1, the longest stride first */
  const int64_t *ranks;                            /* by place; NULL: arithmetic */
  const treadle_placement_rank *sorted;            /* by rank, of a list */
  const int32_t *groups;                           /* which groups of ranks are in it */
  int32_t group_count;
  bool cuts[TREADLE_MAX_PLACED_DIMS]; /* by dimension: it cuts some tensor */
} treadle_placement_mesh;

/* Reads and checks a mesh. `number` is for messages. Lists are copied to the arena. */
treadle_status treadle_placement_mesh_read(const treadle_placed_mesh *given, size_t number, int64_t ranks,
                                           treadle_arena *arena, treadle_placement_mesh *mesh_p);
int64_t treadle_placement_mesh_rank(const treadle_placement_mesh *mesh, int64_t place);
/* The place of a rank; -1: it is not in the mesh. */
int64_t treadle_placement_mesh_find(const treadle_placement_mesh *mesh, int64_t rank);
static inline int64_t treadle_placement_coordinate(const treadle_placement_mesh *mesh, int dim,
                                                   int64_t place) {
  return place / mesh->weight[dim] % mesh->size[dim];
}

/* Ranks by the meshes that they are in. */
typedef struct treadle_placement_groups {
  int32_t count;
  int32_t *mesh_first, *meshes; /* by group: [mesh_first[g], mesh_first[g + 1]) of meshes */
  int64_t *begins;              /* ascending: from which rank on */
  int32_t *group_at;            /* of begins */
  int64_t begin_count;
} treadle_placement_groups;

/* Divides the ranks, and says of each mesh which groups are in it. */
treadle_status treadle_placement_groups_make(treadle_placement_mesh *meshes, int32_t count, int64_t ranks,
                                             treadle_arena *arena, treadle_placement_groups *groups_p);
int32_t treadle_placement_group_of(const treadle_placement_groups *groups, int64_t rank);

#endif

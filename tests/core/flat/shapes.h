/* A model of one tensor, of any shape of 1 to 4 dimensions, and what a rank of a device mesh has of it: lists of indices, cut step
 * by step as torch.chunk does, without any code of the library. */
#ifndef TREADLE_TESTS_SHAPES_H
#define TREADLE_TESTS_SHAPES_H

#include "base/random.h"
#include "treadle.h"

enum { SHAPES_MESH = 8, SHAPES_DIMS = 4 };

/* A folder with the family file; ended by test_remove. */
const char *shapes_folder(void);
/* Dimensions 0 and 1 are made of two axes where their size allows it. *name_p: the tensor's name. */
treadle_model *shapes_model(const char *folder, const int64_t *shape, int ndim, const char **name_p);

/* "S0,T1/2,R", with F and P as in docs/layouts.md; the count of them. */
int shapes_placements(const char *text, treadle_placement *placements);
/* The other way round. */
const char *shapes_text(const treadle_placement *placements, int count, char *text, size_t capacity);

/* Any but Partial. */
treadle_placement shapes_draw(treadle_random *random, int ndim);

/* What a rank has, dimension by dimension: local index i of dimension d is index at[d][i] of the tensor. */
typedef struct shapes_shard {
  int ndim;
  int64_t count[SHAPES_DIMS], *at[SHAPES_DIMS];
} shapes_shard;

shapes_shard shapes_cut(const int64_t *shape, int ndim, const treadle_placement *placements,
                        const int64_t *mesh, const int64_t *coordinates, int mesh_ndim);
void shapes_release(shapes_shard *shard);
int64_t shapes_elems(const shapes_shard *shard);
/* The index in the whole tensor, row-major, of local element number i. */
int64_t shapes_element(const shapes_shard *shard, const int64_t *shape, int64_t i);

#endif

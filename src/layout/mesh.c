/* The mesh: dimensions as size and stride, and sets of ranks that agree in some of them. */
#include "layout/mesh.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void treadle_mesh_add(treadle_mesh *mesh, const char *name, int64_t size, int64_t stride) {
  assert(mesh->count < TREADLE_MAX_MESH);
  treadle_dim *dim = &mesh->dims[mesh->count++];
  snprintf(dim->name, sizeof dim->name, "%s", name);
  dim->size = size;
  dim->stride = stride;
}

const treadle_dim *treadle_mesh_find(const treadle_mesh *mesh, const char *name) {
  for (int i = 0; i < mesh->count; i++)
    if (strcmp(mesh->dims[i].name, name) == 0) return &mesh->dims[i];
  return NULL;
}

treadle_rank_set treadle_mesh_select(const treadle_mesh *mesh, const treadle_dim *first, int64_t a,
                                     const treadle_dim *second, int64_t b) {
  treadle_rank_set set = {0};
  if (first && first->size == 1) first = NULL; /* fixes nothing */
  if (second && second->size == 1) second = NULL;
  if (first) set.base += a * first->stride;
  if (second) set.base += b * second->stride;
  if (first && second && second->stride < first->stride) {
    const treadle_dim *swap = first;
    first = second;
    second = swap;
  }
  const treadle_dim *fixed[2] = {first ? first : second, first ? second : NULL};

  /* What is free are the gaps below, between and above the fixed dimensions. */
  int64_t stride = 1;
  for (int i = 0; i < 3; i++) {
    const treadle_dim *dim = i < 2 ? fixed[i] : NULL;
    if (i < 2 && !dim) continue;
    int64_t end = dim ? dim->stride : mesh->ranks;
    assert(end % stride == 0);
    if (end / stride > 1) {
      set.size[set.count] = end / stride;
      set.stride[set.count++] = stride;
    }
    if (dim) stride = dim->stride * dim->size;
  }
  return set;
}

int64_t treadle_rank_set_count(const treadle_rank_set *set) {
  int64_t count = 1;
  for (int i = 0; i < set->count; i++) count *= set->size[i];
  return count;
}

int64_t treadle_rank_set_get(const treadle_rank_set *set, int64_t position) {
  int64_t rank = set->base;
  for (int i = 0; i < set->count; i++) {
    rank += position % set->size[i] * set->stride[i];
    position /= set->size[i];
  }
  return rank;
}

int64_t treadle_rank_set_find(const treadle_rank_set *set, int64_t rank) {
  int64_t position = 0, rest = rank - set->base;
  if (rest < 0) return -1;
  for (int i = set->count - 1; i >= 0; i--) { /* strides ascend, so the largest digit comes off first */
    int64_t digit = rest / set->stride[i];
    if (digit >= set->size[i]) return -1;
    rest -= digit * set->stride[i];
    position = position * set->size[i] + digit;
  }
  return rest == 0 ? position : -1;
}

/* The mesh: named dimensions of a grid of ranks, and rank maps.
 *
 * A dimension is a size and a stride: its index on layout rank r is (r / stride) % size. A dimension may be made of two that
 * are not neighbours (vLLM's experts: tp, pcp and dp, with pp between them); it has a low and a high digit. Dimensions of one
 * mesh may overlap (SGLang's tp is attn_tp x attn_cp x attn_dp). Layout ranks count in the mesh's own
 * order; a rank order turns them into physical ranks and back. */
#ifndef TREADLE_LAYOUT_MESH_H
#define TREADLE_LAYOUT_MESH_H

#include "base/status.h"

enum { TREADLE_MAX_MESH = 16, TREADLE_MAX_FIXED = 4 };

typedef struct treadle_dim {
  char name[12];
  int64_t size, stride;
  int64_t low,
      high_stride; /* index = low digit, of `low` values, + low * high digit; low == size: one digit */
} treadle_dim;

typedef struct treadle_mesh {
  int count;
  treadle_dim dims[TREADLE_MAX_MESH];
  int64_t ranks;
} treadle_mesh;

/* Appends a dimension. */
void treadle_mesh_add(treadle_mesh *mesh, const char *name, int64_t size, int64_t stride);
/* Appends a dimension of two digits. */
void treadle_mesh_add_digits(treadle_mesh *mesh, const char *name, int64_t low, int64_t stride,
                             int64_t high, int64_t high_stride);
/* NULL when there is none of that name. */
const treadle_dim *treadle_mesh_find(const treadle_mesh *mesh, const char *name);

static inline int64_t treadle_dim_index(const treadle_dim *dim, int64_t rank) {
  int64_t low = rank / dim->stride % dim->low;
  return dim->low == dim->size ? low : low + dim->low * (rank / dim->high_stride % (dim->size / dim->low));
}

/* The ranks that agree in some dimensions: base + sum of digits * stride, one for each gap between them. */
typedef struct treadle_rank_set {
  int64_t base;
  int count;
  int64_t size[2 * TREADLE_MAX_FIXED + 1], stride[2 * TREADLE_MAX_FIXED + 1];
} treadle_rank_set;

typedef struct treadle_fixed { /* index `index` of dimension `dim`; dim NULL fixes nothing */
  const treadle_dim *dim;
  int64_t index;
} treadle_fixed;

/* The layout ranks with these indices, of at most TREADLE_MAX_FIXED dimensions, which do not overlap and each divide
 * the grid evenly. */
treadle_rank_set treadle_mesh_select(const treadle_mesh *mesh, const treadle_fixed *fixed, int count);
int64_t treadle_rank_set_count(const treadle_rank_set *set);
int64_t treadle_rank_set_get(const treadle_rank_set *set, int64_t position);
/* The position of a layout rank, -1 when it is not in the set. */
int64_t treadle_rank_set_find(const treadle_rank_set *set, int64_t rank);

/* A rank map: layout rank i = g * tp + t sits on physical rank (g / f) * (f * tp) + g % f + f * t. f = 1 is
 * contiguous. f * tp divides the ranks. */
typedef struct treadle_rank_order {
  int64_t tp, f;
} treadle_rank_order;

static inline int64_t treadle_order_physical(const treadle_rank_order *order, int64_t rank) {
  if (order->f <= 1) return rank;
  int64_t g = rank / order->tp, t = rank % order->tp;
  return g / order->f * (order->f * order->tp) + g % order->f + order->f * t;
}

static inline int64_t treadle_order_layout(const treadle_rank_order *order, int64_t physical) {
  if (order->f <= 1) return physical;
  int64_t block = physical / (order->f * order->tp), in = physical % (order->f * order->tp);
  return (block * order->f + in % order->f) * order->tp + in / order->f;
}

#endif

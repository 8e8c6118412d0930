/* DTensor placements and FSDP2 shards: what of a global shape each rank of a device mesh has. Pure
 * arithmetic; boxes are in dimensions of the shape (one axis a dimension), everything counts in elements.
 * (torch/distributed/tensor/placement_types.py, torch/distributed/fsdp/_fully_shard/_fsdp_param.py;
 * docs/rules.md 10.2, 10.3, run.) */
#ifndef TESTS_FLAT_DTENSOR_H
#define TESTS_FLAT_DTENSOR_H

#include "flat/flat.h"

typedef struct dtensor_placement {
  char type;     /* 'S' Shard, 'T' _StridedShard, 'R' Replicate */
  int dim;       /* S, T: of the tensor */
  int64_t split; /* T: split_factor */
} dtensor_placement;

/* A mesh dimension, how it places a tensor, and which index a rank has in it. */
typedef struct treadle_mesh_placement {
  dtensor_placement placement;
  int64_t size, index;
} treadle_mesh_placement;

/* The shard of one rank of a DTensor. Placements apply from left to right, each to what the one before has
 * left (nested): S cuts as torch.chunk, T cuts into `split` chunks, each of these into `size` chunks, and
 * rank i has chunk i of every one, one behind the other. local[ndim] is the local shape (row-major, without
 * gaps); its boxes are appended with their places in it, none when the shard is empty. Partial and other
 * types are refused, as are dimensions that the tensor lacks.
 *
 * Do not ask this for FSDP2 with TP on the same dimension: the placements that torch prints there do not
 * say where the rows are when they do not divide evenly (docs/rules.md 10.2). treadle_fsdp2_shard knows. */
treadle_status treadle_dtensor_shard(const int64_t *shape, int ndim, const treadle_mesh_placement *places,
                                     int nplaces, int64_t *local, treadle_strideds *boxes);

/* What fully_shard does with one parameter. */
typedef struct treadle_fsdp2_rule {
  int tp_dim;   /* dimension that TP cuts first, as torch.chunk; -1: not cut */
  int64_t tp;   /* 1: none */
  int fsdp_dim; /* 0 unless shard_placement_fn says another, which must then divide evenly */
  int64_t fsdp; /* ranks that shard; those that replicate (HSDP) have the same */
} treadle_fsdp2_rule;

/* The box of FSDP rank `index` on TP rank `tp_index`: all of the tensor, cut on tp_dim by TP, and that piece
 * cut by FSDP as torch.chunk. Some sizes may be 0. stored[ndim] is the shape that is allocated: the same
 * number of rows on every rank of the FSDP group, zeros behind the real ones; the box lies in it row-major
 * from its begin. Refused alike on all ranks. */
treadle_status treadle_fsdp2_shard(const int64_t *shape, int ndim, const treadle_fsdp2_rule *rule,
                                   int64_t tp_index, int64_t index, treadle_box *box_p, int64_t *stored);

#endif

/* Flat layouts: tensors one behind the other in one address space, which is cut into shards of equal size without
 * regard to rows and tensors. FSDP1 units, ZeRO-1/2/3; Megatron's distributed optimizer (distopt.h)
 * lays its buffers by rules of its own and is cut the same way. Pure arithmetic, no state; everything
 * counts in elements, ranges are half open.
 *
 * A flat shard is a range of addresses. The part of a tensor in it is a few boxes: treadle_strided_clip. */
#ifndef TREADLE_FLAT_FLAT_H
#define TREADLE_FLAT_FLAT_H

#include "layout/box.h"

typedef struct treadle_span { /* [low, high); empty: low == high */
  int64_t low, high;
} treadle_span;

typedef TREADLE_ARRAY(treadle_span) treadle_spans;

/* Chunk `rank` of [low, high) in `count`, as torch.chunk cuts: every chunk has ceil(n / count) elements
 * until there are no more; later ones are smaller or empty. count >= 1. */
treadle_span treadle_span_chunk(treadle_span span, int64_t count, int64_t rank);

/* A box and where its elements lie: the element at box.start at address `offset`, one step on axis a is
 * stride[a] addresses on. */
typedef struct treadle_strided {
  treadle_box box;
  int64_t offset;
  int64_t stride[TREADLE_MAX_AXES];
} treadle_strided;

typedef TREADLE_ARRAY(treadle_strided) treadle_strideds;

/* The box of a tensor of these axes as it lies in row-major order from address `offset` on. */
treadle_strided treadle_strided_whole(const int64_t *axis, int naxes, int64_t offset);

/* The axes longer than 1, slow first; reach[i]: addresses from the first to the last element of a step of axis order[i],
 * both included. */
typedef struct treadle_nest {
  int count, order[TREADLE_MAX_AXES];
  int64_t reach[TREADLE_MAX_AXES];
} treadle_nest;

treadle_nest treadle_nest_of(const treadle_strided *from);
/* treadle_strided_clip below, with the nest of `from`, for those who clip it often. */
treadle_status treadle_nest_clip(const treadle_nest *nest, const treadle_strided *from,
                                 treadle_span addresses, int64_t origin, treadle_strideds *parts);

/* Appends what of `from` lies at addresses [low, high), as at most 2 * axes - 1 boxes in ascending order of
 * their addresses. Offsets come out less `origin`: 0 keeps them, `low` makes them count inside the shard.
 * Strides are positive and nested: a step of an axis is not shorter than what the faster axes span (axes of
 * size 1 aside); the order of the axes does not matter. */
treadle_status treadle_strided_clip(const treadle_strided *from, treadle_span addresses, int64_t origin,
                                    treadle_strideds *parts);

/* ---- Units: parameters in one flat buffer, cut evenly ---- */

typedef struct treadle_flat_unit {
  int64_t used;  /* addresses up to the end of the last parameter */
  int64_t shard; /* of each rank; rank r has [r * shard, (r + 1) * shard) */
  int64_t total; /* world * shard */
  int fill;      /* what stands in gaps between parameters and in the tail */
} treadle_flat_unit;

/* An FSDP1 flat parameter (torch/distributed/fsdp/_flat_param.py; docs/rules.md 10.1, run): the parameters of one
 * wrapped module, in the order that torch registers them. starts[count] becomes the address of each.
 *
 * Without use_orig_params they follow one another, the shard is ceil(n / world), the tail is 0. With it
 * every start is a multiple of 16 bytes, of elements of elem_bytes: of the dtype that mixed precision
 * computes in when one is set, else of the parameters; gaps and tail are 42.
 *
 * world is the group that shards: all ranks for FULL_SHARD and SHARD_GRAD_OP, the shard dimension for
 * HYBRID_SHARD. NO_SHARD pads to its world too, and every rank has [0, total). A tensor-parallel parameter
 * counts with its local shard: the TP cut comes first. Refuses what does not fit 63 bits. */
treadle_status treadle_fsdp1_unit(const int64_t *numels, int64_t count, int64_t world, bool use_orig_params,
                                  int64_t elem_bytes, int64_t *starts, treadle_flat_unit *unit_p);

/* ZeRO-1 and ZeRO-2 (deepspeed/runtime/zero/stage_1_and_2.py; read, not run): the fp32 master weights of
 * one optimizer parameter group. Its trainable parameters follow one another in the order of the group, the
 * tail is 0 up to a multiple of 2 * world (nccl_start_alignment_factor 2), and the buffer is cut evenly.
 * The two stages differ in gradients only; the 16-bit weights are in full on every rank. world is the data
 * parallel group, for expert parameters that of the experts. Not covered: round_robin_gradients (off by
 * default), which reorders the parameters, and sub-classes (ZenFlow). */
treadle_status treadle_zero12_unit(const int64_t *numels, int64_t count, int64_t world, int64_t *starts,
                                   treadle_flat_unit *unit_p);

/* The next multiple of `step`, at or behind `at`; false when it does not fit. For tables like these. */
bool treadle_round_up(int64_t at, int64_t step, int64_t *rounded_p);

#endif

/* The buffers of Megatron's distributed optimizer (megatron/core/distributed/param_and_grad_buffer.py,
 * optimizer/distrib_optimizer.py of 0.16.1; docs/rules.md 10.5, run). Pure arithmetic; everything counts in
 * elements.
 *
 * A buffer has the parameters of one model chunk, of one parameter dtype (fp8 counts as one), one gradient
 * dtype, and either of the dense or of the expert parameters (experts are apart only when ep > 1). It is
 * laid in reverse named_parameters order in buckets, and every data parallel rank owns an equal part of
 * every bucket, without regard to the parameters in it. The 16-bit weights are views of whole buffers and are
 * in full on every rank; only the fp32 master weights (and the optimizer's state) are cut so. */
#ifndef TREADLE_FLAT_DISTOPT_H
#define TREADLE_FLAT_DISTOPT_H

#include "flat/flat.h"

typedef struct treadle_distopt_options {
  int64_t dp;          /* of the buffer: DP x CP (its part inside an optimizer instance), EDP for experts */
  int64_t bucket_size; /* a bucket ends when it has this many; 0: one bucket. Megatron: one for pp rank > 0,
                            for model chunks > 0, without overlap_grad_reduce; else max(40e6, 1e6 * dp) */
  bool pad_for_high_nccl; /* pad_buckets_for_high_nccl_busbw */
} treadle_distopt_options;

typedef struct treadle_distopt_param {
  int64_t numel;         /* given */
  bool shared_embedding; /* given: has a bucket of its own. pp > 1: the tied embedding, and its copy on the
                            last stage; with MTP the embedding and its copy, tied or not */
  int64_t start, end;
  int32_t bucket;
} treadle_distopt_param;

typedef struct treadle_distopt_bucket {
  int64_t start, end; /* end: with padding; the next one starts there */
  int64_t unpadded;   /* elements before the padding */
} treadle_distopt_bucket;

typedef TREADLE_ARRAY(treadle_distopt_bucket) treadle_distopt_buckets;

/* Fills in start, end and bucket of each of params[count], which are in named_parameters order, and appends
 * the buckets (to an empty array). The buffer ends with the last bucket. Refuses dp < 1, bucket_size < 0
 * and what does not fit 63 bits. */
treadle_status treadle_distopt_layout(const treadle_distopt_options *options, treadle_distopt_param *params,
                                      int64_t count, treadle_distopt_buckets *buckets);

#endif

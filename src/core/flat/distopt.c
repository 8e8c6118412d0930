/* The buffers of the distributed optimizer: parameters backwards, each at a multiple of 64, in buckets. */
/* docs/rules.md 10.5. numel 500 and 10 with bucket_size 300 over 8 ranks: 10 at 0, 500 at 64. These end at
 * 564, which is no less than 300, so the bucket ends there, padded to 640 = 5 * 128; each rank has 80 of
 * it. */
#include "flat/distopt.h"

#include <inttypes.h>

enum { PARAM_ALIGN = 64, BUCKET_ALIGN = 128, NCCL_ALIGN = 1 << 16 };

static int64_t divisor(int64_t a, int64_t b) { return b == 0 ? a : divisor(b, a % b); }

typedef struct builder {
  int64_t step;  /* every bucket's size is a multiple */
  int64_t start; /* of the open bucket */
  bool open;     /* it has a parameter */
  treadle_distopt_buckets *buckets;
} builder;

/* Ends the open bucket, whose elements end at `at`; *at is where the next begins.
 * The padding is the bucket's own: its even parts take it in, and the last ranks may have nothing else. */
static treadle_status close_bucket(builder *b, int64_t *at) {
  treadle_distopt_bucket bucket = {b->start, *at, *at - b->start};
  if (!treadle_round_up(*at, b->step, &bucket.end))
    return treadle_fail(TREADLE_REFUSED,
                        "distributed optimizer: a bucket that ends at %" PRId64 " does not fit 63 bits",
                        *at);
  b->start = *at = bucket.end;
  b->open = false;
  return treadle_array_push(b->buckets, bucket);
}

/* step = lcm(align, dp), so that each bucket has dp equal parts. */
static treadle_status start_builder(builder *b, const treadle_distopt_options *options) {
  int64_t align = options->pad_for_high_nccl ? NCCL_ALIGN : BUCKET_ALIGN;
  if (options->dp < 1)
    return treadle_fail(TREADLE_REFUSED, "distributed optimizer over %" PRId64 " ranks", options->dp);
  if (options->bucket_size < 0)
    return treadle_fail(TREADLE_REFUSED, "distributed optimizer: buckets of %" PRId64 " elements",
                        options->bucket_size);
  if (__builtin_mul_overflow(options->dp / divisor(options->dp, align), align, &b->step))
    return treadle_fail(TREADLE_REFUSED, "distributed optimizer over %" PRId64 " ranks", options->dp);
  return TREADLE_OK;
}

treadle_status treadle_distopt_layout(const treadle_distopt_options *options, treadle_distopt_param *params,
                                      int64_t count, treadle_distopt_buckets *buckets) {
  treadle_status status = TREADLE_OK;
  builder b = {.buckets = buckets};
  TRY(start_builder(&b, options));
  int64_t at = 0;
  for (int64_t i = count - 1; i >= 0; i--) {
    treadle_distopt_param *param = &params[i];
    /* Shared: a bucket of its own. What is open is closed before it, and its own right behind it. */
    bool fits = treadle_round_up(at, PARAM_ALIGN, &at);
    if (fits && param->shared_embedding && b.open) TRY(close_bucket(&b, &at));
    if (!fits || param->numel < 0 || __builtin_add_overflow(at, param->numel, &param->end)) {
      status = treadle_fail(TREADLE_REFUSED,
                            "distributed optimizer: parameter %" PRId64 " has %" PRId64
                            " elements: negative, or beyond 63 bits",
                            i, param->numel);
      goto out;
    }
    param->start = at;
    param->bucket = (int32_t)buckets->count;
    at = param->end;
    b.open = true;
    bool full = options->bucket_size > 0 && at - b.start >= options->bucket_size;
    if (full || param->shared_embedding) TRY(close_bucket(&b, &at));
  }
  if (b.open) TRY(close_bucket(&b, &at));
out:
  return status;
}

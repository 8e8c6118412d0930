/* What a rank has of a flat unit, and of a bucket of the distributed optimizer: equal parts, one behind the other. */
#ifndef TREADLE_TESTS_FLAT_SHARDS_H
#define TREADLE_TESTS_FLAT_SHARDS_H

#include "flat/distopt.h"

static inline treadle_span flat_shard_of(const treadle_flat_unit *unit, int64_t rank) {
  return (treadle_span){rank * unit->shard, (rank + 1) * unit->shard};
}

static inline treadle_span flat_owned_of(const treadle_distopt_bucket *bucket, int64_t dp, int64_t rank) {
  int64_t each = (bucket->end - bucket->start) / dp;
  return (treadle_span){bucket->start + rank * each, bucket->start + (rank + 1) * each};
}

#endif

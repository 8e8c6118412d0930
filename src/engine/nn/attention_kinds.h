/* What the kinds of attention (nn/attention.h), one file each, share with attention.c: the kinds, and how scratch is divided. */
#ifndef TREADLE_NN_ATTENTION_KINDS_H
#define TREADLE_NN_ATTENTION_KINDS_H

#include "nn/attention.h"

enum {
  ATTENTION_KEYS = TREADLE_ATTENTION_BLOCK,
  ATTENTION_QUERIES = 128, /* that share the keys and values of a block */
  ATTENTION_TILE = 4,      /* queries whose sums are in registers at once */
  ATTENTION_GROUP = 16,    /* keys of one vector */
};

/* One thread's memory while it works on up to ATTENTION_QUERIES queries: a query is a row and a head. */
typedef struct attention_scratch {
  const float *query[ATTENTION_QUERIES]; /* [key_dim] each */
  float largest[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
  float scores[ATTENTION_TILE * ATTENTION_KEYS];
  float memory[]; /* sums, keys, values: see below */
} attention_scratch;

/* Values of a head, rounded up to whole vectors. */
static inline int64_t attention_padded(const treadle_attention_spec *spec) {
  return (spec->kv.value_dim + ATTENTION_GROUP - 1) / ATTENTION_GROUP * ATTENTION_GROUP;
}

/* In `memory`: sums [ATTENTION_QUERIES, padded], keys [key_dim, ATTENTION_KEYS], values [ATTENTION_KEYS, padded]. */
static inline int64_t attention_keys_at(const treadle_attention_spec *spec) {
  return ATTENTION_QUERIES * attention_padded(spec);
}
static inline int64_t attention_values_at(const treadle_attention_spec *spec) {
  return attention_keys_at(spec) + spec->kv.key_dim * ATTENTION_KEYS;
}
static inline int64_t attention_memory(const treadle_attention_spec *spec) {
  return attention_values_at(spec) + ATTENTION_KEYS * attention_padded(spec);
}

extern const treadle_attention_ops treadle_attention_ops_plain, treadle_attention_ops_avx2,
    treadle_attention_ops_avx512;

#endif

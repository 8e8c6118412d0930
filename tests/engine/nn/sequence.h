/* Attention of one sequence, for tests: drawn from a seed, with its own cache. */
#ifndef TREADLE_TESTS_NN_SEQUENCE_H
#define TREADLE_TESTS_NN_SEQUENCE_H

#include "base/random.h"
#include "nn/attention.h"

/* A sequence with all its queries, keys and values. */
typedef struct test_scene {
  treadle_attention_spec spec;
  int64_t tokens, blocks, stride, query_width, key_width, value_width, out_width;
  float *queries, *keys, *values, *out, *wanted;
  char *cache;
  int32_t *table;
  char text[200];
} test_scene;

void test_make_scene(test_scene *s, treadle_random *random, int64_t most_tokens);
void test_end_scene(test_scene *s);

/* An empty cache of NaN with blocks of this many tokens, in a random order, with room between them. */
void test_make_cache(test_scene *s, int64_t block_tokens, treadle_random *random);
void test_end_cache(test_scene *s);

/* The whole sequence in chunks of at most this many rows, each written before it is asked, in ranges of items of random lengths. */
void test_run_chunks(test_scene *s, const treadle_attention_ops *ops, int64_t most, treadle_random *random);

#endif

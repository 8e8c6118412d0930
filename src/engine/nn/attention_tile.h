/* The arithmetic of attention in terms of lanes (nn/lanes.h): up to 4 queries with one block of 64 keys.
 *
 * Sums of several queries and vectors stay in registers, so that each key and value that is loaded is used for all of them. How many
 * there are changes no bit: each sum is a chain of its own. */
#ifndef TREADLE_NN_ATTENTION_TILE_H
#define TREADLE_NN_ATTENTION_TILE_H

#include "nn/attention_kinds.h"

#include <math.h>

/* Where the keys and values of a block are: in the cache, or as fp32 in scratch. */
typedef struct block_view {
  const char *keys[4], *values[4]; /* of each group of 16 positions */
  int64_t key_step, value_step;    /* elements from dimension to dimension, and from value to value */
  int64_t value_dim;               /* that may be read */
} block_view;

/* Queries that are done together: their parts of scratch, and which keys of the block each sees. */
typedef struct query_tile {
  const float *const *query;
  float *largest, *sum, *scores, *sums;
  int64_t key_dim, padded;
  float scale;
  int from[ATTENTION_TILE], to[ATTENTION_TILE];
  const char *ahead[4]; /* groups of positions that are read after these, to be fetched; any address */
} query_tile;

typedef void tile_function(const query_tile *tile, const block_view *block);

/* Vectors at a time with this many queries: what registers hold. */
#define TILE_VECTORS(queries) (LANES_KEPT / (queries) >= 4 ? 4 : LANES_KEPT / (queries) >= 2 ? 2 : 1)

LANES_PART lanes element_lanes(treadle_dtype dtype, const char *from, int64_t at) {
  if (dtype == TREADLE_FP32) return lanes_load((const float *)(const void *)from + at);
  return lanes_load_bf16((const uint16_t *)(const void *)from + at);
}

LANES_PART lanes element_lanes_part(treadle_dtype dtype, const char *from, int64_t at, int64_t left) {
  if (left >= LANES) return element_lanes(dtype, from, at);
  if (dtype == TREADLE_FP32) return lanes_load_part((const float *)(const void *)from + at, (int)left);
  return lanes_load_bf16_part((const uint16_t *)(const void *)from + at, (int)left);
}

/* ---- Scores ---- */

/* Few queries wait for the cache rather than for arithmetic: so what comes next is fetched meanwhile, a line of each group for each
 * dimension, `step` bytes apart. All at once they would wait for each other. */
LANES_PART void score_vectors(treadle_dtype dtype, int queries, int vectors, const query_tile *t,
                              const block_view *block, int first, int64_t step) {
  lanes sum[ATTENTION_TILE][4], key[4];
  LANES_UNROLLED
  for (int i = 0; i < queries; i++) {
    LANES_UNROLLED
    for (int v = 0; v < vectors; v++) sum[i][v] = lanes_all(0.0f);
  }
  for (int64_t d = 0; d < t->key_dim; d++) {
    LANES_UNROLLED
    for (int v = 0; v < vectors; v++)
      key[v] = lanes_pin(element_lanes(dtype, block->keys[first + v], d * block->key_step));
    if (dtype == TREADLE_BF16) {
      LANES_UNROLLED
      for (int v = 0; v < 4; v++) __builtin_prefetch(t->ahead[v] + d * step, 0, 3);
    }
    LANES_UNROLLED
    for (int i = 0; i < queries; i++) {
      lanes query = lanes_all(t->query[i][d]);
      LANES_UNROLLED
      for (int v = 0; v < vectors; v++) sum[i][v] = lanes_fma(query, key[v], sum[i][v]);
    }
  }
  lanes scale = lanes_all(t->scale);
  LANES_UNROLLED
  for (int i = 0; i < queries; i++) {
    LANES_UNROLLED
    for (int v = 0; v < vectors; v++)
      lanes_store(t->scores + i * ATTENTION_KEYS + (first + v) * LANES, lanes_mul(sum[i][v], scale));
  }
}

LANES_PART void score_block(treadle_dtype dtype, int queries, const query_tile *t,
                            const block_view *block) {
  int first = t->from[0], last = t->to[0];
  int64_t step = 64;
  for (int i = 1; i < queries; i++) {
    first = t->from[i] < first ? t->from[i] : first;
    last = t->to[i] > last ? t->to[i] : last;
  }
  first /= LANES;
  last = (last + LANES - 1) / LANES;
  for (; TILE_VECTORS(queries) == 4 && first + 4 <= last; first += 4, step = 0)
    score_vectors(dtype, queries, 4, t, block, first, step);
  for (; TILE_VECTORS(queries) >= 2 && first + 2 <= last; first += 2, step = 0)
    score_vectors(dtype, queries, 2, t, block, first, step);
  for (; first < last; first++, step = 0) score_vectors(dtype, queries, 1, t, block, first, step);
}

/* ---- Weights ---- */

/* Masks the scores of one query and returns the largest. */
LANES_PART float mask_scores(float *scores, int from, int to) {
  lanes most = lanes_all(-INFINITY);
  if (from == 0 && to == ATTENTION_KEYS) {
    LANES_UNROLLED
    for (int at = 0; at < ATTENTION_KEYS; at += LANES) most = lanes_max(lanes_load(scores + at), most);
    return lanes_largest(most);
  }
  for (int at = from / LANES * LANES; at < to; at += LANES) {
    lanes score = lanes_within(lanes_load(scores + at), from - at, to - at, -INFINITY);
    lanes_store(scores + at, score);
    most = lanes_max(score, most);
  }
  return lanes_largest(most);
}

/* Scores of one query become p; returns their sum. */
LANES_PART float weigh_scores(float *scores, int from, int to, float largest) {
  lanes top = lanes_all(largest), sum = lanes_all(0.0f);
  if (from == 0 && to == ATTENTION_KEYS) {
    LANES_UNROLLED
    for (int at = 0; at < ATTENTION_KEYS; at += LANES) {
      lanes weight = lanes_exp(lanes_sub(lanes_load(scores + at), top));
      lanes_store(scores + at, weight);
      sum = lanes_add(sum, weight);
    }
    return lanes_sum(sum);
  }
  for (int at = from / LANES * LANES; at < to; at += LANES) {
    lanes weight = lanes_exp(lanes_sub(lanes_load(scores + at), top));
    lanes_store(scores + at, weight);
    sum = lanes_add(sum, weight);
  }
  return lanes_sum(sum);
}

/* Scores of all queries become p. Writes c of each. */
LANES_PART void weigh(int queries, const query_tile *t, float kept[LANES]) {
  float difference[LANES] = {0};
  for (int i = 0; i < queries; i++) {
    float top = mask_scores(t->scores + i * ATTENTION_KEYS, t->from[i], t->to[i]);
    top = top > t->largest[i] ? top : t->largest[i];
    difference[i] = t->largest[i] - top;
    t->largest[i] = top;
  }
  lanes_store(kept, lanes_exp(lanes_load(difference)));
  for (int i = 0; i < queries; i++) {
    float sum = weigh_scores(t->scores + i * ATTENTION_KEYS, t->from[i], t->to[i], t->largest[i]);
    t->sum[i] = t->sum[i] * kept[i] + sum;
  }
}

/* ---- Values ---- */

/* Keys from..to, which all queries see; what their sums are multiplied by first. */
typedef struct key_run {
  int from, to;
  float kept[LANES];
} key_run;

/* This many vectors of values from element `first` on; `last` of the last one are there. */
LANES_PART void add_vectors(treadle_dtype dtype, int queries, int vectors, const query_tile *t,
                            const block_view *block, const key_run *keys, int64_t first) {
  lanes sum[ATTENTION_TILE][4], value[4];
  int64_t left = block->value_dim - first - (vectors - 1) * LANES; /* for the last of them */
  LANES_UNROLLED
  for (int i = 0; i < queries; i++) {
    LANES_UNROLLED
    for (int v = 0; v < vectors; v++)
      sum[i][v] =
          lanes_mul(lanes_load(t->sums + i * t->padded + first + v * LANES), lanes_all(keys->kept[i]));
  }
  for (int key = keys->from, end; key < keys->to; key = end) {
    int64_t at = key % LANES * block->value_step + first;
    const char *rows = block->values[key / LANES];
    end = (key / LANES + 1) * LANES < keys->to ? (key / LANES + 1) * LANES : keys->to;
    for (const float *weights = t->scores + key; weights < t->scores + end; weights++) {
      LANES_UNROLLED
      for (int v = 0; v < vectors - 1; v++)
        value[v] = lanes_pin(element_lanes(dtype, rows, at + v * LANES));
      value[vectors - 1] = lanes_pin(element_lanes_part(dtype, rows, at + (vectors - 1) * LANES, left));
      LANES_UNROLLED
      for (int i = 0; i < queries; i++) {
        lanes weight = lanes_all(weights[i * ATTENTION_KEYS]);
        LANES_UNROLLED
        for (int v = 0; v < vectors; v++) sum[i][v] = lanes_fma(weight, value[v], sum[i][v]);
      }
      at += block->value_step;
    }
  }
  LANES_UNROLLED
  for (int i = 0; i < queries; i++) {
    LANES_UNROLLED
    for (int v = 0; v < vectors; v++) lanes_store(t->sums + i * t->padded + first + v * LANES, sum[i][v]);
  }
}

LANES_PART void add_values(treadle_dtype dtype, int queries, const query_tile *t, const block_view *block,
                           const key_run *keys) {
  int64_t first = 0, step = TILE_VECTORS(queries) * LANES;
  for (; first + step <= t->padded; first += step)
    add_vectors(dtype, queries, TILE_VECTORS(queries), t, block, keys, first);
  for (; first < t->padded; first += LANES) add_vectors(dtype, queries, 1, t, block, keys, first);
}

/* Keys that only one of the queries sees. */
LANES_PART void add_rest(treadle_dtype dtype, const query_tile *t, const block_view *block, int query,
                         const key_run *keys) {
  query_tile one = *t;
  one.scores += query * ATTENTION_KEYS;
  one.sums += query * t->padded;
  add_values(dtype, 1, &one, block, keys);
}

/* ---- A tile and a block ---- */

LANES_PART void tile_of(treadle_dtype dtype, int queries, const query_tile *t, const block_view *block) {
  key_run common = {.from = t->from[0], .to = t->to[0]};
  bool together = true;
  score_block(dtype, queries, t, block);
  weigh(queries, t, common.kept);
  for (int i = 0; i < queries; i++) {
    together = together && t->from[i] == common.from;
    common.to = t->to[i] < common.to ? t->to[i] : common.to;
  }
  if (together) add_values(dtype, queries, t, block, &common);
  for (int i = 0; i < queries; i++) {
    key_run rest = {.from = together ? common.to : t->from[i],
                    .to = t->to[i],
                    .kept = {together ? 1.0f : common.kept[i]}};
    if (rest.from < rest.to) add_rest(dtype, t, block, i, &rest);
  }
}

#define TILE(name, dtype, queries)                                                                         \
  LANES_CODE static void name(const query_tile *t, const block_view *block) {                              \
    tile_of(dtype, queries, t, block);                                                                     \
  }
TILE(tile_fp32_1, TREADLE_FP32, 1)
TILE(tile_fp32_2, TREADLE_FP32, 2)
TILE(tile_fp32_3, TREADLE_FP32, 3)
TILE(tile_fp32_4, TREADLE_FP32, 4)
TILE(tile_bf16_1, TREADLE_BF16, 1)
TILE(tile_bf16_2, TREADLE_BF16, 2)
TILE(tile_bf16_3, TREADLE_BF16, 3)
TILE(tile_bf16_4, TREADLE_BF16, 4)

static tile_function *const tiles[2][ATTENTION_TILE] = {
    {tile_fp32_1, tile_fp32_2, tile_fp32_3, tile_fp32_4},
    {tile_bf16_1, tile_bf16_2, tile_bf16_3, tile_bf16_4}};

#endif

/* Attention in terms of lanes (nn/lanes.h); each file that includes this makes one treadle_attention_ops of it.
 *
 * Queries (a row and a head each) that have one key-value head go together, up to ATTENTION_QUERIES. Block by block of 64
 * positions, keys and values are widened to fp32 once for all of them, or, where they are few, read in the cache as they are. */
#ifndef TREADLE_NN_ATTENTION_BODY_H
#define TREADLE_NN_ATTENTION_BODY_H

#include "nn/attention_tile.h"

#include <string.h>

/* From this many queries on, a block that is bf16 is widened first. */
enum { WIDEN_FROM = 12 };

/* Queries that share a key-value head: rows of the sequence times heads. */
typedef struct query_set {
  const treadle_attention_spec *spec;
  const treadle_attention_rows *rows;
  int64_t kv_head, head, heads; /* heads: from `head` of the whole rank on */
  int64_t row, count;           /* of rows */
  attention_scratch *scratch;
  const char *ahead[4]; /* groups of positions that are read after the block under way */
} query_set;

/* ---- Keys and values of a block ---- */

LANES_PART float element(treadle_dtype dtype, const char *from, int64_t at) {
  return dtype == TREADLE_FP32 ? ((const float *)(const void *)from)[at]
                               : treadle_bf16_to_float(((const uint16_t *)(const void *)from)[at]);
}

/* Are 16 positions from a multiple of 16 on side by side in the cache? */
static bool side_by_side(const treadle_kv_shape *kv) {
  return !kv->shared && kv->block_tokens % LANES == 0;
}

/* The keys from `start` on, as they lie. */
static void view_cache(const query_set *q, int64_t start, int keys, block_view *block) {
  const treadle_kv_shape *kv = &q->spec->kv;
  int64_t bytes = kv->dtype == TREADLE_FP32 ? 4 : 2;
  *block =
      (block_view){.key_step = kv->block_tokens, .value_step = kv->value_dim, .value_dim = kv->value_dim};
  for (int group = 0; group * LANES < keys; group++) {
    int64_t position = start + group * LANES, slot = position % kv->block_tokens;
    const char *head = treadle_kv_head(kv, &q->rows->blocks, q->kv_head, position);
    block->keys[group] = head + slot * bytes;
    block->values[group] = head + (kv->key_dim * kv->block_tokens + slot * kv->value_dim) * bytes;
  }
}

LANES_PART void widen_row(treadle_dtype dtype, float *to, const char *from, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES)
    lanes_store(to + i, element_lanes_part(dtype, from, i, count - i));
}

/* Up to 16 rows of values become columns of keys. */
LANES_PART void turn_rows(treadle_dtype dtype, float *to, const char *const *rows, int count, int64_t dim) {
  for (int64_t d = 0; d < dim; d += LANES) {
    lanes x[LANES];
    for (int i = 0; i < count; i++) x[i] = element_lanes_part(dtype, rows[i], d, dim - d);
    for (int i = count; i < LANES; i++) x[i] = lanes_all(0.0f);
    lanes_transpose(x);
    for (int i = 0; i < LANES && d + i < dim; i++) lanes_store(to + (d + i) * ATTENTION_KEYS, x[i]);
  }
}

/* One key, whose elements are apart. */
LANES_PART void widen_key(treadle_dtype dtype, const treadle_kv_shape *kv, float *to, const char *from) {
  for (int64_t d = 0; d < kv->key_dim; d++)
    to[d * ATTENTION_KEYS] = element(dtype, from, d * kv->block_tokens);
}

/* Where a position's key is, or begins. */
static const char *key_at(const query_set *q, int64_t position) {
  const treadle_kv_shape *kv = &q->spec->kv;
  int64_t slot = position % kv->block_tokens, bytes = kv->dtype == TREADLE_FP32 ? 4 : 2;
  return treadle_kv_head(kv, &q->rows->blocks, q->kv_head, position) +
         slot * (kv->shared ? kv->key_dim : 1) * bytes;
}

/* Keys `first`, a multiple of 16, to `last` of the block of 64 at `start`, into scratch. */
LANES_PART void widen_keys(treadle_dtype dtype, const query_set *q, int64_t start, int first, int last,
                           float *to) {
  const treadle_kv_shape *kv = &q->spec->kv;
  for (int group = first; group < last; group += LANES) {
    int count = last - group < LANES ? last - group : LANES;
    const char *keys[LANES];
    for (int i = 0; i < count; i++) keys[i] = key_at(q, start + group + i);
    if (kv->shared)
      turn_rows(dtype, to + group, keys, count, kv->key_dim);
    else if (side_by_side(kv))
      for (int64_t d = 0; d < kv->key_dim; d++)
        lanes_store(to + d * ATTENTION_KEYS + group, element_lanes(dtype, keys[0], d * kv->block_tokens));
    else
      for (int i = 0; i < count; i++) widen_key(dtype, kv, to + group + i, keys[i]);
  }
}

LANES_PART void widen_values(treadle_dtype dtype, const query_set *q, int64_t start, int first, int last,
                             float *to) {
  const treadle_kv_shape *kv = &q->spec->kv;
  int64_t bytes = dtype == TREADLE_FP32 ? 4 : 2, padded = attention_padded(q->spec);
  for (int key = first; key < last; key++) {
    int64_t position = start + key, slot = position % kv->block_tokens;
    const char *head = treadle_kv_head(kv, &q->rows->blocks, q->kv_head, position);
    int64_t at = kv->shared ? slot * kv->key_dim : kv->key_dim * kv->block_tokens + slot * kv->value_dim;
    widen_row(dtype, to + key * padded, head + at * bytes, kv->value_dim);
  }
}

LANES_CODE static void widen_block(const query_set *q, int64_t start, int first, int last,
                                   block_view *block) {
  int64_t padded = attention_padded(q->spec);
  float *keys = q->scratch->memory + attention_keys_at(q->spec);
  float *values = q->scratch->memory + attention_values_at(q->spec);
  first = first / LANES * LANES;
  if (q->spec->kv.dtype == TREADLE_FP32) {
    widen_keys(TREADLE_FP32, q, start, first, last, keys);
    widen_values(TREADLE_FP32, q, start, first, last, values);
  } else {
    widen_keys(TREADLE_BF16, q, start, first, last, keys);
    widen_values(TREADLE_BF16, q, start, first, last, values);
  }
  *block = (block_view){.key_step = ATTENTION_KEYS, .value_step = padded, .value_dim = padded};
  for (int group = 0; group < 4; group++) {
    block->keys[group] = (const char *)(keys + group * LANES);
    block->values[group] = (const char *)(values + group * LANES * padded);
  }
}

/* ---- Blocks ---- */

/* The keys of the block at `start` that a row sees: from..to of 0..64. */
static void seen(const query_set *q, int64_t row, int64_t start, int *from_p, int *to_p) {
  int64_t position = q->rows->position + row, to = position + 1 - start, from = 0;
  if (q->spec->window > 0) from = position + 1 - q->spec->window - start;
  *from_p = from < 0 ? 0 : (int)from;
  *to_p = to > ATTENTION_KEYS ? ATTENTION_KEYS : (int)to;
}

static void run_tile(const query_set *q, tile_function *const *kinds, const block_view *block,
                     int64_t start, int64_t first, int queries) {
  attention_scratch *s = q->scratch;
  query_tile t = {.query = s->query + first,
                  .largest = s->largest + first,
                  .sum = s->sum + first,
                  .scores = s->scores,
                  .sums = s->memory + first * attention_padded(q->spec),
                  .key_dim = q->spec->kv.key_dim,
                  .padded = attention_padded(q->spec),
                  .scale = q->spec->scale};
  memcpy(t.ahead, q->ahead, sizeof t.ahead);
  for (int i = 0; i < queries; i++) seen(q, q->row + (first + i) / q->heads, start, &t.from[i], &t.to[i]);
  kinds[queries - 1](&t, block);
}

/* The block at `start` of a head and of a sequence that ends at `end` comes next. */
static void look_ahead(query_set *q, const treadle_kv_blocks *blocks, int64_t head, int64_t start,
                       int64_t end) {
  for (int group = 0; group < 4; group++)
    if (start + group * LANES < end)
      q->ahead[group] = treadle_kv_head(&q->spec->kv, blocks, head, start + group * LANES);
}

/* All queries that see keys of the block at `start`: rows first to last. */
static void run_block(const query_set *q, int64_t start, int64_t first, int64_t last) {
  block_view block;
  int from, to, unused;
  seen(q, first, start, &from, &unused);
  seen(q, last - 1, start, &unused, &to);
  int64_t begin = (first - q->row) * q->heads, end = (last - q->row) * q->heads;
  bool as_is =
      side_by_side(&q->spec->kv) && (q->spec->kv.dtype == TREADLE_FP32 || end - begin < WIDEN_FROM);
  if (as_is)
    view_cache(q, start, to, &block);
  else
    widen_block(q, start, from, to, &block);
  tile_function *const *kinds = tiles[as_is && q->spec->kv.dtype == TREADLE_BF16];
  for (int64_t at = begin; at < end; at += ATTENTION_TILE)
    run_tile(q, kinds, &block, start, at, end - at < ATTENTION_TILE ? (int)(end - at) : ATTENTION_TILE);
}

/* ---- Rows ---- */

static void begin_queries(const query_set *q) {
  attention_scratch *s = q->scratch;
  int64_t queries = q->count * q->heads;
  for (int64_t i = 0; i < queries; i++) {
    s->query[i] = q->rows->queries + (q->row + i / q->heads) * q->rows->query_stride +
                  (q->head + i % q->heads) * q->spec->kv.key_dim;
    s->largest[i] = -INFINITY;
    s->sum[i] = 0.0f;
  }
  memset(s->memory, 0, (size_t)(queries * attention_padded(q->spec)) * sizeof *s->memory);
}

LANES_CODE static void end_queries(const query_set *q) {
  const attention_scratch *s = q->scratch;
  int64_t dim = q->spec->kv.value_dim, padded = attention_padded(q->spec);
  for (int64_t i = 0; i < q->count * q->heads; i++) {
    float *out =
        q->rows->out + (q->row + i / q->heads) * q->rows->out_stride + (q->head + i % q->heads) * dim;
    lanes sum = lanes_all(s->sum[i]);
    for (int64_t d = 0; d < dim; d += LANES) {
      lanes value = lanes_div(lanes_load(s->memory + i * padded + d), sum);
      if (dim - d >= LANES)
        lanes_store(out + d, value);
      else
        lanes_store_part(out + d, value, (int)(dim - d));
    }
  }
}

static void run_set(query_set *q) {
  int64_t window = q->spec->window, position = q->rows->position + q->row, end = position + q->count;
  int64_t start = window > 0 && position >= window ? (position + 1 - window) : 0;
  begin_queries(q);
  for (start -= start % ATTENTION_KEYS; start < end; start += ATTENTION_KEYS) {
    int64_t first = start > position ? start - position : 0, last = q->count; /* rows that see the block */
    if (window > 0 && start + ATTENTION_KEYS + window - 1 < end)
      last = start + ATTENTION_KEYS + window - 1 - position;
    if (start + ATTENTION_KEYS < end)
      look_ahead(q, &q->rows->blocks, q->kv_head, start + ATTENTION_KEYS, end);
    else if (q->kv_head + 1 < q->spec->kv.heads)
      look_ahead(q, &q->rows->blocks, q->kv_head + 1, 0, end);
    else if (q->rows->next_end)
      look_ahead(q, &q->rows->next, 0, 0, q->rows->next_end);
    if (first < last) run_block(q, start, q->row + first, q->row + last);
  }
  end_queries(q);
}

static void run(const treadle_attention_spec *spec, const treadle_attention_rows *rows, int64_t from,
                int64_t to, void *scratch) {
  int64_t group = spec->heads / spec->kv.heads;
  query_set q = {.spec = spec, .rows = rows, .scratch = scratch};
  for (int i = 0; i < 4; i++) q.ahead[i] = scratch;
  while (from < to) {
    q.kv_head = from / rows->count;
    q.row = from % rows->count;
    int64_t left = rows->count - q.row < to - from ? rows->count - q.row : to - from;
    int64_t most = group < ATTENTION_QUERIES ? ATTENTION_QUERIES / group : 1;
    q.count = left < most ? left : most;
    for (int64_t head = 0; head < group; head += q.heads) {
      q.head = q.kv_head * group + head;
      q.heads = group - head < ATTENTION_QUERIES ? group - head : ATTENTION_QUERIES;
      run_set(&q);
    }
    from += q.count;
  }
}

#define ATTENTION_OPS(text, supported)                                                                     \
  { text, supported, run }

#endif

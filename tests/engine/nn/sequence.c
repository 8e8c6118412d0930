/* Memory of a scene: what is read in whole vectors is aligned as a cache would be. */
#include "nn/sequence.h"

#include "nn/values.h"
#include "test.h"

#include <math.h>

static void *aligned(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  assert_non_null(memory);
  return memory;
}

void test_end_cache(test_scene *s) {
  free(s->cache);
  free(s->table);
}

/* An empty cache with blocks of this many tokens, in a random order, with room between them. */
void test_make_cache(test_scene *s, int64_t block_tokens, treadle_random *random) {
  s->spec.kv.block_tokens = block_tokens;
  s->blocks = (s->tokens + block_tokens - 1) / block_tokens;
  s->stride =
      treadle_kv_block_bytes(&s->spec.kv) + (block_tokens % 16 ? 4 * treadle_random_below(random, 9) : 0);
  s->stride = (s->stride + 3) / 4 * 4;
  s->cache = aligned((size_t)(s->blocks * s->stride));
  memset(s->cache, 0xff, (size_t)(s->blocks * s->stride));
  s->table = malloc((size_t)s->blocks * sizeof *s->table);
  for (int32_t i = 0; i < s->blocks; i++) s->table[i] = i;
  for (int64_t i = s->blocks - 1; i > 0; i--) {
    int64_t j = treadle_random_below(random, i + 1);
    int32_t other = s->table[i];
    s->table[i] = s->table[j];
    s->table[j] = other;
  }
}

static void write_tokens(test_scene *s, int64_t from, int64_t to) {
  treadle_kv_blocks blocks = {s->cache, s->stride, s->table};
  treadle_kv_rows rows = {.keys = s->keys + from * s->key_width,
                          .values = s->spec.kv.shared ? NULL : s->values + from * s->value_width,
                          .key_stride = s->key_width,
                          .value_stride = s->value_width,
                          .position = from,
                          .count = to - from};
  treadle_kv_write(&s->spec.kv, &blocks, &rows);
}

/* The rows from..to, in ranges of items of random lengths. */
static void run_rows(test_scene *s, const treadle_attention_ops *ops, int64_t from, int64_t to,
                     treadle_random *random) {
  treadle_attention_rows rows = {.queries = s->queries + from * s->query_width,
                                 .out = s->out + from * s->out_width,
                                 .query_stride = s->query_width,
                                 .out_stride = s->out_width,
                                 .blocks = {s->cache, s->stride, s->table},
                                 .position = from,
                                 .count = to - from};
  void *scratch = aligned((size_t)treadle_attention_scratch_bytes(&s->spec));
  int64_t items = rows.count * s->spec.kv.heads;
  for (int64_t at = 0, next; at < items; at = next) {
    memset(scratch, 0xff, (size_t)treadle_attention_scratch_bytes(&s->spec));
    next = treadle_random_below(random, 2) ? items : treadle_random_between(random, at + 1, items);
    ops->run(&s->spec, &rows, at, next, scratch);
  }
  free(scratch);
}

/* The whole sequence in chunks of at most this many rows, each written before it is asked. */
void test_run_chunks(test_scene *s, const treadle_attention_ops *ops, int64_t most,
                     treadle_random *random) {
  for (int64_t i = 0; i < s->tokens * s->out_width; i++) s->out[i] = NAN;
  for (int64_t from = 0, to; from < s->tokens; from = to) {
    to = from + most < s->tokens ? from + most : s->tokens;
    write_tokens(s, from, to);
    run_rows(s, ops, from, to, random);
  }
}

static treadle_attention_spec draw_spec(treadle_random *random) {
  static const int64_t dims[] = {8, 16, 24, 64, 64, 80, 128, 12};
  treadle_attention_spec spec = {
      .kv = {.heads = treadle_random_between(random, 1, 3),
             .key_dim = dims[treadle_random_below(random, 8)],
             .dtype = treadle_random_below(random, 2) ? TREADLE_BF16 : TREADLE_FP32}};
  spec.kv.value_dim =
      treadle_random_below(random, 3) ? spec.kv.key_dim : dims[treadle_random_below(random, 8)];
  if (treadle_random_below(random, 4) == 0) {
    spec.kv.shared = true;
    spec.kv.heads = 1;
    spec.kv.value_dim = spec.kv.key_dim - treadle_random_below(random, 8);
  }
  static const int64_t groups[] = {1, 2, 3, 4, 5, 7, 8, 16, 130};
  spec.heads =
      spec.kv.heads * groups[treadle_random_below(random, treadle_random_below(random, 8) ? 8 : 9)];
  spec.scale = 1.0f / sqrtf((float)spec.kv.key_dim);
  if (treadle_random_below(random, 4) == 0) spec.window = treadle_random_between(random, 1, 150);
  return spec;
}

void test_make_scene(test_scene *s, treadle_random *random, int64_t most_tokens) {
  *s = (test_scene){.spec = draw_spec(random), .tokens = treadle_random_between(random, 1, most_tokens)};
  const treadle_kv_shape *kv = &s->spec.kv;
  s->query_width = s->spec.heads * kv->key_dim + treadle_random_below(random, 5);
  s->key_width = kv->heads * kv->key_dim + treadle_random_below(random, 5);
  s->value_width = kv->heads * kv->value_dim + treadle_random_below(random, 5);
  s->out_width = s->spec.heads * kv->value_dim + treadle_random_below(random, 5);
  size_t tokens = (size_t)s->tokens;
  s->queries = aligned(tokens * (size_t)s->query_width * sizeof(float));
  s->keys = aligned(tokens * (size_t)s->key_width * sizeof(float));
  s->values = aligned(tokens * (size_t)s->value_width * sizeof(float));
  s->out = aligned(tokens * (size_t)s->out_width * sizeof(float));
  s->wanted = aligned(tokens * (size_t)s->out_width * sizeof(float));
  test_fill(random, s->queries, tokens * (size_t)s->query_width, 2.0f);
  test_fill(random, s->keys, tokens * (size_t)s->key_width, 1.0f);
  test_fill(random, s->values, tokens * (size_t)s->value_width, 1.0f);
  snprintf(s->text, sizeof s->text,
           "%s, %lld tokens, %lld heads on %lld, dims %lld and %lld%s, window %lld",
           treadle_dtype_name(kv->dtype), (long long)s->tokens, (long long)s->spec.heads,
           (long long)kv->heads, (long long)kv->key_dim, (long long)kv->value_dim,
           kv->shared ? " shared" : "", (long long)s->spec.window);
}

void test_end_scene(test_scene *s) {
  free(s->queries);
  free(s->keys);
  free(s->values);
  free(s->out);
  free(s->wanted);
}

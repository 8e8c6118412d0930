/* src/nn/attention.h: close to attention in double; the same bits in every kind, for every division into chunks, ranges of items and
 * blocks of the cache. What no token was written to is NaN. */
#include "nn/attention.h"
#include "nn/exp.h"

#include "nn/values.h"
#include "test.h"

#include <math.h>

/* A sequence with all its queries, keys and values. */
typedef struct scene {
  treadle_attention_spec spec;
  int64_t tokens, blocks, stride, query_width, key_width, value_width, out_width;
  float *queries, *keys, *values, *out, *wanted;
  char *cache;
  int32_t *table;
  char text[200];
} scene;

static void *aligned(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  assert_non_null(memory);
  return memory;
}

static void end_cache(scene *s) {
  free(s->cache);
  free(s->table);
}

/* An empty cache with blocks of so many tokens, in a random order, with room between them. */
static void make_cache(scene *s, int64_t block_tokens, treadle_random *random) {
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

static void write_tokens(scene *s, int64_t from, int64_t to) {
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
static void run_rows(scene *s, const treadle_attention_ops *ops, int64_t from, int64_t to,
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

/* The whole sequence in chunks of at most so many rows, each written before it is asked. */
static void run_chunks(scene *s, const treadle_attention_ops *ops, int64_t most, treadle_random *random) {
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

static void make_scene(scene *s, treadle_random *random, int64_t most_tokens) {
  *s = (scene){.spec = draw_spec(random), .tokens = treadle_random_between(random, 1, most_tokens)};
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

static void end_scene(scene *s) {
  free(s->queries);
  free(s->keys);
  free(s->values);
  free(s->out);
  free(s->wanted);
}

/* What the cache has of a value: rounded to its type. */
static double kept(const scene *s, float value) {
  return s->spec.kv.dtype == TREADLE_FP32 ? (double)value
                                          : (double)treadle_bf16_to_float(treadle_bf16_of_float(value));
}

/* One row and head in double, without blocks. Returns the largest sum of magnitudes that a value is made of. */
static double in_double(const scene *s, int64_t row, int64_t head, double *out) {
  const treadle_kv_shape *kv = &s->spec.kv;
  int64_t kv_head = head / (s->spec.heads / kv->heads), first = 0;
  if (s->spec.window > 0 && row + 1 > s->spec.window) first = row + 1 - s->spec.window;
  double *score = calloc((size_t)row + 1, sizeof *score), most = -INFINITY, sum = 0.0, magnitude = 0.0;
  for (int64_t key = first; key <= row; key++) {
    for (int64_t d = 0; d < kv->key_dim; d++)
      score[key] += (double)s->queries[row * s->query_width + head * kv->key_dim + d] *
                    kept(s, s->keys[key * s->key_width + kv_head * kv->key_dim + d]);
    score[key] *= (double)s->spec.scale;
    most = fmax(most, score[key]);
  }
  for (int64_t d = 0; d < kv->value_dim; d++) out[d] = 0.0;
  for (int64_t key = first; key <= row; key++) {
    double weight = exp(score[key] - most);
    sum += weight;
    for (int64_t d = 0; d < kv->value_dim; d++) {
      float value = kv->shared ? s->keys[key * s->key_width + d]
                               : s->values[key * s->value_width + kv_head * kv->value_dim + d];
      out[d] += weight * kept(s, value);
      magnitude = fmax(magnitude, fabs((double)value));
    }
  }
  for (int64_t d = 0; d < kv->value_dim; d++) out[d] /= sum;
  free(score);
  return magnitude;
}

static void compare_with_double(const scene *s, treadle_random *random) {
  double out[256];
  for (int i = 0; i < 20; i++) {
    int64_t row = i < 2 ? s->tokens - 1 : treadle_random_below(random, s->tokens);
    int64_t head = treadle_random_below(random, s->spec.heads);
    double bound = 2e-5 * in_double(s, row, head, out);
    const float *got = s->out + row * s->out_width + head * s->spec.kv.value_dim;
    for (int64_t d = 0; d < s->spec.kv.value_dim; d++)
      if (!(fabs((double)got[d] - out[d]) <= bound))
        fail_msg("%s: row %lld, head %lld, value %lld: %g, not %g", s->text, (long long)row,
                 (long long)head, (long long)d, (double)got[d], out[d]);
  }
}

/* Only what rows write: behind it the memory between rows is not looked at. */
static void compare_rows(const scene *s, const char *how) {
  char what[400];
  for (int64_t row = 0; row < s->tokens; row++) {
    snprintf(what, sizeof what, "%s, %s, row %lld", s->text, how, (long long)row);
    test_same_bits(what, s->out + row * s->out_width, s->wanted + row * s->out_width,
                   (size_t)(s->spec.heads * s->spec.kv.value_dim));
  }
}

static void one_seed(uint64_t seed, int64_t most_tokens) {
  static const int64_t chunks[] = {1, 7, 64, 1000}, block_tokens[] = {16, 32, 64, 24, 7, 1, 128};
  treadle_random random = {seed};
  scene s;
  int kinds;
  const treadle_attention_ops *const *list = treadle_attention_ops_list(&kinds);
  make_scene(&s, &random, most_tokens);
  assert_ok((s.spec.kv.block_tokens = 16, treadle_attention_check(&s.spec)));
  make_cache(&s, 16, &random);
  run_chunks(&s, treadle_attention_ops_choose(), 1000, &random);
  compare_with_double(&s, &random);
  end_cache(&s);
  memcpy(s.wanted, s.out, (size_t)(s.tokens * s.out_width) * sizeof *s.out);
  for (int round = 0; round < 6; round++) {
    int64_t chunk = chunks[treadle_random_below(&random, 4)], tokens = block_tokens[round];
    const treadle_attention_ops *ops = list[treadle_random_below(&random, kinds)];
    if (!ops->supported() || (!strcmp(ops->name, "plain") && s.tokens * s.spec.heads > 1500)) continue;
    char how[120];
    make_cache(&s, tokens, &random);
    run_chunks(&s, ops, chunk, &random);
    snprintf(how, sizeof how, "seed %llu: %s, chunks of %lld, blocks of %lld", (unsigned long long)seed,
             ops->name, (long long)chunk, (long long)tokens);
    compare_rows(&s, how);
    end_cache(&s);
  }
  end_scene(&s);
}

static void short_sequences(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < test_seeds(120); seed++) one_seed(seed, 130);
}

static void long_sequences(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < test_seeds(15); seed++) one_seed(1000 + seed, 600);
}

/* The order of additions as nn/attention.h states it, spelt out for one query. */
static void order_of_additions(void **state) {
  (void)state;
  enum { DIM = 20, TOKENS = 150 };
  treadle_random random = {77};
  static float query[TOKENS * DIM], keys[TOKENS * DIM], values[TOKENS * DIM], out[TOKENS * DIM];
  test_fill(&random, query, TOKENS * DIM, 1.0f);
  test_fill(&random, keys, TOKENS * DIM, 1.0f);
  test_fill(&random, values, TOKENS * DIM, 1.0f);
  scene s = {.spec = {.kv = {1, DIM, DIM, 16, TREADLE_FP32, false}, .heads = 1, .scale = 0.3f},
             .tokens = TOKENS,
             .query_width = DIM,
             .key_width = DIM,
             .value_width = DIM,
             .out_width = DIM,
             .queries = query,
             .keys = keys,
             .values = values,
             .out = out};
  make_cache(&s, 16, &random);
  run_chunks(&s, treadle_attention_ops_choose(), 40, &random);
  float largest = -INFINITY, sum = 0.0f, acc[DIM] = {0}, score[64];
  const float *q = query + (TOKENS - 1) * DIM;
  for (int start = 0; start < TOKENS; start += 64) {
    int count = TOKENS - start < 64 ? TOKENS - start : 64;
    float before = largest, lane[16] = {0};
    for (int key = 0; key < count; key++) {
      float chain = 0.0f;
      for (int d = 0; d < DIM; d++) chain = fmaf(q[d], keys[(start + key) * DIM + d], chain);
      score[key] = chain * 0.3f;
      if (score[key] > largest) largest = score[key];
    }
    float c = treadle_exp(before - largest);
    for (int key = 0; key < count; key++) lane[key % 16] += score[key] = treadle_exp(score[key] - largest);
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    sum = sum * c + lane[0];
    for (int d = 0; d < DIM; d++) {
      acc[d] *= c;
      for (int key = 0; key < count; key++)
        acc[d] = fmaf(score[key], values[(start + key) * DIM + d], acc[d]);
    }
  }
  for (int d = 0; d < DIM; d++) acc[d] /= sum;
  test_same_bits("attention spelt out", out + (TOKENS - 1) * DIM, acc, DIM);
  end_cache(&s);
  uint64_t digest = test_digest(0, out, TOKENS * DIM);
  if (digest != UINT64_C(0xccb65934579e5c6a)) fail_msg("the digest is %#llx", (unsigned long long)digest);
}

/* NaN and infinity in keys: the calls end, and rows that do not see them are what they were. */
static void odd_values(void **state) {
  (void)state;
  static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
  int kinds;
  const treadle_attention_ops *const *list = treadle_attention_ops_list(&kinds);
  for (uint64_t seed = 0; seed < 20; seed++) {
    treadle_random random = {500 + seed};
    scene s;
    make_scene(&s, &random, 100);
    make_cache(&s, 16, &random);
    run_chunks(&s, list[kinds - 1]->supported() ? list[kinds - 1] : list[0], 1000, &random);
    memcpy(s.wanted, s.out, (size_t)(s.tokens * s.out_width) * sizeof *s.out);
    int64_t token = treadle_random_below(&random, s.tokens);
    s.keys[token * s.key_width] = odd[seed % TEST_COUNT(odd)];
    s.values[token * s.value_width] = odd[seed % TEST_COUNT(odd)];
    run_chunks(&s, list[0], 64, &random);
    int64_t tokens = s.tokens;
    s.tokens = token;
    compare_rows(&s, "before NaN");
    s.tokens = tokens;
    memcpy(s.wanted, s.out, (size_t)(s.tokens * s.out_width) * sizeof *s.out);
    for (int kind = 1; kind < kinds; kind++) {
      if (!list[kind]->supported()) continue;
      run_chunks(&s, list[kind], 7, &random);
      compare_rows(&s, list[kind]->name);
    }
    end_cache(&s);
    end_scene(&s);
  }
}

static void divided(void **state) {
  (void)state;
  treadle_random random = {6};
  for (int round = 0; round < 2000; round++) {
    treadle_attention_spec spec = {.kv = {.heads = treadle_random_between(&random, 1, 9)}};
    if (round % 3 == 0) spec.window = treadle_random_between(&random, 1, 300);
    treadle_attention_rows rows = {.position = treadle_random_below(&random, 2) *
                                               treadle_random_below(&random, 4000),
                                   .count = treadle_random_below(&random, 600)};
    int64_t parts = treadle_random_between(&random, 1, 9), next = 0, from, to, all = 0, most = 0;
    for (int64_t part = 0; part < parts; part++) {
      treadle_attention_divide(&spec, &rows, part, parts, &from, &to);
      assert_true(from == next && to >= from);
      next = to;
      int64_t work = 0;
      for (int64_t i = from; i < to; i++) {
        int64_t seen = rows.position + i % rows.count + 1;
        work += 32 + (spec.window > 0 && seen > spec.window ? spec.window : seen);
      }
      all += work;
      most = work > most ? work : most;
    }
    assert_int_equal(next, rows.count * spec.kv.heads);
    assert_true(most <= all / parts + 2 * (32 + rows.position + rows.count) + parts);
  }
}

static void refused(void **state) {
  (void)state;
  const treadle_attention_spec good = {
      .kv = {.heads = 2, .key_dim = 64, .value_dim = 64, .block_tokens = 16, .dtype = TREADLE_BF16},
      .heads = 8,
      .scale = 0.125f};
  treadle_attention_spec bad = good;
  assert_ok(treadle_attention_check(&good));
  bad.heads = 7;
  assert_refused("7 query heads with 2 key-value heads", treadle_attention_check(&bad));
  bad = good, bad.kv.dtype = TREADLE_FP16;
  assert_refused("a cache of fp16", treadle_attention_check(&bad));
  bad = good, bad.kv.block_tokens = 0;
  assert_refused("blocks of 0 tokens", treadle_attention_check(&bad));
  bad = good, bad.kv.shared = true;
  assert_refused("they do not fit", treadle_attention_check(&bad));
  bad = good, bad.kv.key_dim = 0;
  assert_refused("keys of 0 values", treadle_attention_check(&bad));
  bad = good, bad.kv.heads = 0;
  assert_refused("0 key-value heads", treadle_attention_check(&bad));
  bad = good, bad.scale = NAN;
  assert_refused("scale", treadle_attention_check(&bad));
  bad = good, bad.window = -1;
  assert_refused("window", treadle_attention_check(&bad));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(order_of_additions),
                                     cmocka_unit_test(short_sequences),
                                     cmocka_unit_test(long_sequences),
                                     cmocka_unit_test(odd_values),
                                     cmocka_unit_test(divided),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* src/engine/nn/attention.h: close to attention in double; the same bits in every kind, for every division into chunks, ranges of items and
 * blocks of the cache. What no token was written to is NaN. */
#include "nn/attention.h"
#include "nn/exp.h"

#include "nn/sequence.h"
#include "nn/values.h"
#include "test.h"

#include <math.h>

/* What the cache has of a value: rounded to its type. */
static double kept(const test_scene *s, float value) {
  return s->spec.kv.dtype == TREADLE_FP32 ? (double)value
                                          : (double)treadle_bf16_to_float(treadle_bf16_of_float(value));
}

/* One row and head in double, without blocks. Returns the largest sum of magnitudes that a value is made of. */
static double in_double(const test_scene *s, int64_t row, int64_t head, double *out) {
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

static void compare_with_double(const test_scene *s, treadle_random *random) {
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
static void compare_rows(const test_scene *s, const char *how) {
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
  test_scene s;
  int kinds;
  const treadle_attention_ops *const *list = treadle_attention_ops_list(&kinds);
  test_make_scene(&s, &random, most_tokens);
  assert_ok((s.spec.kv.block_tokens = 16, treadle_attention_check(&s.spec)));
  test_make_cache(&s, 16, &random);
  test_run_chunks(&s, treadle_attention_ops_choose(), 1000, &random);
  compare_with_double(&s, &random);
  test_end_cache(&s);
  memcpy(s.wanted, s.out, (size_t)(s.tokens * s.out_width) * sizeof *s.out);
  for (int round = 0; round < 6; round++) {
    int64_t chunk = chunks[treadle_random_below(&random, 4)], tokens = block_tokens[round];
    const treadle_attention_ops *ops = list[treadle_random_below(&random, kinds)];
    if (!ops->supported() || (!strcmp(ops->name, "plain") && s.tokens * s.spec.heads > 1500)) continue;
    char how[120];
    test_make_cache(&s, tokens, &random);
    test_run_chunks(&s, ops, chunk, &random);
    snprintf(how, sizeof how, "seed %llu: %s, chunks of %lld, blocks of %lld", (unsigned long long)seed,
             ops->name, (long long)chunk, (long long)tokens);
    compare_rows(&s, how);
    test_end_cache(&s);
  }
  test_end_scene(&s);
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
  test_scene s = {.spec = {.kv = {1, DIM, DIM, 16, TREADLE_FP32, false}, .heads = 1, .scale = 0.3f},
                  .tokens = TOKENS,
                  .query_width = DIM,
                  .key_width = DIM,
                  .value_width = DIM,
                  .out_width = DIM,
                  .queries = query,
                  .keys = keys,
                  .values = values,
                  .out = out};
  test_make_cache(&s, 16, &random);
  test_run_chunks(&s, treadle_attention_ops_choose(), 40, &random);
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
  test_end_cache(&s);
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
    test_scene s;
    test_make_scene(&s, &random, 100);
    test_make_cache(&s, 16, &random);
    test_run_chunks(&s, list[kinds - 1]->supported() ? list[kinds - 1] : list[0], 1000, &random);
    memcpy(s.wanted, s.out, (size_t)(s.tokens * s.out_width) * sizeof *s.out);
    int64_t token = treadle_random_below(&random, s.tokens);
    s.keys[token * s.key_width] = odd[seed % TEST_COUNT(odd)];
    s.values[token * s.value_width] = odd[seed % TEST_COUNT(odd)];
    test_run_chunks(&s, list[0], 64, &random);
    int64_t tokens = s.tokens;
    s.tokens = token;
    compare_rows(&s, "before NaN");
    s.tokens = tokens;
    memcpy(s.wanted, s.out, (size_t)(s.tokens * s.out_width) * sizeof *s.out);
    for (int kind = 1; kind < kinds; kind++) {
      if (!list[kind]->supported()) continue;
      test_run_chunks(&s, list[kind], 7, &random);
      compare_rows(&s, list[kind]->name);
    }
    test_end_cache(&s);
    test_end_scene(&s);
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
    int64_t parts = treadle_random_between(&random, 1, 9), next = 0, all = 0, most = 0;
    int64_t cost = treadle_attention_cost(&spec, &rows);
    for (int64_t part = 0; part < parts; part++) {
      int64_t from = treadle_attention_item_at(&spec, &rows, cost * part / parts);
      int64_t to = treadle_attention_item_at(&spec, &rows, cost * (part + 1) / parts);
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

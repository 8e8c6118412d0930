/* The sampler against plain code: everything in libm's double, one whole sort, no shortcuts. And what must not matter: what was sampled
 * before, and with which memory. */
#include "generate/sampler.h"

#include "base/random.h"
#include "generate/uniform.h"
#include "test.h"

#include <math.h>

/* ---- Random rows ---- */

typedef enum row_kind { NORMAL, INTEGERS, FLAT, PEAKED, HOLES, HUGE_ONES, KINDS } row_kind;

typedef struct drawn {
  uint64_t seed;
  int32_t vocabulary;
  float *logits;
  treadle_sampling_values sampling;
  treadle_token_counts counts;
  bool *in_prompt;
  int32_t *made;
} drawn;

static double between(treadle_random *random, double low, double high) {
  return low + (high - low) * (double)(treadle_random_next(random) >> 11) * 0x1p-53;
}

static float logit(treadle_random *random, row_kind kind) {
  double bell = between(random, -1, 1) + between(random, -1, 1) + between(random, -1, 1);
  switch (kind) {
  case INTEGERS: return (float)treadle_random_between(random, -8, 8) / 2;
  case FLAT: return 0.25f;
  case PEAKED: return (float)(bell + (treadle_random_below(random, 50) == 0 ? 12 : 0));
  case HOLES: return treadle_random_below(random, 3) ? (float)(3 * bell) : -INFINITY;
  case HUGE_ONES: return (float)(3000 * bell);
  default: return (float)(3 * bell);
  }
}

static void draw_values(treadle_random *random, int32_t vocabulary, treadle_sampling_values *s) {
  static const double temperatures[] = {0, 1, 1, 0.7, 0.3, 1.5, 50}, tops[] = {1, 1, 0.9, 0.5, 0.1, 0.999},
                      mins[] = {0, 0, 0.05, 0.3, 1}, penalties[] = {1, 1, 1.3, 0.8},
                      additive[] = {0, 0, 0.5, -0.7};
  treadle_sampling_default(s);
  s->temperature = temperatures[treadle_random_below(random, TEST_COUNT(temperatures))];
  s->top_p = tops[treadle_random_below(random, TEST_COUNT(tops))];
  s->min_p = mins[treadle_random_below(random, TEST_COUNT(mins))];
  s->top_k = treadle_random_below(random, 2) ? treadle_random_between(random, -1, vocabulary + 1) : 0;
  if (treadle_random_below(random, 3) == 0) s->top_k = treadle_random_between(random, 1, 20);
  s->repetition_penalty = penalties[treadle_random_below(random, TEST_COUNT(penalties))];
  s->presence_penalty = additive[treadle_random_below(random, TEST_COUNT(additive))];
  s->frequency_penalty = additive[treadle_random_below(random, TEST_COUNT(additive))];
}

static drawn draw(uint64_t seed) {
  treadle_random random = {.state = seed};
  drawn d = {.seed = seed, .vocabulary = (int32_t)treadle_random_between(&random, 1, 40)};
  if (seed % 3 == 0) d.vocabulary = (int32_t)treadle_random_between(&random, 1, 6000);
  row_kind kind = (row_kind)treadle_random_below(&random, KINDS);
  size_t room = (size_t)d.vocabulary;
  d.logits = test_calloc(room, sizeof *d.logits);
  d.in_prompt = test_calloc(room, sizeof *d.in_prompt);
  d.made = test_calloc(room, sizeof *d.made);
  for (int32_t i = 0; i < d.vocabulary; i++) d.logits[i] = logit(&random, kind);
  d.logits[treadle_random_below(&random, d.vocabulary)] = 1; /* one at least can be chosen */
  draw_values(&random, d.vocabulary, &d.sampling);
  for (int64_t left = treadle_random_below(&random, 60); left > 0; left--) {
    int32_t token = (int32_t)treadle_random_below(&random, d.vocabulary);
    bool made = treadle_random_below(&random, 2);
    assert_ok(treadle_token_counts_add(&d.counts, token, made));
    d.made[token] += made;
    d.in_prompt[token] |= !made;
  }
  return d;
}

static void release(drawn *d) {
  test_free(d->logits);
  test_free(d->in_prompt);
  test_free(d->made);
  treadle_token_counts_release(&d->counts);
}

static treadle_sampler_row row_of(const drawn *d) {
  return (treadle_sampler_row){.logits = d->logits, .sampling = &d->sampling, .counts = &d->counts};
}

/* ---- The plain form ---- */

typedef struct plain {
  int32_t id;
  double z, p; /* z: -inf when it is cut */
} plain;

static int by_logit(const void *left, const void *right) {
  const plain *a = left, *b = right;
  if (a->z != b->z) return a->z < b->z ? -1 : 1;
  return b->id - a->id;
}

static int by_id(const void *left, const void *right) {
  return ((const plain *)left)->id - ((const plain *)right)->id;
}

static void softmax(plain *row, int32_t count) {
  double largest = -INFINITY, sum = 0;
  for (int32_t i = 0; i < count; i++) largest = fmax(largest, row[i].z);
  for (int32_t i = 0; i < count; i++) sum += exp(row[i].z - largest);
  for (int32_t i = 0; i < count; i++) row[i].p = exp(row[i].z - largest) / sum;
}

/* *near_p: a border that another order of additions could move. */
static void plain_cuts(plain *row, int32_t count, const treadle_sampling_values *s, bool *near_p) {
  double largest = 0, sum = 0;
  softmax(row, count);
  for (int32_t i = 0; i < count; i++) largest = fmax(largest, row[i].p);
  for (int32_t i = 0; i < count && s->min_p > 0; i++) {
    if (row[i].p != largest && fabs(row[i].p / largest - s->min_p) < 1e-9) *near_p = true;
    if (row[i].p < s->min_p * largest) row[i].z = -INFINITY;
  }
  qsort(row, (size_t)count, sizeof *row, by_logit);
  if (s->top_k > 0 && s->top_k < count) {
    double border = row[count - s->top_k].z;
    for (int32_t i = 0; i < count; i++)
      if (row[i].z < border) row[i].z = -INFINITY;
  }
  softmax(row, count);
  for (int32_t i = 0; i < count - 1 && s->top_p < 1; i++) {
    sum += row[i].p;
    if (row[i].p > 0 && fabs(sum - (1 - s->top_p)) < 1e-9) *near_p = true;
    if (sum <= 1 - s->top_p) row[i].z = -INFINITY;
  }
  softmax(row, count);
}

static plain *plain_row(const drawn *d, bool *near_p) {
  const treadle_sampling_values *s = &d->sampling;
  plain *row = test_calloc((size_t)d->vocabulary, sizeof *row);
  int32_t best = 0;
  for (int32_t i = 0; i < d->vocabulary; i++) {
    double z = d->logits[i];
    if (d->in_prompt[i] || d->made[i]) z = z > 0 ? z / s->repetition_penalty : z * s->repetition_penalty;
    z -= s->frequency_penalty * d->made[i] + (d->made[i] ? s->presence_penalty : 0);
    row[i] = (plain){.id = i, .z = z};
    if (z > row[best].z) best = i;
  }
  bool greedy = s->temperature < 1e-5;
  for (int32_t i = 0; i < d->vocabulary; i++) {
    if (greedy) row[i].p = i == best;
    if (!greedy) row[i].z /= s->temperature;
  }
  if (!greedy) plain_cuts(row, d->vocabulary, s, near_p);
  qsort(row, (size_t)d->vocabulary, sizeof *row, by_id);
  return row;
}

static bool same_row(const drawn *d, const plain *row, const treadle_candidates *got) {
  int64_t at = 0;
  for (int32_t i = 0; i < d->vocabulary; i++) {
    double p = 0;
    if (at < got->count && got->ids[at] == i) p = got->weights[at++] / got->total;
    if (fabs(p - row[i].p) > 1e-9 || (p > 0) != (row[i].p > 0)) {
      const treadle_sampling_values *s = &d->sampling;
      fprintf(stderr,
              "seed %llu: token %d of %d has %.17g, plain %.17g; temperature %g k %lld p %g min %g\n",
              (unsigned long long)d->seed, i, d->vocabulary, p, row[i].p, s->temperature,
              (long long)s->top_k, s->top_p, s->min_p);
      return false;
    }
  }
  return at == got->count;
}

static void test_plain(void **state) {
  (void)state;
  uint64_t compared = 0, seeds = test_seeds(3000);
  for (uint64_t seed = 0; seed < seeds; seed++) {
    drawn d = draw(seed);
    bool near_border = false;
    plain *row = plain_row(&d, &near_border);
    treadle_sampler *sampler;
    treadle_candidates got;
    assert_ok(treadle_sampler_create(d.vocabulary, &sampler));
    treadle_sampler_row asked = row_of(&d);
    assert_ok(treadle_sampler_keep(sampler, &asked, &got));
    if (!near_border) assert_true(same_row(&d, row, &got));
    compared += !near_border;
    treadle_sampler_destroy(sampler);
    test_free(row);
    release(&d);
  }
  assert_true(compared * 10 >= seeds * 8);
}

/* Equal logits, and a border of top-p that a sum meets, or just misses, in double: what numpy's running sum says. */
static void test_borders(void **state) {
  (void)state;
  static const struct {
    int64_t count;
    double top_p;
    int64_t kept;
  } cases[] = {{4, 0.5, 2}, {10, 0.7, 7}, {50, 0.9, 46}, {8, 0.25, 2}, {2, 0.5, 1}, {5, 0.2, 1}};
  const float logits[50] = {0};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_sampler *sampler;
    treadle_candidates got;
    treadle_sampling_values sampling;
    treadle_sampling_default(&sampling);
    sampling.top_p = cases[i].top_p;
    const treadle_sampler_row row = {.logits = logits, .sampling = &sampling};
    assert_ok(treadle_sampler_create(cases[i].count, &sampler));
    assert_ok(treadle_sampler_keep(sampler, &row, &got));
    assert_int_equal(got.count, cases[i].kept);
    for (int64_t k = 0; k < got.count; k++) assert_int_equal(got.ids[k], k); /* the lower ids */
    treadle_sampler_destroy(sampler);
  }
}

/* ---- What must not matter ---- */

enum { ROWS = 60, TOKENS = 500 };

static void test_order(void **state) {
  (void)state;
  treadle_sampler *mine, *others;
  static float logits[ROWS][TOKENS];
  int32_t first[ROWS];
  treadle_sampling_values sampling[ROWS];
  treadle_random random = {.state = 5};
  assert_ok(treadle_sampler_create(TOKENS, &mine));
  assert_ok(treadle_sampler_create(TOKENS, &others));
  for (int r = 0; r < ROWS; r++) {
    for (int i = 0; i < TOKENS; i++) logits[r][i] = logit(&random, NORMAL);
    draw_values(&random, TOKENS, &sampling[r]);
    treadle_sampler_row row = {.logits = logits[r], .sampling = &sampling[r]};
    assert_ok(treadle_sampler_choose(mine, &row, treadle_uniform(7, 0, r), &first[r]));
  }
  for (int i = 0; i < 20 * ROWS; i++) {
    int32_t again;
    int64_t r = treadle_random_below(&random, ROWS);
    treadle_sampler_row row = {.logits = logits[r], .sampling = &sampling[r]};
    assert_ok(treadle_sampler_choose(i % 2 ? mine : others, &row, treadle_uniform(7, 0, r), &again));
    assert_int_equal(again, first[r]);
  }
  treadle_sampler_destroy(mine);
  treadle_sampler_destroy(others);
}

/* Candidates, weights and tokens of 400 rows, in one number: the same from each compiler, with each set of instructions. */
static void test_bits(void **state) {
  (void)state;
  enum { MANY = 6400 };
  static const double temperatures[] = {1, 0.7, 1.3, 100};
  static float logits[MANY];
  treadle_random random = {.state = 1};
  treadle_sampler *sampler;
  treadle_candidates c;
  treadle_sampling_values s;
  uint64_t hash = 0;
  assert_ok(treadle_sampler_create(MANY, &sampler));
  treadle_sampling_default(&s);
  for (int i = 0; i < 400; i++) {
    for (int k = 0; k < MANY; k++) {
      double bell = between(&random, -1, 1);
      bell += between(&random, -1, 1);
      logits[k] = (float)(3 * (bell + between(&random, -1, 1)));
    }
    s.temperature = temperatures[i % 4];
    s.top_k = i % 3 ? 0 : 50;
    s.top_p = i % 5 ? 0.9 : 1;
    s.min_p = i % 7 ? 0 : 0.02;
    assert_ok(treadle_sampler_keep(sampler, &(treadle_sampler_row){.logits = logits, .sampling = &s}, &c));
    hash = treadle_hash_more(hash, treadle_hash_bytes(c.ids, (size_t)c.count * sizeof *c.ids, 0));
    hash = treadle_hash_more(hash, treadle_hash_bytes(c.weights, (size_t)c.count * sizeof *c.weights, 0));
    hash = treadle_hash_more(hash, (uint64_t)treadle_sampler_pick(&c, treadle_uniform(0, 0, i)));
  }
  if (hash != UINT64_C(0xd6efb17b54ae4dbf)) fail_msg("the hash is %016llx", (unsigned long long)hash);
  treadle_sampler_destroy(sampler);
}

/* A few banned tokens, the rest as often as probabilities say: chi-square with 7 degrees of freedom, 1 in 10,000 above 29.9. */
static void test_frequencies(void **state) {
  (void)state;
  enum { FEW = 10, DRAWS = 100000 };
  const float logits[FEW] = {0, 1, -1, 2, 0.5f, 0, -0.5f, 1.5f, 9, -9};
  const int32_t banned[] = {8, 9, -5, 100};
  treadle_sampling_values sampling;
  treadle_sampler *sampler;
  treadle_candidates candidates;
  int64_t seen[FEW] = {0};
  double chi = 0, total = 0;
  treadle_sampling_default(&sampling);
  assert_ok(treadle_sampler_create(FEW, &sampler));
  const treadle_sampler_row row = {
      .logits = logits, .sampling = &sampling, .banned = banned, .banned_count = TEST_COUNT(banned)};
  assert_ok(treadle_sampler_keep(sampler, &row, &candidates));
  for (int64_t i = 0; i < DRAWS; i++)
    seen[treadle_sampler_pick(&candidates, treadle_uniform(3, i % 4, i))]++;
  for (int i = 0; i < 8; i++) total += exp(logits[i]);
  for (int i = 0; i < 8; i++) {
    double wanted = DRAWS * exp(logits[i]) / total;
    chi += ((double)seen[i] - wanted) * ((double)seen[i] - wanted) / wanted;
  }
  assert_true(seen[8] == 0 && seen[9] == 0);
  assert_true(chi < 29.9);
  treadle_sampler_destroy(sampler);
}

/* The ends of [0, 1), and weights that are 0, whose tokens are never picked. */
static void test_pick(void **state) {
  (void)state;
  enum { MANY = 200 };
  int32_t ids[MANY];
  double weights[MANY] = {0};
  for (int i = 0; i < MANY; i++) ids[i] = 1000 + i;
  weights[70] = weights[100] = 1;
  const treadle_candidates c = {.ids = ids, .weights = weights, .count = MANY, .total = 2};
  assert_int_equal(treadle_sampler_pick(&c, 0), 1070);
  assert_int_equal(treadle_sampler_pick(&c, 0.5 - 0x1p-53), 1070);
  assert_int_equal(treadle_sampler_pick(&c, 0.5), 1100);
  assert_int_equal(treadle_sampler_pick(&c, 1 - 0x1p-53), 1100);
  assert_int_equal(treadle_sampler_pick(&c, 1), 1100); /* what rounding can make of the largest */
}

/* ---- Refusals, memory ---- */

static void test_refused(void **state) {
  (void)state;
  treadle_sampling_values sampling;
  treadle_sampler *sampler;
  int32_t token;
  const int32_t both[] = {0, 1};
  float logits[20] = {0};
  treadle_sampling_default(&sampling);
  assert_ok(treadle_sampler_create(20, &sampler));
  treadle_sampler_row row = {.logits = logits, .sampling = &sampling};
  for (int greedy = 0; greedy < 2; greedy++) {
    sampling.temperature = greedy ? 0 : 1;
    for (int at = 0; at < 20; at++) { /* in lanes and behind them */
      logits[at] = NAN;
      assert_refused("token", treadle_sampler_choose(sampler, &row, 0, &token));
      logits[at] = INFINITY;
      assert_refused("infinite", treadle_sampler_choose(sampler, &row, 0, &token));
      logits[at] = 0;
    }
    for (int i = 0; i < 20; i++) logits[i] = i < 2 ? 0 : -INFINITY;
    row.banned = both;
    row.banned_count = 2;
    assert_refused("banned", treadle_sampler_choose(sampler, &row, 0, &token));
    row.banned_count = 1;
    assert_ok(treadle_sampler_choose(sampler, &row, 0.999, &token));
    assert_int_equal(token, 1);
    row.banned_count = 0;
    for (int i = 0; i < 20; i++) logits[i] = -INFINITY;
    assert_refused("-inf", treadle_sampler_choose(sampler, &row, 0, &token));
    for (int i = 0; i < 20; i++) logits[i] = 0;
  }
  treadle_sampler_destroy(sampler);
  treadle_sampler_destroy(NULL);
}

static treadle_status make_and_end(void) {
  treadle_sampler *sampler;
  treadle_status status = treadle_sampler_create(100, &sampler);
  if (status == TREADLE_OK) treadle_sampler_destroy(sampler);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(make_and_end());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain),       cmocka_unit_test(test_borders),
                                     cmocka_unit_test(test_order),       cmocka_unit_test(test_bits),
                                     cmocka_unit_test(test_frequencies), cmocka_unit_test(test_pick),
                                     cmocka_unit_test(test_refused),     cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* src/engine/nn/rows.h: every set of functions gives the bits of plain C, at every length and alignment; and plain C is close to double. */
#include "nn/rows.h"

#include "nn/values.h"
#include "pass/logprob.h"
#include "test.h"

#include <math.h>

enum { MOST = 700, OFF = 5, ROOM = MOST + 2 * OFF };

static float x[ROOM], y[ROOM], weight[ROOM], made[ROOM], wanted[ROOM];
static uint16_t half[ROOM], made_half[ROOM], wanted_half[ROOM];

/* What one call of every function gives, into `to`, from values that lie `off` off. */
typedef void case_function(const treadle_row_ops *ops, float *to, size_t off, int64_t count);

static void norm_fp32(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  ops->norm(to, x + off, weight + off, TREADLE_FP32, count, 1e-5f);
}
static void norm_bf16(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  ops->norm(to, x + off, half + off, TREADLE_BF16, count, 1e-6f);
}
static void norm_in_place(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  memcpy(to, x + off, (size_t)count * sizeof *to);
  ops->norm(to, to, weight + off, TREADLE_FP32, count, 1e-5f);
}
static void add_fp32(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  memcpy(to, y, (size_t)count * sizeof *to);
  ops->add(to, x + off, TREADLE_FP32, count);
}
static void add_bf16(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  memcpy(to, y, (size_t)count * sizeof *to);
  ops->add(to, half + off, TREADLE_BF16, count);
}
static void add_scaled(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  memcpy(to, y, (size_t)count * sizeof *to);
  ops->add_scaled(to, x + off, 0.3f, count);
}
static void silu(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  ops->silu(to, x + off, y + off, count);
}
static void silu_in_place(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  memcpy(to, x + off, (size_t)count * sizeof *to);
  ops->silu(to, to, y + off, count);
}
static void widen_bf16(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  ops->widen(to, half + off, TREADLE_BF16, count);
}
static void widen_fp32(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  ops->widen(to, x + off, TREADLE_FP32, count);
}
static void narrow_bf16(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  uint16_t codes[ROOM];
  ops->narrow(codes, TREADLE_BF16, x + off, count);
  for (int64_t i = 0; i < count; i++) to[i] = treadle_bf16_to_float(codes[i]);
}
static void narrow_fp32(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  ops->narrow(to, TREADLE_FP32, x + off, count);
}
static void softmax(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  ops->softmax(to, x + off, count);
}
static void sum_exp(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  double sums[2];
  memset(to, 0, (size_t)count * sizeof *to);
  if (count < 6) return;
  ops->sum_exp(x + off, count, 1.0f, &to[0], &sums[0]);
  ops->sum_exp(x + off, count, 0.7f, &to[1], &sums[1]);
  memcpy(to + 2, sums, sizeof sums);
}
static void rotate_halves(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  memcpy(to, x, (size_t)count * sizeof *to);
  ops->rotate_halves(to, y + off, weight + off, count / 2);
}
static void rotate_neighbours(const treadle_row_ops *ops, float *to, size_t off, int64_t count) {
  memcpy(to, x, (size_t)count * sizeof *to);
  ops->rotate_neighbours(to, y + off, weight + off, count / 2);
}

#define CASE(function)                                                                                     \
  { #function, function }
static const struct {
  const char *name;
  case_function *run;
} cases[] = {CASE(norm_fp32),  CASE(norm_bf16),  CASE(norm_in_place), CASE(add_fp32),
             CASE(add_bf16),   CASE(add_scaled), CASE(silu),          CASE(silu_in_place),
             CASE(widen_bf16), CASE(widen_fp32), CASE(narrow_bf16),   CASE(narrow_fp32),
             CASE(softmax),    CASE(sum_exp),    CASE(rotate_halves), CASE(rotate_neighbours)};

static void draw(uint64_t seed, float spread) {
  treadle_random random = {seed};
  test_fill(&random, x, ROOM, spread);
  test_fill(&random, y, ROOM, 1.0f);
  test_fill(&random, weight, ROOM, 1.0f);
  for (int i = 0; i < ROOM; i++) half[i] = treadle_bf16_of_float(test_normal(&random, 1.0f));
}

/* All functions of all sets against plain C, and that nothing is written behind the end. */
static void compare_all(size_t off, int64_t count) {
  int kinds;
  const treadle_row_ops *const *list = treadle_row_ops_list(&kinds);
  for (int kind = 1; kind < kinds; kind++) {
    if (!list[kind]->supported()) continue;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
      char what[100];
      snprintf(what, sizeof what, "%s of %s, %lld values, %zu off", cases[i].name, list[kind]->name,
               (long long)count, off);
      for (int j = 0; j < ROOM; j++) made[j] = wanted[j] = 77.0f;
      cases[i].run(list[0], wanted + off, off, count);
      cases[i].run(list[kind], made + off, off, count);
      test_same_bits(what, made, wanted, ROOM);
    }
  }
}

static void all_lengths(void **state) {
  (void)state;
  draw(1, 3.0f);
  for (int64_t count = 1; count <= 200; count++) compare_all((size_t)count % OFF, count);
  for (size_t off = 0; off <= OFF; off++) compare_all(off, MOST - 13 * (int64_t)off);
}

static void odd_values(void **state) {
  (void)state;
  static const float odd[] = {0.0f,  -0.0f,  INFINITY, -INFINITY, NAN,    1e-42f, -1e-42f,
                              3e38f, -3e38f, 88.72f,   -88.0f,    -87.3f, -87.34f};
  treadle_random random = {8};
  for (uint64_t seed = 0; seed < test_seeds(100); seed++) {
    draw(seed + 10, 30.0f);
    for (int i = 0; i < 4; i++) {
      size_t at = (size_t)treadle_random_below(&random, ROOM),
             which = (size_t)treadle_random_below(&random, TEST_COUNT(odd));
      (i % 2 ? y : x)[at] = odd[which];
      half[at] = treadle_bf16_of_float(odd[which]);
    }
    compare_all((size_t)seed % OFF, treadle_random_between(&random, 1, MOST));
  }
}

static void close_to_double(void **state) {
  (void)state;
  const treadle_row_ops *ops = treadle_row_ops_choose();
  for (int64_t count = 1; count < MOST; count += 37) {
    draw((uint64_t)count, 2.0f);
    double squares = 0.0, largest = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < count; i++) squares += (double)x[i] * (double)x[i];
    double scale = 1.0 / sqrt(squares / (double)count + 1e-5);
    ops->norm(made, x, weight, TREADLE_FP32, count, 1e-5f);
    for (int64_t i = 0; i < count; i++)
      assert_true(test_ulp(made[i], (double)x[i] * scale * (double)weight[i]) < 8.0);
    ops->silu(made, x, y, count);
    for (int64_t i = 0; i < count; i++)
      assert_true(test_ulp(made[i], (double)x[i] / (1.0 + exp(-(double)x[i])) * (double)y[i]) < 4.0);
    ops->softmax(made, x, count);
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, (double)x[i]);
    for (int64_t i = 0; i < count; i++) sum += exp((double)x[i] - largest);
    for (int64_t i = 0; i < count; i++)
      assert_true(test_ulp(made[i], exp((double)x[i] - largest) / sum) < 16.0);
  }
}

static void log_probabilities(void **state) {
  (void)state;
  const treadle_row_ops *ops = treadle_row_ops_choose();
  static float logits[20000];
  treadle_random random = {12};
  for (int round = 0; round < 12; round++) {
    int64_t count = treadle_random_between(&random, 1, 20000), token = treadle_random_below(&random, count);
    static const float temperatures[] = {1.0f, 0.7f, 2.5f, 0.01f};
    float temperature = temperatures[round % 4], most;
    double sum, all = 0.0;
    test_fill(&random, logits, (size_t)count, 4.0f);
    ops->sum_exp(logits, count, temperature, &most, &sum);
    for (int64_t i = 0; i < count; i++)
      all += exp(((double)logits[i] - (double)logits[token]) / (double)temperature);
    float got = treadle_logprob(logits[token], temperature, (double)most + treadle_log(sum));
    if (fabs((double)got + log(all)) > 1e-6 * (1.0 + fabs(log(all))) + 1e-7 * 20.0 / (double)temperature)
      fail_msg("%lld logits over %g: %.9g, not %.9g", (long long)count, (double)temperature, (double)got,
               -log(all));
  }
}

/* The order of blocks, spelt out: 64 columns, lanes i, i + 16, ..; lanes in a tree; block after block. */
static void order_of_blocks(void **state) {
  (void)state;
  draw(5, 2.0f);
  int64_t count = 333;
  for (int64_t i = 0; i < count; i++) x[i] -= 20.0f; /* the zeros behind the end would be the largest */
  double sum = 0.0, got;
  float most = -INFINITY, got_most;
  for (int64_t i = 0; i < count; i++) most = x[i] > most ? x[i] : most;
  for (int64_t block = 0; block < count; block += 64) {
    float lane[16] = {0};
    for (int64_t i = block; i < count && i < block + 64; i++) lane[i % 16] += treadle_exp(x[i] - most);
    for (int half_count = 8; half_count > 0; half_count /= 2)
      for (int i = 0; i < half_count; i++) lane[i] += lane[i + half_count];
    sum += (double)lane[0];
  }
  treadle_row_ops_choose()->sum_exp(x, count, 1.0f, &got_most, &got);
  assert_true(got_most == most && got == sum);
}

static void recorded_bits(void **state) {
  (void)state;
  uint64_t digest = 0;
  draw(99, 3.0f);
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    cases[i].run(treadle_row_ops_choose(), made, 1, 301);
    digest = test_digest(digest, made, 300);
  }
  if (digest != UINT64_C(0x99927b254042fcd5)) fail_msg("the digest is %#llx", (unsigned long long)digest);
}

static void narrow_rounds(void **state) {
  (void)state;
  int kinds;
  const treadle_row_ops *const *list = treadle_row_ops_list(&kinds);
  treadle_random random = {9};
  for (int kind = 0; kind < kinds; kind++) {
    if (!list[kind]->supported()) continue;
    for (int round = 0; round < 500; round++) {
      for (int i = 0; i < ROOM; i++) {
        uint32_t bits = (uint32_t)treadle_random_next(&random);
        if (i % 3 == 0) bits = (bits & 0xffff0000u) | 0x8000u;
        memcpy(&x[i], &bits, sizeof bits);
      }
      memset(made_half, 0x11, sizeof made_half);
      memset(wanted_half, 0x11, sizeof wanted_half);
      treadle_dtype_convert(wanted_half, TREADLE_BF16, x + 1, TREADLE_FP32, (size_t)(ROOM - 2 - round));
      list[kind]->narrow(made_half, TREADLE_BF16, x + 1, ROOM - 2 - round);
      assert_memory_equal(made_half, wanted_half, sizeof made_half);
    }
  }
}

/* Rows become columns, each value rounded alone, and nothing beside them is written. */
static void rows_are_turned(void **state) {
  (void)state;
  enum { ROWS = 16, COUNT = 70, STRIDE = 75, STEP = 19, BYTES = COUNT * STEP * 4 };
  static float from[ROWS * STRIDE];
  static char to[BYTES], expected[BYTES];
  int kinds;
  const treadle_row_ops *const *list = treadle_row_ops_list(&kinds);
  treadle_random random = {10};
  for (int round = 0; round < 500; round++) {
    treadle_dtype dtype = round % 2 ? TREADLE_BF16 : TREADLE_FP32;
    int64_t bytes = (int64_t)treadle_dtype_bytes(dtype), rows = treadle_random_between(&random, 1, ROWS);
    int64_t count = treadle_random_between(&random, 1, COUNT);
    for (int i = 0; i < ROWS * STRIDE; i++) {
      uint32_t bits = (uint32_t)treadle_random_next(&random);
      memcpy(&from[i], &bits, sizeof bits);
    }
    memset(expected, 0x11, sizeof expected);
    for (int64_t row = 0; row < rows; row++)
      for (int64_t d = 0; d < count; d++)
        treadle_dtype_convert(expected + (d * STEP + row) * bytes, dtype, &from[row * STRIDE + d],
                              TREADLE_FP32, 1);
    for (int kind = 0; kind < kinds; kind++) {
      if (!list[kind]->supported()) continue;
      memset(to, 0x11, sizeof to);
      list[kind]->turn(to, dtype, STEP, from, STRIDE, rows, count);
      if (memcmp(to, expected, sizeof to) != 0)
        fail_msg("%s, %s: %d rows of %d differ", list[kind]->name, treadle_dtype_name(dtype), (int)rows,
                 (int)count);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_lengths),     cmocka_unit_test(odd_values),
                                     cmocka_unit_test(close_to_double), cmocka_unit_test(log_probabilities),
                                     cmocka_unit_test(order_of_blocks), cmocka_unit_test(narrow_rounds),
                                     cmocka_unit_test(recorded_bits),   cmocka_unit_test(rows_are_turned)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

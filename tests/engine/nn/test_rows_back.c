/* Backward of row operations, of rotation and of attention: central differences of the same formulas in double, and the same bits from
 * all sets of functions. */
#include "test.h"

#include "nn/attention_back.h"
#include "nn/rope.h"
#include "nn/rows.h"
#include "nn/rows_back.h"

#include "base/random.h"

#include <jansson.h>
#include <math.h>

enum { MOST = 300, ROWS_MOST = 200, DIM_MOST = 128, GROUP_MOST = 4 };
#define STEP  1e-5
#define CLOSE 2e-4

static treadle_random random_state = {20261123};

static float draw(void) { return (float)((double)treadle_random_below(&random_state, 2000001) / 1e6 - 1); }
static void fill(float *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = draw();
}

static bool is_close(double got, double wanted, double size) {
  return fabs(got - wanted) <= CLOSE * (size + 1e-3);
}

/* ---- Norms, silu, loss ---- */

typedef struct sample {
  double x[MOST], y[MOST], weight[MOST], dy[MOST];
  int64_t count, target;
} sample;

typedef double formula(const sample *r); /* the sum of dy times what is computed */

static double norm_of(const sample *r) {
  double squares = 0, sum = 0;
  for (int64_t i = 0; i < r->count; i++) squares += r->x[i] * r->x[i];
  double scale = 1 / sqrt(squares / (double)r->count + 1e-6);
  for (int64_t i = 0; i < r->count; i++) sum += r->dy[i] * r->x[i] * scale * r->weight[i];
  return sum;
}

static double silu_of(const sample *r) {
  double sum = 0;
  for (int64_t i = 0; i < r->count; i++) sum += r->dy[i] * r->x[i] / (1 + exp(-r->x[i])) * r->y[i];
  return sum;
}

static double loss_of(const sample *r) {
  double sum = 0;
  for (int64_t i = 0; i < r->count; i++) sum += exp(r->x[i]);
  return log(sum) - r->x[r->target];
}

static double slope(formula *f, sample *r, double *value) {
  double kept = *value;
  *value = kept + STEP;
  double above = f(r);
  *value = kept - STEP;
  double below = f(r);
  *value = kept;
  return (above - below) / (2 * STEP);
}

static void widen(double *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

static void test_differences(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 8, 16, 17, 64, 100, 300};
  const treadle_row_back_ops *ops = treadle_row_back_ops_for("auto");
  sample *r = malloc(sizeof *r);
  assert_non_null(r);
  for (size_t c = 0; c < TEST_COUNT(counts); c++) {
    float x[MOST], y[MOST], weight[MOST], dy[MOST], dx[MOST] = {0}, dweight[MOST] = {0}, again[MOST],
                                                    sum = 0;
    int64_t count = r->count = counts[c];
    fill(x, count), fill(y, count), fill(weight, count), fill(dy, count);
    widen(r->x, x, count), widen(r->y, y, count), widen(r->weight, weight, count), widen(r->dy, dy, count);
    ops->norm(dx, dweight, dy,
              &(treadle_normed_row){
                  .x = x, .weight = weight, .dtype = TREADLE_FP32, .count = count, .eps = 1e-6f});
    for (int64_t i = 0; i < count; i++) {
      assert_true(is_close(dx[i], slope(norm_of, r, &r->x[i]), 1));
      assert_true(is_close(dweight[i], slope(norm_of, r, &r->weight[i]), 1));
    }
    ops->silu(dx, dweight, again, dy, x, y, count);
    for (int64_t i = 0; i < count; i++) {
      assert_true(fabs(again[i] - x[i] / (1 + exp(-x[i])) * y[i]) < 1e-5);
      assert_true(is_close(dx[i], slope(silu_of, r, &r->x[i]), 1));
      assert_true(is_close(dweight[i], slope(silu_of, r, &r->y[i]), 1));
    }
    r->target = count / 2;
    for (int64_t i = 0; i < count; i++) sum += expf(x[i]);
    ops->loss(x, count, logf(sum), r->target, 1);
    for (int64_t i = 0; i < count; i++) assert_true(is_close(x[i], slope(loss_of, r, &r->x[i]), 1));
  }
  free(r);
}

/* <turn(x), y> = <x, undo(y)>. */
static void test_rotation(void **state) {
  (void)state;
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    treadle_rope_spec spec = {.head_dim = 64, .partial = 0.5, .interleaved = interleaved};
    treadle_rope rope;
    json_t *config = json_object();
    float x[64], y[64], turned[64], undone[64];
    double left = 0, right = 0;
    assert_ok(treadle_rope_read(config, &spec, &rope));
    assert_ok(treadle_rope_extend(&rope, 20));
    fill(x, 64), fill(y, 64);
    memcpy(turned, x, sizeof x);
    memcpy(undone, y, sizeof y);
    treadle_rope_apply(&rope, treadle_row_ops_choose(), turned, 64, 1, 17);
    treadle_rope_undo(&rope, treadle_row_ops_choose(), undone, 64, 1, 17);
    assert_memory_not_equal(undone, y, sizeof y);
    for (int i = 0; i < 64; i++) {
      left += (double)turned[i] * y[i];
      right += (double)x[i] * undone[i];
    }
    assert_true(fabs(left - right) < 1e-4);
    treadle_rope_release(&rope);
    json_decref(config);
  }
}

/* ---- Attention ---- */

typedef struct attention {
  float q[ROWS_MOST * GROUP_MOST * DIM_MOST], k[ROWS_MOST * DIM_MOST], v[ROWS_MOST * DIM_MOST];
  float out[ROWS_MOST * GROUP_MOST * DIM_MOST], dout[ROWS_MOST * GROUP_MOST * DIM_MOST];
  float dq[ROWS_MOST * GROUP_MOST * DIM_MOST], dk[ROWS_MOST * DIM_MOST], dv[ROWS_MOST * DIM_MOST];
  double dq64[ROWS_MOST * GROUP_MOST * DIM_MOST], dk64[ROWS_MOST * DIM_MOST], dv64[ROWS_MOST * DIM_MOST];
  treadle_attention_back one;
} attention;

static void draw_attention(attention *a, int64_t rows, int64_t group, int64_t key_dim, int64_t value_dim) {
  a->one = (treadle_attention_back){.rows = rows,
                                    .queries_per_head = group,
                                    .key_dim = key_dim,
                                    .value_dim = value_dim,
                                    .scale = (float)(1 / sqrt((double)key_dim)),
                                    .dtype = TREADLE_FP32,
                                    .q = a->q,
                                    .k = a->k,
                                    .v = a->v,
                                    .q_stride = group * key_dim,
                                    .k_stride = key_dim,
                                    .v_stride = value_dim,
                                    .out = a->out,
                                    .dout = a->dout,
                                    .out_stride = group * value_dim,
                                    .dout_stride = group * value_dim,
                                    .dq = a->dq,
                                    .dk = a->dk,
                                    .dv = a->dv,
                                    .dq_stride = group * key_dim,
                                    .dk_stride = key_dim,
                                    .dv_stride = value_dim};
  fill(a->q, rows * group * key_dim), fill(a->k, rows * key_dim), fill(a->v, rows * value_dim);
  fill(a->dout, rows * group * value_dim);
}

/* Forward in double, into out and p; returns the sum of dout * out of one row and head. */
static double attend(attention *a, int64_t head, int64_t row, double *p, double *out) {
  const treadle_attention_back *o = &a->one;
  double most = -INFINITY, sum = 0, given = 0;
  for (int64_t key = 0; key <= row; key++) {
    p[key] = 0;
    for (int64_t i = 0; i < o->key_dim; i++)
      p[key] += (double)o->q[row * o->q_stride + head * o->key_dim + i] * o->k[key * o->k_stride + i];
    p[key] *= o->scale;
    most = p[key] > most ? p[key] : most;
  }
  for (int64_t key = 0; key <= row; key++) sum += p[key] = exp(p[key] - most);
  for (int64_t key = 0; key <= row; key++) p[key] /= sum;
  for (int64_t i = 0; i < o->value_dim; i++) {
    out[i] = 0;
    for (int64_t key = 0; key <= row; key++) out[i] += p[key] * o->v[key * o->v_stride + i];
    given += out[i] * o->dout[row * o->dout_stride + head * o->value_dim + i];
  }
  return given;
}

/* The twin in double. */
static void back_in_double(attention *a) {
  const treadle_attention_back *o = &a->one;
  double p[ROWS_MOST], out[DIM_MOST];
  memset(a->dk64, 0, sizeof a->dk64), memset(a->dv64, 0, sizeof a->dv64),
      memset(a->dq64, 0, sizeof a->dq64);
  for (int64_t head = 0; head < o->queries_per_head; head++)
    for (int64_t row = 0; row < o->rows; row++) {
      const float *dout = o->dout + row * o->dout_stride + head * o->value_dim;
      double given = attend(a, head, row, p, out);
      for (int64_t i = 0; i < o->value_dim; i++)
        a->out[row * o->out_stride + head * o->value_dim + i] = (float)out[i];
      for (int64_t key = 0; key <= row; key++) {
        double dp = 0;
        for (int64_t i = 0; i < o->value_dim; i++) {
          dp += (double)dout[i] * o->v[key * o->v_stride + i];
          a->dv64[key * o->dv_stride + i] += p[key] * dout[i];
        }
        double ds = p[key] * (dp - given) * o->scale;
        for (int64_t i = 0; i < o->key_dim; i++) {
          a->dq64[row * o->dq_stride + head * o->key_dim + i] += ds * o->k[key * o->k_stride + i];
          a->dk64[key * o->dk_stride + i] += ds * o->q[row * o->q_stride + head * o->key_dim + i];
        }
      }
    }
}

static double all_given(attention *a) {
  double sum = 0, p[ROWS_MOST], out[DIM_MOST];
  for (int64_t head = 0; head < a->one.queries_per_head; head++)
    for (int64_t row = 0; row < a->one.rows; row++) sum += attend(a, head, row, p, out);
  return sum;
}

/* The twin itself: values are fp32, so the step is one that they can take. */
static void check_twin(attention *a, float *value, double wanted) {
  const float step = 1.0f / 256;
  float kept = *value;
  *value = kept + step;
  double above = all_given(a);
  *value = kept - step;
  double below = all_given(a), width = (double)(kept + step) - (double)(kept - step);
  *value = kept;
  assert_true(fabs((above - below) / width - wanted) <= 1e-3 * (1 + fabs(wanted)));
}

static void check_values(const float *got, const double *wanted, int64_t count) {
  for (int64_t i = 0; i < count; i++) assert_true(is_close(got[i], wanted[i], 1 + fabs(wanted[i])));
}

static void test_attention(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 1, 8, 8},    {5, 2, 8, 16},   {16, 1, 64, 64},   {17, 4, 20, 12},
                                      {63, 1, 80, 80}, {65, 4, 64, 64}, {130, 2, 128, 128}};
  static const char *const kinds[] = {"plain", "avx2", "avx512"};
  attention *a = malloc(sizeof *a), *kept = malloc(sizeof *kept);
  void *scratch;
  assert_true(a && kept);
  for (size_t s = 0; s < TEST_COUNT(shapes); s++) {
    const int64_t *shape = shapes[s];
    size_t bytes = treadle_attention_back_bytes(shape[0], shape[2], shape[3]);
    int64_t queries = shape[0] * shape[1] * shape[2], keys = shape[0] * shape[2],
            values = shape[0] * shape[3];
    assert_int_equal(posix_memalign(&scratch, 64, bytes), 0);
    draw_attention(a, shape[0], shape[1], shape[2], shape[3]);
    back_in_double(a);
    if (shape[0] < 20) {
      check_twin(a, &a->q[queries / 2], a->dq64[queries / 2]);
      check_twin(a, &a->k[keys / 3], a->dk64[keys / 3]);
      check_twin(a, &a->v[values / 2], a->dv64[values / 2]);
    }
    for (size_t k = 0; k < TEST_COUNT(kinds); k++) {
      treadle_attention_back_run(&a->one, kinds[k], scratch);
      if (k == 0) {
        check_values(a->dq, a->dq64, queries);
        check_values(a->dk, a->dk64, keys);
        check_values(a->dv, a->dv64, values);
        memcpy(kept, a, sizeof *a);
        a->one.dtype = TREADLE_FP32;
      }
      assert_memory_equal(a->dq, kept->dq, (size_t)queries * sizeof(float));
      assert_memory_equal(a->dk, kept->dk, (size_t)keys * sizeof(float));
      assert_memory_equal(a->dv, kept->dv, (size_t)values * sizeof(float));
      treadle_attention_back in_place = a->one;
      memcpy(a->dq, a->q, sizeof a->q);
      in_place.q = a->dq;
      treadle_attention_back_run(&in_place, kinds[k], scratch);
      assert_memory_equal(a->dq, kept->dq, (size_t)queries * sizeof(float));
    }
    free(scratch);
  }
  free(a);
  free(kept);
}

/* ---- The same bits ---- */

static void test_kinds(void **state) {
  (void)state;
  int kinds;
  const treadle_row_back_ops *const *list = treadle_row_back_ops_list(&kinds);
  assert_true(kinds == 3 && list[0]->supported());
  for (int k = 1; k < kinds; k++) {
    if (!list[k]->supported()) {
      printf("%s: this processor has none: skipped\n", list[k]->name);
      continue;
    }
    for (int64_t count = 1; count <= MOST; count += count < 40 ? 1 : 37) {
      float x[MOST], y[MOST], dy[MOST], to[2][2][MOST] = {0}, again[2][MOST];
      uint16_t weight[MOST];
      fill(x, count), fill(y, count), fill(dy, count), fill(to[0][0], count);
      memcpy(to[1], to[0], sizeof to[0]);
      for (int64_t i = 0; i < count; i++) weight[i] = treadle_bf16_of_float(draw());
      for (int both = 0; both < 2; both++) {
        const treadle_row_back_ops *ops = list[both ? k : 0];
        const treadle_normed_row narrow = {x, weight, TREADLE_BF16, count, 1e-5f},
                                 wide = {x, y, TREADLE_FP32, count, 1e-5f};
        ops->norm(to[both][0], to[both][1], dy, &narrow);
        ops->norm(to[both][0], to[both][1], dy, &wide);
        ops->add(to[both][1], x, count);
      }
      assert_memory_equal(to[0], to[1], sizeof to[0]);
      for (int both = 0; both < 2; both++) {
        const treadle_row_back_ops *ops = list[both ? k : 0];
        ops->silu(to[both][0], to[both][1], again[both], dy, x, y, count);
        ops->loss(to[both][1], count, 0.5f, count - 1, 0.125f);
      }
      assert_memory_equal(to[0], to[1], sizeof to[0]);
      treadle_row_ops_for(list[k]->name)->silu(again[0], x, y, count);
      assert_memory_equal(again[0], again[1], (size_t)count * sizeof again[0][0]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_differences),
      cmocka_unit_test(test_rotation),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

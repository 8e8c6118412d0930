/* Gated products: every element is, to the bit, what nn/rows.h makes of the two products, by each kernel that can; whatever the rows
 * beside it, segments and threads. */
#include "test.h"

#include "base/dtype.h"
#include "base/random.h"
#include "nn/gemm.h"
#include "nn/rows.h"

enum { ROWS_MAX = 90, OUTS_MAX = 120, WIDTH_MAX = 200, SEGMENTS = 2, STRIDE = OUTS_MAX + 5 };

typedef struct draw {
  treadle_random random;
  const treadle_gemm_kernel *kernel;
  int64_t rows, outs, width, weight_stride;
  int32_t threads;
  float x[ROWS_MAX * WIDTH_MAX];
  uint16_t weights[2][OUTS_MAX * (WIDTH_MAX + 9)]; /* and gates */
  float product[2][ROWS_MAX * STRIDE], wanted[STRIDE], got[ROWS_MAX * STRIDE];
  _Alignas(64) char packed[1 << 18];
} draw;

static void fill(draw *d, uint64_t seed) {
  d->random = (treadle_random){seed};
  d->rows = treadle_random_between(&d->random, 1, ROWS_MAX);
  d->outs = treadle_random_between(&d->random, SEGMENTS, OUTS_MAX);
  d->width = treadle_random_between(&d->random, 32, WIDTH_MAX);
  d->weight_stride = d->width + treadle_random_between(&d->random, 0, 9);
  d->threads = (int32_t)treadle_random_between(&d->random, 1, 3);
  for (int64_t i = 0; i < ROWS_MAX * WIDTH_MAX; i++)
    d->x[i] = (float)treadle_random_between(&d->random, -1000, 1000) / 250.0f;
  for (int which = 0; which < 2; which++)
    for (int64_t i = 0; i < d->outs * d->weight_stride; i++)
      d->weights[which][i] =
          treadle_bf16_of_float((float)treadle_random_between(&d->random, -1000, 1000) / 1000.0f);
}

/* which: 0 weights, 1 gates, 2 both in one. */
static void multiply(draw *d, int which, float *y) {
  treadle_gemm_inner inner = {.dtype = TREADLE_BF16, .leaf = (int32_t)d->width, .range = {0, 1, 1}};
  treadle_gemm_source source = {.inner = inner, .x = d->x, .rows = d->rows, .stride = WIDTH_MAX};
  treadle_gemm_segment segments[SEGMENTS];
  for (int i = 0; i < SEGMENTS; i++) {
    int64_t begin = d->outs * i / SEGMENTS, at = begin * d->weight_stride;
    segments[i] = (treadle_gemm_segment){.weights = d->weights[which == 1] + at,
                                         .rows = d->outs * (i + 1) / SEGMENTS - begin,
                                         .stride = d->weight_stride,
                                         .column = begin,
                                         .gates = which == 2 ? d->weights[1] + at : NULL};
  }
  treadle_gemm_product product = {.inner = inner,
                                  .packed = d->packed,
                                  .rows = d->rows,
                                  .segments = segments,
                                  .count = SEGMENTS,
                                  .y = y,
                                  .stride = STRIDE,
                                  .gated = which == 2};
  assert_true(d->kernel->packed_bytes(inner, d->rows) <= sizeof d->packed);
  d->kernel->pack(&source, d->packed, 0, 1);
  for (int32_t i = 0; i < d->threads; i++) d->kernel->run(&product, i, d->threads);
}

static void check(draw *d, uint64_t seed) {
  const treadle_row_ops *ops = treadle_row_ops_list(&(int){0})[0];
  fill(d, seed);
  for (int64_t i = 0; i < ROWS_MAX * STRIDE; i++) d->got[i] = -12345.5f;
  for (int which = 0; which < 2; which++) multiply(d, which, d->product[which]);
  multiply(d, 2, d->got);
  for (int64_t row = 0; row < ROWS_MAX; row++) {
    const float *got = d->got + row * STRIDE;
    if (row < d->rows) {
      ops->silu(d->wanted, d->product[1] + row * STRIDE, d->product[0] + row * STRIDE, d->outs);
      if (memcmp(got, d->wanted, (size_t)d->outs * sizeof *got) != 0)
        fail_msg("%s, seed %d: row %d of %d, %d columns, %d elements, differs", d->kernel->name, (int)seed,
                 (int)row, (int)d->rows, (int)d->outs, (int)d->width);
    }
    for (int64_t out = row < d->rows ? d->outs : 0; out < STRIDE; out++) assert_true(got[out] == -12345.5f);
  }
}

static void gates_are_those_of_rows(void **state) {
  (void)state;
  static draw d;
  for (int32_t number = 0; (d.kernel = treadle_gemm_kernel_at(number)); number++) {
    if (!d.kernel->gates) continue;
    if (d.kernel->lacks())
      print_message("%s: %s\n", d.kernel->name, d.kernel->lacks());
    else
      for (uint64_t seed = 0; seed < test_seeds(300); seed++) check(&d, seed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gates_are_those_of_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Products by a team of threads: no two of them touch the same memory, and the result is that of one.
 * ctest: label=threads */
#include "test.h"

#include "base/dtype.h"
#include "base/random.h"
#include "base/team.h"
#include "nn/gemm.h"

enum { ROWS = 37, LEAF = 48, LEAVES = 3, WIDTH = LEAF * LEAVES, OUTS = 150, PARTS = 2 };

typedef struct work {
  const treadle_gemm_kernel *kernel;
  treadle_gemm_source source;
  treadle_gemm_product product;
  void *packed;
} work;

static void pack_part(void *context, int32_t index, int32_t count) {
  work *w = context;
  w->kernel->pack(&w->source, w->packed, index, count);
}

static void run_part(void *context, int32_t index, int32_t count) {
  work *w = context;
  w->kernel->run(&w->product, index, count);
}

static void compute(work *w, int32_t threads, float *y) {
  treadle_team *team;
  assert_ok(treadle_team_create(threads, false, &team));
  w->product.y = y;
  treadle_team_run(team, pack_part, w);
  treadle_team_run(team, run_part, w);
  treadle_team_destroy(team);
}

static void fill(treadle_random *random, void *to, treadle_dtype dtype, size_t count) {
  for (size_t i = 0; i < count; i++) {
    float value = (float)treadle_random_between(random, -1000, 1000) * 1e-3f;
    treadle_dtype_convert((char *)to + i * treadle_dtype_bytes(dtype), dtype, &value, TREADLE_FP32, 1);
  }
}

static void threads_do_not_matter(void **state) {
  (void)state;
  static float x[ROWS * WIDTH], weights[OUTS * WIDTH], alone[ROWS * OUTS], together[ROWS * OUTS];
  const treadle_gemm_kernel *kernel;
  for (int32_t number = 0; (kernel = treadle_gemm_kernel_at(number)); number++)
    for (int dtype = 0; dtype < 2; dtype++) {
      treadle_random random = {(uint64_t)number};
      treadle_gemm_inner inner = {
          .dtype = dtype ? TREADLE_BF16 : TREADLE_FP32, .leaf = LEAF, .range = {0, LEAVES, LEAVES}};
      if (kernel->lacks() || !kernel->takes(inner.dtype, LEAF)) continue;
      fill(&random, x, TREADLE_FP32, ROWS * WIDTH);
      fill(&random, weights, inner.dtype, OUTS * WIDTH);
      treadle_gemm_segment segments[PARTS] = {{.weights = weights, .rows = OUTS - 9, .stride = WIDTH}};
      segments[1] = (treadle_gemm_segment){.weights = (char *)weights +
                                                      (OUTS - 9) * WIDTH * treadle_dtype_bytes(inner.dtype),
                                           .rows = 9,
                                           .stride = WIDTH,
                                           .column = OUTS - 9};
      work w = {.kernel = kernel, .source = {.inner = inner, .x = x, .rows = ROWS, .stride = WIDTH}};
      w.packed = aligned_alloc(TREADLE_GEMM_ALIGNMENT, (kernel->packed_bytes(inner, ROWS) + 64) / 64 * 64);
      w.product = (treadle_gemm_product){.inner = inner,
                                         .packed = w.packed,
                                         .rows = ROWS,
                                         .segments = segments,
                                         .count = PARTS,
                                         .stride = OUTS};
      compute(&w, 1, alone);
      for (int32_t threads = 2; threads <= 6; threads++) {
        memset(together, 0xff, sizeof together);
        compute(&w, threads, together);
        assert_memory_equal(together, alone, sizeof alone);
      }
      free(w.packed);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(threads_do_not_matter)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

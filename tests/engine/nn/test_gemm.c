/* Products of src/engine/nn/gemm.h. For random shapes and each kernel of the machine: every element is, to the bit, what its twin (gemm_twin.c)
 * makes of the row and the weights alone, whatever the rows beside it, its place, segments, strides, alignment, threads, and the cut of
 * the inner dimension among ranks; and it is near the exact sum. ctest: optimise */
#include "test.h"

#include "base/dtype.h"
#include "base/random.h"
#include "nn/gemm.h"
#include "nn/gemm_twin.h"

#include <math.h>
#include <sys/mman.h>

enum { ROWS_MAX = 70, SEGMENTS_MAX = 5 };

/* One random product. Weights and x are kept as fp32, as the kernel should see them. */
typedef struct draw {
  treadle_random random;
  const treadle_gemm_kernel *kernel;
  treadle_dtype dtype;
  bool fine;
  int32_t leaf, all;
  int64_t width, rows, outs;
  float *x, *x_seen; /* [rows, width], as given and as the kernel reads it */
  float *x_left;     /* the second part of x, which is added to the first; 0 where there is none */
  float *w;          /* [outs, width] */
  float *wanted;     /* [rows, outs] */
} draw;

static int64_t between(draw *d, int64_t low, int64_t high) {
  return treadle_random_between(&d->random, low, high);
}

static float value_of(draw *d, int spread) {
  float value = (float)between(d, -(1 << 20), 1 << 20) * 0x1p-20f;
  int64_t what = between(d, 0, 99);
  if (what == 0) return 0;
  if (what == 1) return -0.0f;
  if (what == 2 && spread > 0) return ldexpf(value, -(int)between(d, 100, 148)); /* subnormal, or nearly */
  return spread > 1 ? ldexpf(value, (int)between(d, -30, 30)) : value;
}

static float round_to(treadle_dtype dtype, float value) {
  return dtype == TREADLE_BF16 ? treadle_bf16_to_float(treadle_bf16_of_float(value)) : value;
}

/* Of row `row` of x and of w, `leaves` leaves from element `at` on. */
static float sum_of(const draw *d, test_gemm_twin *twin, int64_t row, const float *w, int64_t at,
                    int32_t leaves) {
  if (leaves == 1) {
    float sum = twin(d->dtype, d->x_seen + row * d->width + at, w + at, d->leaf);
    if (d->fine && test_gemm_twin_has_parts(d->kernel->name))
      sum += twin(d->dtype, d->x_left + row * d->width + at, w + at, d->leaf);
    return sum;
  }
  int32_t left = leaves / 2;
  return sum_of(d, twin, row, w, at, left) +
         sum_of(d, twin, row, w, at + (int64_t)left * d->leaf, leaves - left);
}

/* The exact sum is near: each product and addition is off by at most 2^-24 of what has been added. */
static void check_near(const draw *d, int64_t row, const float *w, float got) {
  double exact = 0, magnitude = 0;
  for (int64_t k = 0; k < d->width; k++) {
    const double x = (double)d->x_seen[row * d->width + k] + (double)d->x_left[row * d->width + k];
    exact += x * (double)w[k];
    magnitude += fabs(x * (double)w[k]);
  }
  double error = fabs((double)got - exact);
  double bound = (double)(d->leaf / 8 + 40) * 0x1p-24 * magnitude + (double)d->width * 0x1p-125;
  if (!(error <= bound)) fail_msg("%g instead of %g, %g allowed", (double)got, exact, bound);
}

/* x[i] as the kernel reads it. A fine product has 16 bits of it at least. */
static void see(draw *d, size_t i) {
  const bool parts = test_gemm_twin_has_parts(d->kernel->name);
  d->x_seen[i] = d->fine && !parts ? d->x[i] : round_to(d->dtype, d->x[i]);
  d->x_left[i] = d->fine && parts ? round_to(d->dtype, d->x[i] - d->x_seen[i]) : 0;
  if (d->fine)
    assert_true(fabs((double)d->x[i] - (double)d->x_seen[i] - (double)d->x_left[i]) <=
                0x1p-16 * fabs((double)d->x[i]) + 0x1p-133);
}

static void make(draw *d) {
  int spread = (int)between(d, 0, 2);
  test_gemm_twin *twin = test_gemm_twin_of(d->kernel->name);
  assert_non_null(twin);
  d->width = (int64_t)d->leaf * d->all;
  size_t x_count = (size_t)(d->rows * d->width), w_count = (size_t)(d->outs * d->width);
  d->x = treadle_alloc_array(x_count, sizeof *d->x);
  d->x_seen = treadle_alloc_array(x_count, sizeof *d->x_seen);
  d->x_left = treadle_alloc_array(x_count, sizeof *d->x_left);
  d->w = treadle_alloc_array(w_count, sizeof *d->w);
  d->wanted = treadle_alloc_array((size_t)(d->rows * d->outs), sizeof *d->wanted);
  assert_true(d->x && d->x_seen && d->x_left && d->w && d->wanted);
  for (size_t i = 0; i < x_count; i++) {
    d->x[i] = value_of(d, spread);
    see(d, i);
  }
  for (size_t i = 0; i < w_count; i++) d->w[i] = round_to(d->dtype, value_of(d, spread));
  for (int64_t row = 0; row < d->rows; row++)
    for (int64_t out = 0; out < d->outs; out++) {
      const float *w = d->w + out * d->width;
      float sum = sum_of(d, twin, row, w, 0, d->all);
      d->wanted[row * d->outs + out] = sum;
      check_near(d, row, w, sum);
    }
}

static void unmake(draw *d) {
  treadle_free(d->x);
  treadle_free(d->x_seen);
  treadle_free(d->x_left);
  treadle_free(d->w);
  treadle_free(d->wanted);
}

/* ---- One way of computing it ---- */

/* Rows [first, first + rows) of x, by a cut into `ranks`. */
typedef struct way {
  int64_t first, rows;
  int32_t ranks, threads, segments;
} way;

/* Memory whose last byte lies before a page that nobody may read. */
static char *guarded(int which, int64_t bytes) {
  enum { ROOM = 1 << 21, GUARD = 1 << 16 };
  static char *ends[SEGMENTS_MAX];
  assert_true(bytes <= ROOM);
  if (!ends[which]) {
    char *memory = mmap(NULL, ROOM + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED && mprotect(memory + ROOM, GUARD, PROT_NONE) == 0);
    ends[which] = memory + ROOM;
  }
  return ends[which] - bytes;
}

/* The weights of some leaves as segments: apart from each other, at odd places, with gaps. */
static void store(draw *d, treadle_gemm_segment *to, treadle_leaf_range range, int32_t segments) {
  int64_t each = (int64_t)treadle_dtype_bytes(d->dtype), width = (int64_t)range.leaves * d->leaf;
  int64_t from = (int64_t)range.first * d->leaf;
  for (int32_t i = 0; i < segments; i++) {
    int64_t begin = d->outs * i / segments, end = d->outs * (i + 1) / segments;
    int64_t stride = width + (between(d, 0, 1) ? between(d, 0, 40) : 0),
            after = between(d, 0, 3) ? 0 : each;
    int64_t bytes = ((end - begin - 1) * stride + width) * each;
    char *memory = guarded(i, bytes + after);
    to[i] =
        (treadle_gemm_segment){.weights = memory, .rows = end - begin, .stride = stride, .column = begin};
    memset(memory, 0xff, (size_t)bytes); /* gaps are NaN */
    for (int64_t out = begin; out < end; out++)
      treadle_dtype_convert(memory + (out - begin) * stride * each, d->dtype, d->w + out * d->width + from,
                            TREADLE_FP32, (size_t)width);
  }
}

/* The nodes of one rank, into y [nodes, rows, stride]. */
static void run_rank(draw *d, way how, treadle_leaf_range range, float *y, int64_t stride) {
  treadle_gemm_segment segments[SEGMENTS_MAX];
  int64_t width = (int64_t)range.leaves * d->leaf, gap = between(d, 0, 9), shift = between(d, 0, 15);
  float *x = malloc((size_t)((width + gap) * how.rows + shift + 1) * sizeof *x), *at = x + shift;
  treadle_gemm_inner inner = {.dtype = d->dtype, .leaf = d->leaf, .range = range, .fine = d->fine};
  size_t bytes = d->kernel->packed_bytes(inner, how.rows);
  void *packed = aligned_alloc(TREADLE_GEMM_ALIGNMENT, (bytes + 64) / 64 * 64);
  assert_true(x && packed);
  memset(packed, 0xff, bytes);
  for (int64_t row = 0; row < how.rows; row++)
    memcpy(at + row * (width + gap), d->x + (how.first + row) * d->width + (int64_t)range.first * d->leaf,
           (size_t)width * sizeof *x);
  treadle_gemm_source source = {.inner = inner, .x = at, .rows = how.rows, .stride = width + gap};
  for (int32_t i = how.threads - 1; i >= 0; i--) d->kernel->pack(&source, packed, i, how.threads);
  store(d, segments, range, how.segments);
  treadle_gemm_product product = {.inner = inner,
                                  .packed = packed,
                                  .rows = how.rows,
                                  .segments = segments,
                                  .count = how.segments,
                                  .y = y,
                                  .stride = stride,
                                  .node_stride = stride * how.rows};
  for (int32_t i = 0; i < how.threads; i++) d->kernel->run(&product, i, how.threads);
  free(packed);
  free(x);
}

static const float untouched = -12345.5f;

static void compare(const draw *d, way how, const float *y, int64_t stride) {
  for (int64_t row = 0; row < how.rows; row++) {
    const float *wanted = d->wanted + (how.first + row) * d->outs, *got = y + row * stride;
    for (int64_t out = 0; out < d->outs; out++)
      if (memcmp(&got[out], &wanted[out], sizeof *got) != 0)
        fail_msg(
            "%s, %s%s: row %d of %d (from %d on), column %d of %d, %d leaves of %d, %d ranks, %d threads, "
            "%d segments: %a instead of %a",
            d->kernel->name, treadle_dtype_name(d->dtype), d->fine ? ", fine" : "", (int)row, (int)how.rows,
            (int)how.first, (int)out, (int)d->outs, (int)d->all, (int)d->leaf, (int)how.ranks,
            (int)how.threads, (int)how.segments, (double)got[out], (double)wanted[out]);
    for (int64_t out = d->outs; out < stride; out++) assert_true(got[out] == untouched);
  }
}

static void try_way(draw *d, way how) {
  int64_t stride = d->outs + between(d, 0, 20), each = how.rows * stride;
  int32_t count = 0;
  treadle_leaf_node *nodes = treadle_alloc_array((size_t)d->all, sizeof *nodes);
  const float **values = treadle_alloc_array((size_t)d->all, sizeof *values);
  float *y = treadle_alloc_array((size_t)(each * d->all), sizeof *y);
  assert_true(nodes && values && y);
  for (int64_t i = 0; i < each * d->all; i++) y[i] = untouched;
  for (int32_t rank = 0; rank < how.ranks; rank++) {
    int32_t first = d->all * rank / how.ranks, end = d->all * (rank + 1) / how.ranks;
    if (first == end) continue;
    treadle_leaf_range range = {.first = first, .leaves = end - first, .all = d->all};
    run_rank(d, how, range, y + count * each, stride);
    int32_t more = treadle_leaf_nodes(range, nodes + count);
    for (int32_t i = 0; i < more; i++) values[count + i] = y + (count + i) * each;
    count += more;
  }
  if (how.ranks > 1)
    for (int64_t row = 0; row < how.rows; row++) {
      const float *of_row[64];
      assert_true(count <= 64);
      for (int32_t i = 0; i < count; i++) of_row[i] = values[i] + row * stride;
      treadle_leaf_combine(d->all, nodes, of_row, count, y + row * stride, d->outs);
    }
  compare(d, how, y, stride);
  treadle_free(nodes);
  treadle_free(values);
  treadle_free(y);
}

/* ---- Random shapes ---- */

static void draw_shape(draw *d) {
  static const int32_t ranks[] = {1, 2, 3, 4, 6, 8, 24};
  d->dtype = between(d, 0, 2) ? TREADLE_BF16 : TREADLE_FP32;
  d->leaf = (int32_t)(between(d, 0, 3) ? between(d, 1, 100) : between(d, 8, 700));
  d->all = d->leaf > 200 ? 1 : between(d, 0, 2) ? ranks[between(d, 0, 6)] : (int32_t)between(d, 1, 40);
  if (d->leaf * d->all > 1200) d->all = 1200 / d->leaf + 1;
  d->rows = between(d, 0, 2) ? between(d, 1, 20) : between(d, 1, ROWS_MAX);
  d->outs = between(d, 0, 2) ? between(d, 1, 24) : between(d, 1, 100);
  if (d->rows * d->outs > 900) d->outs = 900 / d->rows;
  d->fine = between(d, 0, 2) == 0;
}

static void try_shape(draw *d) {
  static const int32_t ranks[] = {2, 3, 4, 6, 8};
  make(d);
  int32_t segments =
      (int32_t)treadle_random_between(&d->random, 1, d->outs < SEGMENTS_MAX ? d->outs : SEGMENTS_MAX);
  try_way(d, (way){.rows = d->rows, .ranks = 1, .threads = 1, .segments = 1});
  try_way(d,
          (way){.rows = d->rows, .ranks = 1, .threads = (int32_t)between(d, 2, 5), .segments = segments});
  int64_t first = between(d, 0, d->rows - 1);
  try_way(d, (way){.first = first, .rows = 1, .ranks = 1, .threads = 1, .segments = segments});
  first = between(d, 0, d->rows - 1);
  way how = {.first = first, .rows = between(d, 1, d->rows - first), .ranks = 1, .segments = segments};
  how.threads = (int32_t)between(d, 1, 3);
  if (d->all > 1) how.ranks = ranks[between(d, 0, 4)];
  try_way(d, how);
  unmake(d);
}

/* Calls `check` for each kernel of the machine. */
static void each_kernel(void (*check)(const treadle_gemm_kernel *kernel)) {
  const treadle_gemm_kernel *kernel;
  for (int32_t number = 0; (kernel = treadle_gemm_kernel_at(number)); number++) {
    if (kernel->lacks())
      print_message("%s: %s\n", kernel->name, kernel->lacks());
    else
      check(kernel);
  }
}

/* 10,000 with four kernels. */
static void check_shapes(const treadle_gemm_kernel *kernel) {
  uint64_t done = 0, shapes = test_seeds(2500);
  for (uint64_t seed = 0; done < shapes; seed++) {
    draw d = {.random = {seed}, .kernel = kernel};
    draw_shape(&d);
    if (!kernel->takes(d.dtype, d.leaf)) continue;
    try_shape(&d);
    done++;
  }
}

static void rows_do_not_depend_on_others(void **state) {
  (void)state;
  each_kernel(check_shapes);
}

/* Each number of rows, with the first one at each place. */
static void check_batches(const treadle_gemm_kernel *kernel) {
  draw d = {.random = {7}, .kernel = kernel, .leaf = 80, .all = 3, .rows = ROWS_MAX, .outs = 37};
  for (int kind = 0; kind < 3; kind++) {
    d.dtype = kind ? TREADLE_BF16 : TREADLE_FP32;
    d.fine = kind == 2;
    if (!kernel->takes(d.dtype, d.leaf)) continue;
    make(&d);
    for (int64_t rows = 1; rows <= ROWS_MAX; rows++)
      try_way(&d, (way){.first = between(&d, 0, ROWS_MAX - rows),
                        .rows = rows,
                        .ranks = 1,
                        .threads = 1,
                        .segments = 1});
    for (int64_t first = 0; first < ROWS_MAX; first++)
      try_way(&d, (way){.first = first,
                        .rows = between(&d, 1, ROWS_MAX - first),
                        .ranks = 1,
                        .threads = 1,
                        .segments = 1});
    unmake(&d);
  }
}

static void batches_do_not_matter(void **state) {
  (void)state;
  each_kernel(check_batches);
}

/* Enough rows, and long enough leaves, that kernels take them in several passes and runs. */
static void check_large(const treadle_gemm_kernel *kernel) {
  static const int64_t sizes[][3] = {{230, 2600, 1}, {300, 100, 24}, {9, 5000, 1}, {100, 1100, 2}};
  for (int i = 0; i < 12; i++) {
    draw d = {.random = {(uint64_t)i},
              .kernel = kernel,
              .dtype = i % 3 ? TREADLE_BF16 : TREADLE_FP32,
              .fine = i % 3 == 2};
    const int64_t *size = sizes[i / 3];
    d.rows = size[0];
    d.leaf = (int32_t)size[1];
    d.all = (int32_t)size[2];
    d.outs = 45;
    if (!kernel->takes(d.dtype, d.leaf)) continue;
    make(&d);
    try_way(&d, (way){.rows = d.rows, .ranks = 1, .threads = 2, .segments = 2});
    try_way(&d,
            (way){.first = d.rows - 5, .rows = 5, .ranks = d.all > 1 ? 2 : 1, .threads = 1, .segments = 1});
    unmake(&d);
  }
}

static void large_products_are_the_same(void **state) {
  (void)state;
  each_kernel(check_large);
}

/* ---- The table ---- */

static void kernels_are_chosen(void **state) {
  (void)state;
  const treadle_gemm_kernel *kernel, *chosen;
  for (int32_t number = 0; (kernel = treadle_gemm_kernel_at(number)); number++) {
    if (kernel->lacks()) {
      assert_refused(kernel->lacks(), treadle_gemm_choose(kernel->name, TREADLE_BF16, 64, &chosen));
      assert_null(chosen);
      continue;
    }
    for (int32_t leaf = 1; leaf < 70; leaf++) {
      assert_ok(treadle_gemm_choose(kernel->name, TREADLE_BF16, leaf, &chosen));
      assert_true(chosen->takes(TREADLE_BF16, leaf) && !chosen->lacks());
      assert_true(chosen == kernel || !kernel->takes(TREADLE_BF16, leaf));
    }
    assert_ok(treadle_gemm_choose("auto", TREADLE_BF16, 64, &chosen));
    if (kernel->takes(TREADLE_BF16, 64))
      assert_true(chosen == kernel || treadle_gemm_kernel_at(number + 1));
  }
  assert_ok(treadle_gemm_choose("plain", TREADLE_FP32, 1, &chosen));
  assert_string_equal(chosen->name, "plain");
  assert_refused("auto, plain", treadle_gemm_choose("fast", TREADLE_FP32, 1, &chosen));
  assert_refused("none for fp16", treadle_gemm_choose("auto", TREADLE_FP16, 1, &chosen));
  assert_null(treadle_gemm_kernel_at(-1));
}

static void nothing_to_do(void **state) {
  (void)state;
  const treadle_gemm_kernel *kernel;
  for (int32_t number = 0; (kernel = treadle_gemm_kernel_at(number)); number++) {
    if (kernel->lacks()) continue;
    treadle_gemm_source source = {.inner = {.dtype = TREADLE_BF16, .leaf = 32, .range = {0, 1, 1}}};
    treadle_gemm_product product = {.inner = source.inner};
    treadle_gemm_segment none = {.stride = 32};
    assert_int_equal(kernel->packed_bytes(source.inner, 0), 0);
    kernel->pack(&source, NULL, 0, 1);
    kernel->run(&product, 0, 1);
    product.segments = &none;
    product.count = 1;
    kernel->run(&product, 0, 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_do_not_depend_on_others),
      cmocka_unit_test(batches_do_not_matter),
      cmocka_unit_test(large_products_are_the_same),
      cmocka_unit_test(kernels_are_chosen),
      cmocka_unit_test(nothing_to_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

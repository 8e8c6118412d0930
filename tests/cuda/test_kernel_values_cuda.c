/* Blocks of fp8, generated values and hashes by the kernels of a CUDA device, run on the host, against their plain
 * twins: all types, strides, places; NaN; blocks that are partial. A failure prints its seed:  test_kernel_values_cuda
 * SEED */
/* ctest: stage=gcc optimise */
#include "base/random.h"
#include "kernels_on_host.h"
#include "memory/elements.h"
#include "memory/kernel_cuda.h"
#include "memory/quantise.h"
#include "test.h"

#include <math.h>

enum { SIDE = TREADLE_BLOCK_ROW_SIDE, ROOM = SIDE * SIDE * 10, CASES = 2000, MANY = 5 };

static uint64_t only_seed;
static char source[ROOM], made[ROOM], wanted[ROOM];

static void fail_case(uint64_t seed, const char *what, treadle_dtype dtype) {
  fail_msg("seed %llu: %s, %s", (unsigned long long)seed, what, treadle_dtype_name(dtype));
}

static void clear(void) {
  memset(made, 0xee, ROOM);
  memset(wanted, 0xee, ROOM);
}

/* ---- Blocks ---- */

/* A matrix in a room, by rows or by columns, with gaps, anywhere. */
static treadle_matrix draw_matrix(treadle_random *random, char *room, int64_t each, int64_t rows,
                                  int64_t columns) {
  const bool turned = treadle_random_below(random, 4) == 0, plain = treadle_random_below(random, 2);
  const int64_t step = each + (treadle_random_below(random, 6) == 0 ? treadle_random_below(random, 4) : 0);
  const int64_t inner = turned ? rows : columns;
  int64_t far = inner * step + (plain ? 0 : each * treadle_random_below(random, 9));
  if (treadle_random_below(random, 3) == 0) far = (far + 15) / 16 * 16;
  const int64_t start = plain ? 0 : treadle_random_below(random, 64);
  return treadle_matrix_of(room + start, turned ? step : far, turned ? far : step);
}

static treadle_matrix in_room(treadle_matrix matrix, const char *old_room, char *room) {
  return treadle_matrix_of(room + ((const char *)matrix.base - old_room), matrix.row_stride,
                           matrix.column_stride);
}

static void draw_values(treadle_random *random, treadle_matrix values, treadle_dtype dtype, int64_t rows,
                        int64_t columns) {
  const int64_t kind = treadle_random_below(random, 8);
  for (int64_t i = 0; i < rows * columns; i++) {
    const uint64_t bits = treadle_random_next(random);
    float value = ldexpf((float)(int32_t)bits, -31); /* -1 to 1 */
    if (kind == 1) value = ldexpf(value, (int)(bits >> 32) % 20);
    if (kind == 2) value = ldexpf(value, -140); /* subnormals */
    if (kind == 3) value = bits % 3 ? 0.0f : -0.0f;
    if (kind == 4) memcpy(&value, &bits, sizeof value); /* anything */
    if (kind == 5) value = treadle_fp8_to_float((uint8_t)(bits % 127)) * 0.001f;
    if (kind == 6) value = (float)((int)(bits % 897) - 448); /* ties and 448 */
    if (kind == 7 && i == rows * columns / 2) value = (bits & 1 ? -INFINITY : INFINITY);
    treadle_dtype_convert((char *)values.into + i / columns * values.row_stride +
                              i % columns * values.column_stride,
                          dtype, &value, TREADLE_FP32, 1);
  }
}

/* A strip of one block as the kernel takes it, among others of its launch. */
static void launch(kernel_on_host *blocks, const treadle_strip *strip, treadle_random *random) {
  treadle_cuda_strip strips[3] = {{0}};
  treadle_cuda_block block = {.strip = (uint32_t)treadle_random_below(random, 3)};
  strips[block.strip] = (treadle_cuda_strip){.values = address_on_host(strip->values.base),
                                             .codes = address_on_host(strip->codes.base),
                                             .scales = address_on_host(strip->scales.base),
                                             .values_row = strip->values.row_stride,
                                             .values_column = strip->values.column_stride,
                                             .codes_row = strip->codes.row_stride,
                                             .codes_column = strip->codes.column_stride,
                                             .scales_column = strip->scales.column_stride,
                                             .rows = (uint32_t)strip->rows,
                                             .columns = (uint32_t)strip->columns,
                                             .width = (uint32_t)strip->width,
                                             .skip = (uint32_t)strip->skip,
                                             .dtype = (uint8_t)strip->dtype,
                                             .back = strip->back};
  treadle_cuda_block all[SIDE + 1];
  uint32_t count = 0;
  for (; count < treadle_strip_blocks(strip); count++)
    all[count] = (treadle_cuda_block){block.strip, count};
  treadle_cuda_blocks_args args = {
      .strips = address_on_host(strips), .blocks = address_on_host(all), .count = count};
  blocks(&args, (uint32_t)treadle_random_between(random, 1, 3), (uint32_t)treadle_random_next(random));
}

/* Blocks of a strip, and where its scales lie: anywhere behind the rest of a room. */
static void draw_blocks(treadle_random *random, treadle_strip *strip, char *room) {
  const int64_t widths[] = {strip->columns, strip->columns, 32, 17};
  const int64_t step = 4 + treadle_random_below(random, 3);
  strip->width = (int32_t)widths[treadle_random_below(random, TEST_COUNT(widths))];
  strip->skip = (int32_t)(treadle_random_below(random, 2) ? treadle_random_below(random, strip->width) : 0);
  strip->scales = treadle_matrix_of(room + ROOM - 1024 + treadle_random_below(random, 4), 0, step);
}

static bool check_quantise(uint64_t seed, kernel_on_host *blocks) {
  treadle_random random = {seed};
  const treadle_dtype dtype = (treadle_dtype)treadle_random_between(&random, TREADLE_FP32, TREADLE_INT32);
  static const int64_t sizes[] = {1, 2, 8, 31, 40, 64, 127, 128};
  const int64_t rows = sizes[treadle_random_below(&random, TEST_COUNT(sizes))];
  const int64_t columns = sizes[treadle_random_below(&random, TEST_COUNT(sizes))];
  treadle_strip strip = {.rows = rows, .columns = columns, .dtype = dtype};
  strip.values = draw_matrix(&random, source, (int64_t)treadle_dtype_bytes(dtype), rows, columns);
  strip.codes = draw_matrix(&random, made, 1, rows, columns);
  draw_values(&random, strip.values, dtype, rows, columns);
  draw_blocks(&random, &strip, made);
  clear();
  treadle_strip twin = strip;
  twin.codes = in_room(strip.codes, made, wanted);
  twin.scales = in_room(strip.scales, made, wanted);
  treadle_strip_make(&twin, TREADLE_MOVER_PLAIN);
  launch(blocks, &strip, &random);
  const bool same = memcmp(made, wanted, ROOM) == 0;
  if (!same && blocks == host_blocks) fail_case(seed, "quantise", dtype);
  return same;
}

static void check_dequantise(uint64_t seed) {
  treadle_random random = {seed};
  const treadle_dtype types[] = {TREADLE_FP32, TREADLE_BF16, TREADLE_FP16, TREADLE_INT32};
  const treadle_dtype dtype = types[treadle_random_below(&random, 4)];
  const int64_t rows = treadle_random_between(&random, 1, SIDE),
                columns = treadle_random_between(&random, 1, SIDE);
  treadle_strip strip = {.rows = rows, .columns = columns, .dtype = dtype, .back = true};
  strip.values = draw_matrix(&random, made, (int64_t)treadle_dtype_bytes(dtype), rows, columns);
  strip.codes = draw_matrix(&random, source, 1, rows, columns);
  draw_blocks(&random, &strip, source);
  for (int64_t i = 0; i < 4 * SIDE * SIDE; i++) source[i] = (char)treadle_random_next(&random);
  const float scales[] = {1, 0.001f, 0x1p-140f, 0x1p120f, INFINITY, NAN, -0.3f, 0};
  for (int64_t i = 0; i < treadle_strip_blocks(&strip); i++)
    memcpy((char *)strip.scales.into + i * strip.scales.column_stride,
           &scales[treadle_random_below(&random, TEST_COUNT(scales))], sizeof *scales);
  clear();
  treadle_strip twin = strip;
  twin.values = in_room(strip.values, made, wanted);
  treadle_strip_make(&twin, TREADLE_MOVER_PLAIN);
  launch(host_blocks, &strip, &random);
  if (memcmp(made, wanted, ROOM) != 0) fail_case(seed, "dequantise", dtype);
}

static void test_blocks(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(CASES); seed++) {
    check_quantise(only_seed ? only_seed : seed, host_blocks);
    check_dequantise(only_seed ? only_seed : seed);
  }
}

/* ---- Elements ---- */

/* A box whose elements lie in a random order of axes, in a room. */
static treadle_elements draw_elements(treadle_random *random) {
  treadle_elements e = {.tensor = treadle_random_next(random),
                        .ndim = (int)treadle_random_between(random, 1, TREADLE_MAX_AXES)};
  e.dtype = (treadle_dtype)treadle_random_between(random, TREADLE_FP32, TREADLE_INT32);
  e.add = (int8_t)treadle_random_between(random, -1, 1);
  e.near_one = treadle_random_below(random, 4) == 0;
  int64_t bytes = (int64_t)treadle_dtype_bytes(e.dtype), weight = 1;
  for (int a = e.ndim - 1; a >= 0; a--) {
    const int64_t most = treadle_random_below(random, 3) ? 4 : a == e.ndim - 1 ? 5000 : 40;
    e.size[a] = treadle_random_below(random, 50) ? treadle_random_between(random, 1, most) : 0;
    if (bytes * e.size[a] > ROOM / 3) e.size[a] = 1;
    e.stride[a] = bytes + (treadle_random_below(random, 3) ? 0 : treadle_random_below(random, 3));
    e.weight[a] = weight;
    bytes = e.stride[a] * (e.size[a] ? e.size[a] : 1);
    weight = weight * (e.size[a] ? e.size[a] : 1) + (treadle_random_below(random, 2) ? 0 : 7);
  }
  e.at = treadle_random_below(random, ROOM - bytes);
  if (treadle_random_below(random, 2)) e.at &= ~INT64_C(3);
  e.index = treadle_random_below(random, INT64_C(1) << 40);
  return e;
}

static treadle_cuda_elements elements_of(const treadle_elements *e, const char *window) {
  treadle_cuda_elements all = {.window = address_on_host(window),
                               .tensor = e->tensor,
                               .at = e->at,
                               .index = e->index,
                               .ndim = (uint8_t)e->ndim,
                               .dtype = (uint8_t)e->dtype,
                               .near_one = e->near_one,
                               .add = e->add};
  for (int a = 0; a < e->ndim; a++) {
    all.stride[a] = e->stride[a];
    all.weight[a] = e->weight[a];
    all.size[a] = e->size[a];
  }
  return all;
}

static void check_generate(uint64_t seed) {
  treadle_random random = {seed};
  const treadle_elements e = draw_elements(&random);
  const treadle_cuda_elements_args args = {.one = elements_of(&e, made), .count = 1};
  clear();
  treadle_elements_generate(&e, wanted);
  host_generate(&args, (uint32_t)treadle_random_between(&random, 1, 4), (uint32_t)seed);
  if (memcmp(made, wanted, ROOM) != 0) fail_case(seed, "generate", e.dtype);
}

static bool check_hash(uint64_t seed, kernel_on_host *hash) {
  treadle_random random = {seed};
  treadle_elements each[MANY];
  treadle_cuda_elements many[MANY];
  uint64_t sums[MANY] = {0};
  for (int i = 0; i < MANY; i++) {
    each[i] = draw_elements(&random);
    many[i] = elements_of(&each[i], source);
  }
  treadle_cuda_elements_args args = {
      .many = address_on_host(many), .sums = address_on_host(sums), .count = MANY};
  if (seed % 4 == 0)
    args = (treadle_cuda_elements_args){.one = many[0], .sums = address_on_host(sums), .count = 1};
  hash(&args, (uint32_t)treadle_random_between(&random, 1, 4), (uint32_t)seed);
  for (uint32_t i = 0; i < args.count; i++) {
    if (sums[i] == treadle_elements_hash(&each[i], source)) continue;
    if (hash == host_hash) fail_case(seed, "hash", each[i].dtype);
    return false;
  }
  return true;
}

static void test_elements(void **state) {
  (void)state;
  treadle_random random = {1};
  for (int i = 0; i < ROOM; i++) source[i] = (char)treadle_random_next(&random);
  for (uint64_t seed = 1; seed <= test_seeds(CASES); seed++) {
    check_generate(only_seed ? only_seed : seed);
    check_hash(only_seed ? only_seed : seed, host_hash);
  }
}

static void test_races(void **state) {
  (void)state;
  int wrong_blocks = 0, wrong_hashes = 0;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    wrong_blocks += !check_quantise(seed, raced_blocks);
    wrong_hashes += !check_hash(seed, raced_hash);
  }
  assert_true(wrong_blocks > 5);
  assert_true(wrong_hashes > 5);
}

int main(int count, char **words) {
  if (count > 1) only_seed = strtoull(words[1], NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks), cmocka_unit_test(test_elements),
                                     cmocka_unit_test(test_races)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* src/core/memory/quantise.c: both movers against one element at a time, values at the borders, and what the format
 * promises: the codes of a block that came from codes, the error of a value. */
/* ctest: label=kernels */
#include "memory/quantise.h"

#include "base/dtype.h"
#include "base/random.h"
#include "test.h"

#include <math.h>

enum { BLOCK = TREADLE_BLOCK_ROW_SIDE, ROOM = BLOCK * BLOCK * 8 };

static char from[ROOM], codes[ROOM], wanted_codes[ROOM], values[ROOM], wanted_values[ROOM];

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float get(treadle_matrix m, treadle_dtype dtype, int64_t row, int64_t column) {
  float value;
  treadle_dtype_convert(&value, TREADLE_FP32,
                        (const char *)m.base + row * m.row_stride + column * m.column_stride, dtype, 1);
  return value;
}

static void put(treadle_matrix m, treadle_dtype dtype, int64_t row, int64_t column, float value) {
  treadle_dtype_convert((char *)m.into + row * m.row_stride + column * m.column_stride, dtype, &value,
                        TREADLE_FP32, 1);
}

/* One element at a time, as quantise.h says. */
static float plain_quantise(treadle_matrix to, treadle_matrix source, treadle_dtype dtype, int64_t rows,
                            int64_t columns) {
  float amax = 0;
  bool nan = false, infinite = false;
  for (int64_t i = 0; i < rows * columns; i++) {
    float magnitude = fabsf(get(source, dtype, i / columns, i % columns));
    nan |= isnan(magnitude);
    infinite |= isinf(magnitude);
    if (magnitude > amax) amax = magnitude;
  }
  float scale = nan ? float_of(0x7fc00000) : amax / 448.0f;
  if (scale == 0) scale = 1;
  for (int64_t i = 0; i < rows * columns; i++) {
    float x = fminf(448, fmaxf(-448, get(source, dtype, i / columns, i % columns) / scale));
    uint8_t code = nan || infinite ? 0x7f : treadle_fp8_of_float(x);
    memcpy((char *)to.into + i / columns * to.row_stride + i % columns * to.column_stride, &code, 1);
  }
  return scale;
}

static void plain_dequantise(treadle_matrix to, treadle_dtype dtype, treadle_matrix source, float scale,
                             int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows * columns; i++) {
    volatile float x = get(source, TREADLE_FP8_E4M3, i / columns, i % columns) * scale;
    put(to, dtype, i / columns, i % columns, isnan(x) ? float_of(0x7fc00000) : x);
  }
}

typedef struct block {
  treadle_dtype dtype;
  int64_t rows, columns, gap; /* gap: elements after each row */
  bool turned;                /* the source by columns */
} block;

static treadle_matrix matrix(void *base, treadle_dtype dtype, const block *b, bool turned) {
  int64_t each = (int64_t)treadle_dtype_bytes(dtype);
  if (turned) return treadle_matrix_of(base, each, (b->rows + b->gap) * each);
  return treadle_matrix_of(base, (b->columns + b->gap) * each, each);
}

/* Quantises what lies in `from`, and back to every type, with both movers. */
static float check_block(const block *b) {
  treadle_matrix source = matrix(from, b->dtype, b, b->turned);
  float wanted = 0, scale = 0;
  for (int mover = TREADLE_MOVER_PLAIN; mover <= (int)treadle_copy_choose(); mover++) {
    memset(codes, 0x11, ROOM);
    memset(wanted_codes, 0x11, ROOM);
    treadle_matrix to = matrix(codes, TREADLE_FP8_E4M3, b, false), plain = to;
    plain.base = plain.into = wanted_codes;
    wanted = plain_quantise(plain, source, b->dtype, b->rows, b->columns);
    treadle_quantise_block(to, &scale, source, b->dtype, b->rows, b->columns, (treadle_mover)mover);
    treadle_copy_fence();
    if (bits_of(scale) != bits_of(wanted)) fail_msg("scale %a, not %a", (double)scale, (double)wanted);
    assert_memory_equal(codes, wanted_codes, ROOM);
    for (int type = TREADLE_FP32; type <= TREADLE_FP16; type++) {
      memset(values, 0x22, ROOM);
      memset(wanted_values, 0x22, ROOM);
      treadle_matrix back = matrix(values, (treadle_dtype)type, b, b->turned), right = back;
      right.base = right.into = wanted_values;
      plain_dequantise(right, (treadle_dtype)type, to, scale, b->rows, b->columns);
      treadle_dequantise_block(back, (treadle_dtype)type, to, scale, b->rows, b->columns,
                               (treadle_mover)mover);
      treadle_copy_fence();
      assert_memory_equal(values, wanted_values, ROOM);
    }
  }
  return scale;
}

static void fill(const block *b, treadle_random *random, int kind) {
  treadle_matrix source = matrix(from, b->dtype, b, b->turned);
  for (int64_t i = 0; i < b->rows * b->columns; i++) {
    uint32_t bits = (uint32_t)treadle_random_next(random);
    float value = ldexpf((float)(int32_t)bits, -31); /* -1 to 1 */
    if (kind == 1) value = ldexpf(value, (int)treadle_random_between(random, -30, 8));
    if (kind == 2) value = ldexpf(value, -140); /* subnormals */
    if (kind == 3) value = bits % 3 ? 0.0f : -0.0f;
    if (kind == 4) value = float_of(bits);                               /* anything */
    if (kind == 5) value = treadle_fp8_to_float((uint8_t)bits) * 0.001f; /* at and near the codes */
    if (kind == 6) value = (float)((int)(bits % 897) - 448);             /* ties and 448 */
    put(source, b->dtype, i / b->columns, i % b->columns, value);
  }
}

static void random_blocks(void **state) {
  (void)state;
  treadle_random random = {11};
  static const int64_t sizes[] = {1, 2, 7, 31, 32, 33, 64, 100, 127, 128};
  for (int i = 0; i < 400; i++) {
    block b = {.dtype = (treadle_dtype)(1 + i % TREADLE_FP8_E4M3),
               .turned = treadle_random_below(&random, 3) == 0};
    b.rows = sizes[treadle_random_below(&random, TEST_COUNT(sizes))];
    b.columns = sizes[treadle_random_below(&random, TEST_COUNT(sizes))];
    b.gap = treadle_random_below(&random, 2) * treadle_random_below(&random, 20);
    fill(&b, &random, i / 4 % 7);
    check_block(&b);
  }
}

/* A row of them; and of them again and again, as many as the fast loops take. */
static float check_values(const float *list, int64_t count) {
  enum { MANY = 64 };
  block b = {.dtype = TREADLE_FP32, .rows = 1, .columns = count};
  memcpy(from, list, (size_t)count * sizeof *list);
  float scale = check_block(&b);
  b.columns = MANY;
  for (int i = 0; i < MANY; i++) memcpy(from + (size_t)i * sizeof *list, &list[i % count], sizeof *list);
  assert_int_equal(bits_of(check_block(&b)), bits_of(scale));
  return scale;
}

static void borders(void **state) {
  (void)state;
  float scale = check_values((float[]){448, -448, 447.99997f, 464, 1, 0.001953125f, -0.0f, 232}, 8);
  assert_true(scale == 464.0f / 448.0f);
  scale = check_values((float[]){448, -448, 216, 217, 248, 232, 0x1p-10f, 0x1.000002p-10f}, 8);
  assert_true(scale == 1);
  assert_memory_equal(codes, "\x7e\xfe\x76\x76\x78\x76\x00\x01", 8); /* 232 is half-way, 224 even */
  scale = check_values((float[]){0, -0.0f, 0}, 3);                   /* nothing to scale */
  assert_true(scale == 1);
  assert_memory_equal(codes, "\x00\x80\x00", 3);
  scale = check_values((float[]){0x1p-149f, -0x1p-142f, 0}, 3); /* amax / 448 is 0 in fp32 */
  assert_true(scale == 1);
  assert_memory_equal(codes, "\x00\x80\x00", 3);
  scale = check_values((float[]){627 * 0x1p-149f, -600 * 0x1p-149f, 100 * 0x1p-149f}, 3); /* clamped */
  assert_true(scale == 0x1p-149f);
  assert_memory_equal(codes, "\x7e\xfe\x6c", 3);
  scale = check_values((float[]){0x1.fffffep127f, -1, 0x1p120f}, 3);
  assert_true(scale == 0x1.fffffep127f / 448.0f);
  scale = check_values((float[]){1, NAN, INFINITY}, 3);
  assert_int_equal(bits_of(scale), 0x7fc00000);
  assert_memory_equal(codes, "\x7f\x7f\x7f", 3);
  scale = check_values((float[]){1, -INFINITY, 0}, 3);
  assert_int_equal(bits_of(scale), 0x7f800000);
  assert_memory_equal(codes, "\x7f\x7f\x7f", 3);
}

/* A value comes back within half a step of the largest binade, relative to its own, or half a subnormal unit. */
static void error_is_bounded(void **state) {
  (void)state;
  treadle_random random = {13};
  block b = {.dtype = TREADLE_FP32, .rows = BLOCK, .columns = BLOCK};
  fill(&b, &random, 0);
  double scale = (double)check_block(&b);
  treadle_matrix source = matrix(from, TREADLE_FP32, &b, false),
                 to = matrix(codes, TREADLE_FP8_E4M3, &b, false);
  for (int64_t i = 0; i < BLOCK * BLOCK; i++) {
    double x = (double)get(source, TREADLE_FP32, i / BLOCK, i % BLOCK);
    double back = (double)get(to, TREADLE_FP8_E4M3, i / BLOCK, i % BLOCK) * scale;
    double bound = fmax(fabs(x) / 16, scale * 0x1p-10) * (1 + 1e-6);
    if (fabs(x - back) > bound) fail_msg("%a came back as %a", x, back);
  }
}

/* Blocks that were dequantised to fp32 and have a code of 448 give their codes again. */
static void codes_come_back(void **state) {
  (void)state;
  treadle_random random = {17};
  for (int round = 0; round < 200; round++) {
    float scale = ldexpf(1 + ldexpf((float)treadle_random_below(&random, 1 << 23), -23),
                         (int)treadle_random_between(&random, -100, 100));
    static uint8_t first[64];
    float list[64];
    for (int i = 0; i < 64; i++) {
      first[i] = (uint8_t)treadle_random_next(&random);
      if (i == 0 || (first[i] & 0x7f) == 0x7f) first[i] = 0x7e;
      list[i] = treadle_fp8_to_float(first[i]) * scale;
    }
    float again = check_values(list, 64);
    assert_true(fabsf(again / scale - 1) <= 0x1p-22f);
    assert_memory_equal(codes, first, 64);
  }
}

/* All codes with scales that a file may hold, and quantising would not make. */
static void scales_of_all_kinds(void **state) {
  (void)state;
  static const float scales[] = {0,        -0.0f, 1e-45f,   0x1p-126f, -3, 1e36f,
                                 0x1p120f, 3e38f, INFINITY, -INFINITY, NAN};
  const block b = {.dtype = TREADLE_FP32, .rows = 64, .columns = 64};
  treadle_matrix source = matrix(from, TREADLE_FP8_E4M3, &b, false);
  for (int i = 0; i < 64 * 64; i++)
    from[i] = (char)(i < 64 * 32 ? i : i % 97); /* NaN in half of the rows */
  for (size_t s = 0; s < TEST_COUNT(scales); s++)
    for (int type = TREADLE_FP32; type <= TREADLE_FP16; type++)
      for (int mover = TREADLE_MOVER_PLAIN; mover <= (int)treadle_copy_choose(); mover++) {
        treadle_matrix to = matrix(values, (treadle_dtype)type, &b, false), right = to;
        right.base = right.into = wanted_values;
        memset(values, 0x22, ROOM);
        memset(wanted_values, 0x22, ROOM);
        plain_dequantise(right, (treadle_dtype)type, source, scales[s], 64, 64);
        treadle_dequantise_block(to, (treadle_dtype)type, source, scales[s], 64, 64, (treadle_mover)mover);
        treadle_copy_fence();
        assert_memory_equal(values, wanted_values, ROOM);
      }
}

/* A strip is its blocks one by one: the first lacks columns in front, the last one at its end. Scales lie apart. */
static void check_strip(treadle_random *random, treadle_mover mover) {
  enum { STEP = 12 };
  static char scales[STEP * BLOCK], wanted_scales[STEP * BLOCK];
  treadle_strip strip = {.rows = treadle_random_between(random, 1, 20),
                         .columns = treadle_random_between(random, 1, BLOCK),
                         .width = (int32_t)treadle_random_between(random, 1, BLOCK),
                         .dtype = TREADLE_BF16};
  strip.skip = (int32_t)treadle_random_below(random, strip.width);
  strip.values = treadle_matrix_of(from, 2 * strip.columns + 6, 2);
  strip.codes = treadle_matrix_of(codes, strip.columns + 1, 1);
  strip.scales = treadle_matrix_of(scales, 0, STEP);
  memset(scales, 0x33, sizeof scales);
  memset(wanted_scales, 0x33, sizeof scales);
  memset(codes, 0x11, ROOM);
  memset(wanted_codes, 0x11, ROOM);
  memset(values, 0x22, ROOM);
  memset(wanted_values, 0x22, ROOM);
  treadle_strip_make(&strip, mover);
  strip.back = true;
  strip.values.base = strip.values.into = values;
  treadle_strip_make(&strip, mover);
  treadle_copy_fence();
  int64_t blocks = 0;
  for (int64_t first = 0, end; first < strip.columns; first = end, blocks++) {
    end = strip.width * (blocks + 1) - strip.skip;
    if (end > strip.columns) end = strip.columns;
    const treadle_matrix source = treadle_matrix_of(from + 2 * first, strip.values.row_stride, 2),
                         plain = treadle_matrix_of(wanted_codes + first, strip.codes.row_stride, 1),
                         back = treadle_matrix_of(wanted_values + 2 * first, strip.values.row_stride, 2);
    const float scale = plain_quantise(plain, source, strip.dtype, strip.rows, end - first);
    memcpy(wanted_scales + STEP * blocks, &scale, sizeof scale);
    plain_dequantise(back, strip.dtype, plain, scale, strip.rows, end - first);
  }
  assert_int_equal(treadle_strip_blocks(&strip), blocks);
  assert_memory_equal(scales, wanted_scales, sizeof scales);
  assert_memory_equal(codes, wanted_codes, ROOM);
  assert_memory_equal(values, wanted_values, ROOM);
}

static void strips(void **state) {
  (void)state;
  treadle_random random = {23};
  for (int round = 0; round < 300; round++) {
    for (int i = 0; i < 20 * (BLOCK + 3); i++) {
      const float value = ldexpf((float)(int32_t)treadle_random_next(&random), -31);
      treadle_dtype_convert(from + 2 * i, TREADLE_BF16, &value, TREADLE_FP32, 1);
    }
    check_strip(&random, round % 2 ? TREADLE_MOVER_PLAIN : treadle_copy_choose());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_blocks),       cmocka_unit_test(borders),
      cmocka_unit_test(error_is_bounded),    cmocka_unit_test(codes_come_back),
      cmocka_unit_test(scales_of_all_kinds), cmocka_unit_test(strips)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

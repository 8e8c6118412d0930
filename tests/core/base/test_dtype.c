/* src/core/base/dtype.c. Rounding is checked against a slow twin that searches: of all finite values of the
 * small type, the nearest, and of two that are equally near the one with an even last bit. */
#include "test.h"

#include "base/dtype.h"
#include "base/random.h"

#include <math.h>

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* The value of a 16-bit float from its definition; the largest exponent counts as one more binade, which is
 * where rounding to infinity happens. */
static double value_of(uint16_t bits, int exponent_bits, int fraction_bits) {
  int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  int fraction = bits & ((1 << fraction_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  double value = exponent ? ldexp(1 + ldexp(fraction, -fraction_bits), exponent - bias)
                          : ldexp(fraction, 1 - bias - fraction_bits);
  return bits & 0x8000 ? -value : value;
}

/* Positive patterns are in the order of their values: the nearest by bisection. */
static uint16_t nearest(float value, int exponent_bits, int fraction_bits) {
  int low = 0, high = ((1 << exponent_bits) - 1) << fraction_bits; /* infinity */
  double magnitude = fabs((double)value);
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (value_of((uint16_t)middle, exponent_bits, fraction_bits) <= magnitude)
      low = middle;
    else
      high = middle;
  }
  double below = magnitude - value_of((uint16_t)low, exponent_bits, fraction_bits);
  double above = value_of((uint16_t)high, exponent_bits, fraction_bits) - magnitude;
  int best = below < above || (below == above && low % 2 == 0) ? low : high;
  return (uint16_t)(best | (signbit(value) ? 0x8000 : 0));
}

static void check_rounding(uint32_t bits) {
  float value = float_of(bits);
  uint16_t bf16 = treadle_bf16_of_float(value), fp16 = treadle_fp16_of_float(value);
  if (isnan(value)) {
    if (!isnan(treadle_bf16_to_float(bf16)) || !(bf16 & 0x40))
      fail_msg("bf16 of NaN %08x: %04x", bits, bf16);
    if (!isnan(treadle_fp16_to_float(fp16)) || !(fp16 & 0x200))
      fail_msg("fp16 of NaN %08x: %04x", bits, fp16);
    return;
  }
  uint16_t want_bf16 = isinf(value) ? (value < 0 ? 0xff80 : 0x7f80) : nearest(value, 8, 7);
  uint16_t want_fp16 = isinf(value) ? (value < 0 ? 0xfc00 : 0x7c00) : nearest(value, 5, 10);
  if (bf16 != want_bf16)
    fail_msg("bf16 of %08x (%g): %04x, not %04x", bits, (double)value, bf16, want_bf16);
  if (fp16 != want_fp16)
    fail_msg("fp16 of %08x (%g): %04x, not %04x", bits, (double)value, fp16, want_fp16);
}

static void rounds_to_nearest_even(void **state) {
  (void)state;
  /* All borders of all 16-bit patterns, and what lies beside them. */
  for (uint32_t upper = 0; upper < 0x10000; upper++)
    for (uint32_t lower = 0; lower < 4; lower++) {
      static const uint32_t lowers[] = {0x0000, 0x7fff, 0x8000, 0x8001};
      check_rounding(upper << 16 | lowers[lower]);
    }
  /* The borders of fp16: half-way values and their neighbours. */
  for (uint32_t bits = 0; bits < 0x7c00; bits++) {
    double low = value_of((uint16_t)bits, 5, 10), high = value_of((uint16_t)(bits + 1), 5, 10);
    uint32_t middle = bits_of((float)((low + high) / 2));
    for (uint32_t beside = middle - 1; beside <= middle + 1; beside++) {
      check_rounding(beside);
      check_rounding(0x80000000u | beside);
    }
  }
  treadle_random random = {20251121};
  for (int i = 0; i < 300000; i++) check_rounding((uint32_t)treadle_random_next(&random));
}

static void widening_is_exact(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    float bf16 = treadle_bf16_to_float((uint16_t)bits), fp16 = treadle_fp16_to_float((uint16_t)bits);
    assert_int_equal(bits_of(bf16), bits << 16);
    if ((bits & 0x7c00) != 0x7c00 && (double)fp16 != value_of((uint16_t)bits, 5, 10))
      fail_msg("%04x", bits);
    if ((bits & 0x7fff) == 0x7c00) assert_true(isinf(fp16));
    if ((bits & 0x7fff) > 0x7c00) assert_true(isnan(fp16));
    assert_int_equal(signbit(fp16) != 0, bits >> 15);
    if (!isnan(bf16)) assert_int_equal(treadle_bf16_of_float(bf16), bits);
    if (!isnan(fp16)) assert_int_equal(treadle_fp16_of_float(fp16), bits);
  }
}

/* ---- fp8 ---- */

/* The fraction of a code, in units of 2^-9; no floating point. */
static int64_t fp8_units(int magnitude) {
  int exponent = magnitude >> 3, fraction = magnitude & 7;
  return exponent ? (int64_t)(8 + fraction) << (exponent - 1) : fraction;
}

static void fp8_codes_and_back(void **state) {
  (void)state;
  assert_int_equal(fp8_units(0x7e), 448 * 512);
  for (int code = 0; code < 256; code++) {
    float value = treadle_fp8_to_float((uint8_t)code);
    assert_int_equal(treadle_fp8_of_float(value), code);
    assert_int_equal(signbit(value) != 0, code >> 7);
    if ((code & 0x7f) == 0x7f) {
      assert_int_equal(bits_of(value) & 0x7fffffff, 0x7ff00000); /* torch's */
      continue;
    }
    if ((double)value != ldexp((double)fp8_units(code & 0x7f), -9) * (code & 0x80 ? -1 : 1))
      fail_msg("%02x: %g", code, (double)value);
    /* Through bf16 and fp16 as well: they hold every value. */
    assert_int_equal(treadle_fp8_of_float(treadle_bf16_to_float(treadle_bf16_of_float(value))), code);
    assert_int_equal(treadle_fp8_of_float(treadle_fp16_to_float(treadle_fp16_of_float(value))), code);
  }
}

/* By whole numbers: from 2^-14 to 464 an fp32 is a whole number of units of 2^-37, below 2^46, and a code is one
 * too. What is smaller rounds to zero. */
static int fp8_reference(float value) {
  int sign = signbit(value) ? 0x80 : 0;
  double magnitude = fabs((double)value);
  if (isnan(value) || magnitude > 464) return sign | 0x7f;
  if (magnitude < 0x1p-14) return sign;
  int64_t units = (int64_t)ldexp(magnitude, 37), best = INT64_MAX; /* exact */
  int found = 0;
  for (int code = 0; code < 0x7f; code++) {
    int64_t distance = llabs((fp8_units(code) << 28) - units);
    if (distance > best || (distance == best && code % 2)) continue;
    best = distance;
    found = code;
  }
  return sign | found;
}

static void check_fp8(uint32_t bits) {
  float value = float_of(bits);
  int code = treadle_fp8_of_float(value), wanted = fp8_reference(value);
  if (code != wanted) fail_msg("fp8 of %08x (%g): %02x, not %02x", bits, (double)value, code, wanted);
}

static void fp8_rounds_to_nearest_even(void **state) {
  (void)state;
  for (uint32_t upper = 0; upper < 0x10000; upper++) check_fp8(upper << 16); /* all of bf16 */
  for (uint32_t code = 0; code < 0x7f; code++) { /* half-way values and their neighbours, 464 among them */
    double low = ldexp((double)fp8_units((int)code), -9);
    double high = code == 0x7e ? 480 : ldexp((double)fp8_units((int)code + 1), -9);
    uint32_t middle = bits_of((float)((low + high) / 2));
    int even = (int)(code % 2 ? code + 1 : code);
    assert_int_equal(treadle_fp8_of_float(float_of(middle)), even);
    assert_int_equal(treadle_fp8_of_float(float_of(middle - 1)), code);
    assert_int_equal(treadle_fp8_of_float(float_of(middle + 1)), code + 1); /* above 464: NaN */
    assert_int_equal(treadle_fp8_of_float(-float_of(middle)), 0x80 | even);
  }
  static const uint32_t all[] = {0x7f800000, 0xff800000, 0x7f800001, 0xffffffff, 0x43f00000, 0x43e00000, 1};
  for (size_t i = 0; i < TEST_COUNT(all); i++) check_fp8(all[i]);
  treadle_random random = {8};
  for (int i = 0; i < 200000; i++) check_fp8((uint32_t)treadle_random_next(&random));
  for (int i = 0; i < 200000; i++) /* 2^-15 to 2^10 */
    check_fp8((uint32_t)treadle_random_between(&random, 0x38000000, 0x44800000));
}

/* ---- Runs ---- */

static float decode(treadle_dtype dtype, const unsigned char *at) {
  float value;
  uint16_t half;
  memcpy(&value, at, sizeof value);
  memcpy(&half, at, sizeof half);
  return dtype == TREADLE_FP32   ? value
         : dtype == TREADLE_BF16 ? treadle_bf16_to_float(half)
         : dtype == TREADLE_FP16 ? treadle_fp16_to_float(half)
                                 : treadle_fp8_to_float(*at);
}

static void encode(treadle_dtype dtype, float value, unsigned char *at) {
  uint16_t half = dtype == TREADLE_BF16 ? treadle_bf16_of_float(value) : treadle_fp16_of_float(value);
  if (dtype == TREADLE_FP8_E4M3)
    *at = treadle_fp8_of_float(value);
  else
    memcpy(at, dtype == TREADLE_FP32 ? (void *)&value : (void *)&half, treadle_dtype_bytes(dtype));
}

/* Runs of every pair, from and to odd addresses, against one element at a time. */
static void runs_equal_elements(void **state) {
  (void)state;
  enum { COUNT = 1003, TYPES = TREADLE_FP8_E4M3 };
  static unsigned char from[COUNT * 4 + 4], to[COUNT * 4 + 2];
  treadle_random random = {3};
  for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)treadle_random_next(&random);
  for (int pair = 0; pair < TYPES * TYPES * 3; pair++) {
    treadle_dtype a = (treadle_dtype)(1 + pair % TYPES), b = (treadle_dtype)(1 + pair / TYPES % TYPES);
    int add = pair / TYPES / TYPES - 1;
    size_t wide = treadle_dtype_bytes(a), out = treadle_dtype_bytes(b);
    memset(to, 0xee, sizeof to);
    if (add)
      treadle_dtype_convert_add(to + 1, b, from + 1, a, add, COUNT);
    else
      treadle_dtype_convert(to + 1, b, from + 1, a, COUNT);
    assert_int_equal(to[0], 0xee);
    assert_int_equal(to[1 + COUNT * out], 0xee);
    for (size_t i = 0; i < COUNT; i++) {
      unsigned char one[4];
      float value = decode(a, from + 1 + i * wide);
      volatile float sum =
          value + (float)add; /* no sum where nothing is added: it would change a signalling NaN */
      encode(b, add ? sum : value, one);
      if (a == b && !add) memcpy(one, from + 1 + i * wide, out);
      if (memcmp(one, to + 1 + i * out, out)) fail_msg("element %zu of %d to %d, %+d", i, a, b, add);
    }
  }
  treadle_dtype_convert(NULL, TREADLE_FP32, NULL, TREADLE_BF16, 0);
}

static void names(void **state) {
  (void)state;
  static const struct {
    const char *text;
    treadle_dtype dtype;
  } good[] = {{"fp32", TREADLE_FP32},        {"float32", TREADLE_FP32},
              {"F32", TREADLE_FP32},         {"torch.float32", TREADLE_FP32},
              {"bf16", TREADLE_BF16},        {"bfloat16", TREADLE_BF16},
              {"BF16", TREADLE_BF16},        {"torch.bfloat16", TREADLE_BF16},
              {"float16", TREADLE_FP16},     {"F16", TREADLE_FP16},
              {"torch.half", TREADLE_FP16},  {"fp16", TREADLE_FP16},
              {"fp8", TREADLE_FP8_E4M3},     {"float8_e4m3fn", TREADLE_FP8_E4M3},
              {"F8_E4M3", TREADLE_FP8_E4M3}, {"torch.float8_e4m3fn", TREADLE_FP8_E4M3}};
  static const char *const bad[] = {"",      "F64",  "none",    "torch.",      "int8",
                                    "bf16 ", "Bf16", "F8_E5M2", "float8_e5m2", "e4m3"};
  for (size_t i = 0; i < TEST_COUNT(good); i++) {
    treadle_dtype dtype = TREADLE_DTYPE_NONE;
    assert_true(treadle_dtype_parse(good[i].text, &dtype));
    assert_int_equal(dtype, good[i].dtype);
  }
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    treadle_dtype dtype = TREADLE_BF16;
    assert_false(treadle_dtype_parse(bad[i], &dtype));
    assert_int_equal(dtype, TREADLE_BF16);
  }
  assert_string_equal(treadle_dtype_name(TREADLE_BF16), "bf16");
  assert_string_equal(treadle_dtype_safetensors(TREADLE_FP16), "F16");
  assert_true(treadle_dtype_lossless(TREADLE_BF16, TREADLE_FP32));
  assert_true(treadle_dtype_lossless(TREADLE_BF16, TREADLE_BF16));
  assert_false(treadle_dtype_lossless(TREADLE_BF16, TREADLE_FP16));
  assert_false(treadle_dtype_lossless(TREADLE_FP32, TREADLE_BF16));
  assert_string_equal(treadle_dtype_name(TREADLE_FP8_E4M3), "fp8");
  assert_string_equal(treadle_dtype_safetensors(TREADLE_FP8_E4M3), "F8_E4M3");
  assert_int_equal(treadle_dtype_bytes(TREADLE_FP8_E4M3), 1);
  assert_int_equal(treadle_dtype_narrower_bytes(TREADLE_BF16, TREADLE_FP8_E4M3), 1);
  for (int type = TREADLE_FP32; type <= TREADLE_FP8_E4M3; type++) {
    assert_true(treadle_dtype_lossless(TREADLE_FP8_E4M3, (treadle_dtype)type));
    assert_int_equal(treadle_dtype_lossless((treadle_dtype)type, TREADLE_FP8_E4M3),
                     type == TREADLE_FP8_E4M3);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounds_to_nearest_even), cmocka_unit_test(widening_is_exact),
      cmocka_unit_test(fp8_codes_and_back),     cmocka_unit_test(fp8_rounds_to_nearest_even),
      cmocka_unit_test(runs_equal_elements),    cmocka_unit_test(names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A block is read twice, the second time from the cache; nothing is kept between. Rows that are whole lines go past the
 * cache when they are written. One function for each type, made of the same loop by the compiler. */
#include "memory/quantise_fast.h"

#include "memory/cast.h"

#if defined(__x86_64__)

#include "memory/vector.h"

enum { STEP = TREADLE_VECTOR, LINE = 64 };

bool treadle_quantise_fast_takes(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                 int64_t columns) {
  bool has_loop = dtype == TREADLE_FP32 || dtype == TREADLE_BF16 || dtype == TREADLE_FP16;
  return has_loop && columns % STEP == 0 && codes.column_stride == 1 &&
         values.column_stride == (int64_t)treadle_vector_bytes(dtype) && treadle_cast_supported();
}

static bool whole_lines(treadle_matrix to, int64_t row_bytes) {
  return ((uintptr_t)to.into % LINE | (uint64_t)to.row_stride % LINE | (uint64_t)row_bytes % LINE) == 0;
}

/* ---- The loops ---- */

/* The largest magnitude of 32 values, lane by lane, and of those before. The bits of magnitudes are in the order of their
 * values, NaN last; bf16 is measured as it is. */
TREADLE_VECTOR_PART __m256i larger(treadle_dtype dtype, __m256i most, const char *from) {
  if (dtype == TREADLE_BF16) {
    const __m256i magnitude = _mm256_set1_epi16(0x7fff);
    __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)from);
    __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(from + 32));
    most = _mm256_max_epi16(most, _mm256_and_si256(low, magnitude));
    return _mm256_max_epi16(most, _mm256_and_si256(high, magnitude));
  }
  __m256 value[4];
  treadle_vector_decode(dtype, value, from);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    most = _mm256_max_epi32(most,
                            _mm256_and_si256(_mm256_castps_si256(value[i]), _mm256_set1_epi32(0x7fffffff)));
  return most;
}

TREADLE_VECTOR_PART uint32_t largest(treadle_dtype dtype, treadle_matrix values, int64_t rows,
                                     int64_t columns) {
  int64_t each = (int64_t)treadle_vector_bytes(dtype);
  __m256i most = _mm256_setzero_si256();
  for (int64_t row = 0; row < rows; row++) {
    const char *from = treadle_matrix_row(values, row);
    treadle_matrix_prefetch(values, row, rows, columns * each);
    for (int64_t column = 0; column < columns; column += STEP)
      most = larger(dtype, most, from + column * each);
  }
  uint32_t lanes[8], found = 0;
  _mm256_storeu_si256((__m256i *)(void *)lanes, most);
  for (int i = 0; i < 8; i++) {
    uint32_t lane = lanes[i];
    if (dtype == TREADLE_BF16) lane = (lane >> 16 > (lane & 0xffff) ? lane >> 16 : lane & 0xffff) << 16;
    found = lane > found ? lane : found;
  }
  return found;
}

TREADLE_VECTOR_PART void encode(treadle_dtype dtype, treadle_matrix codes, treadle_matrix values,
                                int64_t rows, int64_t columns, float scale) {
  int64_t each = (int64_t)treadle_vector_bytes(dtype);
  const __m256 by = _mm256_set1_ps(scale);
  bool stream = whole_lines(codes, columns);
  for (int64_t row = 0; row < rows; row++) {
    char *to = treadle_matrix_into(codes, row);
    const char *from = treadle_matrix_row(values, row);
    for (int64_t column = 0; column < columns; column += STEP) {
      __m256 value[4];
      treadle_vector_decode(dtype, value, from + column * each);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) value[i] = _mm256_div_ps(value[i], by);
      treadle_vector_encode(TREADLE_FP8_E4M3, to + column, value, true, stream);
    }
  }
}

/* 32 codes times scale, by way of fp16, which is the value over 256: by is 256 * scale. */
TREADLE_VECTOR_PART void values_of(__m256 value[4], __m256i codes, __m256 by) {
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    __m256i fp16 =
        treadle_vector_widen_fp8(i ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes));
    value[2 * i] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(fp16)), by);
    value[2 * i + 1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(fp16, 1)), by);
  }
}

TREADLE_VECTOR_PART bool has_nan(__m256i codes) {
  const __m256i nan = _mm256_set1_epi8(0x7f);
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(codes, nan), nan)) != 0;
}

/* scale * 256 is finite, so that no value is NaN but those whose code is. */
TREADLE_VECTOR_PART void decode(treadle_dtype dtype, treadle_matrix values, treadle_matrix codes,
                                int64_t rows, int64_t columns, float scale) {
  int64_t each = (int64_t)treadle_vector_bytes(dtype);
  const __m256 by = _mm256_set1_ps(scale * 256), nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  bool stream = whole_lines(values, columns * each);
  for (int64_t row = 0; row < rows; row++) {
    char *to = treadle_matrix_into(values, row);
    const char *from = treadle_matrix_row(codes, row);
    treadle_matrix_prefetch(codes, row, rows, columns);
    for (int64_t column = 0; column < columns; column += STEP) {
      __m256 value[4];
      __m256i some = _mm256_loadu_si256((const __m256i *)(const void *)(from + column));
      if (!has_nan(some)) {
        values_of(value, some, by);
        treadle_vector_encode(dtype, to + column * each, value, true, stream);
        continue;
      }
      treadle_vector_decode(TREADLE_FP8_E4M3, value, from + column);
      for (int i = 0; i < 4; i++) {
        value[i] = _mm256_mul_ps(value[i], _mm256_set1_ps(scale));
        value[i] = _mm256_blendv_ps(value[i], nan, _mm256_cmp_ps(value[i], value[i], _CMP_UNORD_Q));
      }
      treadle_vector_encode(dtype, to + column * each, value, false, stream);
    }
  }
}

/* ---- One of each for each type ---- */

#define LOOPS(name, dtype)                                                                                 \
  TREADLE_VECTOR_CODE static uint32_t name##_largest(treadle_matrix values, int64_t rows,                  \
                                                     int64_t columns) {                                    \
    return largest(dtype, values, rows, columns);                                                          \
  }                                                                                                        \
  TREADLE_VECTOR_CODE static void name##_encode(treadle_matrix codes, treadle_matrix values, int64_t rows, \
                                                int64_t columns, float scale) {                            \
    encode(dtype, codes, values, rows, columns, scale);                                                    \
  }                                                                                                        \
  TREADLE_VECTOR_CODE static void name##_decode(treadle_matrix values, treadle_matrix codes, int64_t rows, \
                                                int64_t columns, float scale) {                            \
    decode(dtype, values, codes, rows, columns, scale);                                                    \
  }
LOOPS(fp32, TREADLE_FP32)
LOOPS(bf16, TREADLE_BF16)
LOOPS(fp16, TREADLE_FP16)

uint32_t treadle_quantise_fast_largest(treadle_matrix values, treadle_dtype dtype, int64_t rows,
                                       int64_t columns) {
  return (dtype == TREADLE_FP32   ? fp32_largest
          : dtype == TREADLE_BF16 ? bf16_largest
                                  : fp16_largest)(values, rows, columns);
}

void treadle_quantise_fast_encode(treadle_matrix codes, treadle_matrix values, treadle_dtype dtype,
                                  int64_t rows, int64_t columns, float scale) {
  (dtype == TREADLE_FP32   ? fp32_encode
   : dtype == TREADLE_BF16 ? bf16_encode
                           : fp16_encode)(codes, values, rows, columns, scale);
}

void treadle_quantise_fast_decode(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                  int64_t rows, int64_t columns, float scale) {
  (dtype == TREADLE_FP32   ? fp32_decode
   : dtype == TREADLE_BF16 ? bf16_decode
                           : fp16_decode)(values, codes, rows, columns, scale);
}

#else

bool treadle_quantise_fast_takes(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                 int64_t columns) {
  (void)values, (void)dtype, (void)codes, (void)columns;
  return false;
}
uint32_t treadle_quantise_fast_largest(treadle_matrix values, treadle_dtype dtype, int64_t rows,
                                       int64_t columns) {
  (void)values, (void)dtype, (void)rows, (void)columns;
  return 0;
}
void treadle_quantise_fast_encode(treadle_matrix codes, treadle_matrix values, treadle_dtype dtype,
                                  int64_t rows, int64_t columns, float scale) {
  (void)codes, (void)values, (void)dtype, (void)rows, (void)columns, (void)scale;
}
void treadle_quantise_fast_decode(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                  int64_t rows, int64_t columns, float scale) {
  (void)values, (void)dtype, (void)codes, (void)rows, (void)columns, (void)scale;
}

#endif

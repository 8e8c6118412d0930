/* A block is read twice, the second time from the cache; nothing is kept between. Rows that are whole lines go past the
 * cache when they are written. One function for each type, made of the same loop by the compiler. */
#include "memory/quantise_fast.h"

#include "memory/cast.h"

#if defined(__x86_64__)

#include "memory/vector.h"

enum { STEP = TREADLE_VECTOR, LINE = 64, AHEAD = 12 /* rows */ };

bool treadle_quantise_fast_takes(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                 int64_t columns) {
  bool has_loop = dtype == TREADLE_FP32 || dtype == TREADLE_BF16 || dtype == TREADLE_FP16;
  return has_loop && columns % STEP == 0 && codes.column_stride == 1 &&
         values.column_stride == (int64_t)treadle_vector_bytes(dtype) && treadle_cast_supported();
}

TREADLE_VECTOR_PART char *row_of(treadle_matrix matrix, int64_t row) {
  return (char *)matrix.base + row * matrix.row_stride;
}

/* Rows of a block are far apart: the processor's own prefetch knows nothing of the next. */
TREADLE_VECTOR_PART void prefetch_row(treadle_matrix matrix, int64_t row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += LINE) _mm_prefetch(row_of(matrix, row) + at, _MM_HINT_T0);
}

static bool whole_lines(treadle_matrix to, int64_t row_bytes) {
  return ((uintptr_t)to.base % LINE | (uint64_t)to.row_stride % LINE | (uint64_t)row_bytes % LINE) == 0;
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
    const char *from = row_of(values, row);
    if (row + AHEAD < rows) prefetch_row(values, row + AHEAD, columns * each);
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

/* Codes of 8 values, and 121 * 8 more in each. To add 2^20 times a power of two to a value of its octave leaves, in the
 * lowest bits of the sum, how many eighths of that power it has, to the nearest, ties to even; below 2^-6, where codes are
 * subnormal, it is the power of that octave. */
TREADLE_VECTOR_PART __m256i eighths(__m256 value) {
  __m256 magnitude = _mm256_and_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
  magnitude = _mm256_min_ps(magnitude, _mm256_set1_ps(448.0f));
  __m256i octave = _mm256_max_epi32(_mm256_castps_si256(magnitude), _mm256_set1_epi32((127 - 6) << 23));
  octave = _mm256_and_si256(octave, _mm256_set1_epi32(0x7f800000));
  __m256i unit = _mm256_add_epi32(octave, _mm256_set1_epi32(20 << 23));
  __m256i sum = _mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_castsi256_ps(unit)));
  return _mm256_add_epi32(_mm256_sub_epi32(sum, unit), _mm256_srli_epi32(octave, 20));
}

/* Codes of 32 values, none of them NaN. */
TREADLE_VECTOR_PART __m256i codes_of(const __m256 value[4]) {
  const __m256i more = _mm256_set1_epi16(121 * 8);
  __m256i ab = _mm256_packus_epi32(eighths(value[0]), eighths(value[1]));
  __m256i cd = _mm256_packus_epi32(eighths(value[2]), eighths(value[3]));
  __m256i made = _mm256_packus_epi16(_mm256_sub_epi16(ab, more), _mm256_sub_epi16(cd, more));
  ab = _mm256_packs_epi32(_mm256_castps_si256(value[0]), _mm256_castps_si256(value[1]));
  cd = _mm256_packs_epi32(_mm256_castps_si256(value[2]), _mm256_castps_si256(value[3]));
  __m256i sign = _mm256_and_si256(_mm256_packs_epi16(ab, cd), _mm256_set1_epi8((char)0x80));
  __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* packing goes by halves of registers */
  return _mm256_permutevar8x32_epi32(_mm256_or_si256(made, sign), order);
}

TREADLE_VECTOR_PART void encode(treadle_dtype dtype, treadle_matrix codes, treadle_matrix values,
                                int64_t rows, int64_t columns, float scale) {
  int64_t each = (int64_t)treadle_vector_bytes(dtype);
  const __m256 by = _mm256_set1_ps(scale);
  bool stream = whole_lines(codes, columns);
  for (int64_t row = 0; row < rows; row++) {
    char *to = row_of(codes, row);
    const char *from = row_of(values, row);
    for (int64_t column = 0; column < columns; column += STEP) {
      __m256 value[4];
      treadle_vector_decode(dtype, value, from + column * each);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) value[i] = _mm256_div_ps(value[i], by);
      treadle_vector_store(to + column, codes_of(value), stream);
    }
  }
}

/* 32 codes times scale / 256, by way of fp16 (vector.h), whose exponent counts from 8 more. */
TREADLE_VECTOR_PART void values_of(__m256 value[4], __m256i codes, __m256 by) {
  const __m256i all_but_14 = _mm256_set1_epi16((short)0xbfff);
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    __m256i wide =
        _mm256_cvtepi8_epi16(i ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes));
    __m256i fp16 = _mm256_and_si256(_mm256_slli_epi16(wide, 7), all_but_14);
    value[2 * i] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(fp16)), by);
    value[2 * i + 1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(fp16, 1)), by);
  }
}

TREADLE_VECTOR_PART bool has_nan(__m256i codes) {
  const __m256i nan = _mm256_set1_epi8(0x7f);
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(codes, nan), nan)) != 0;
}

/* 32 values that are not NaN, to the nearest, ties to even. */
TREADLE_VECTOR_PART void store_bf16(char *to, const __m256 value[4], bool stream) {
  __m256i upper[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m256i bits = _mm256_castps_si256(value[i]);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    upper[i] = _mm256_srli_epi32(bits, 16);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    __m256i both = _mm256_packus_epi32(upper[i], upper[i + 1]);
    treadle_vector_store(to + 16 * i, _mm256_permute4x64_epi64(both, 0xd8), stream);
  }
}

/* scale * 256 is finite, so that no value is NaN but those whose code is. */
TREADLE_VECTOR_PART void decode(treadle_dtype dtype, treadle_matrix values, treadle_matrix codes,
                                int64_t rows, int64_t columns, float scale) {
  int64_t each = (int64_t)treadle_vector_bytes(dtype);
  const __m256 by = _mm256_set1_ps(scale * 256), nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  bool stream = whole_lines(values, columns * each);
  for (int64_t row = 0; row < rows; row++) {
    char *to = row_of(values, row);
    const char *from = row_of(codes, row);
    if (row + AHEAD < rows) prefetch_row(codes, row + AHEAD, columns);
    for (int64_t column = 0; column < columns; column += STEP) {
      __m256 value[4];
      __m256i some = _mm256_loadu_si256((const __m256i *)(const void *)(from + column));
      values_of(value, some, by);
      bool nans = has_nan(some);
      if (nans) {
        treadle_vector_decode(TREADLE_FP8_E4M3, value, from + column);
        for (int i = 0; i < 4; i++) {
          value[i] = _mm256_mul_ps(value[i], _mm256_set1_ps(scale));
          value[i] = _mm256_blendv_ps(value[i], nan, _mm256_cmp_ps(value[i], value[i], _CMP_UNORD_Q));
        }
      }
      if (dtype == TREADLE_BF16 && !nans)
        store_bf16(to + column * each, value, stream);
      else
        treadle_vector_encode(dtype, to + column * each, value, stream);
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

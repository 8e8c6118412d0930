/* 32 values at a time between memory and fp32 in four registers: what casts (cast.c) and blocks (quantise_fast.c) are made
 * of. AVX2 and F16C; types are constants where these are called, so that the compiler makes one loop for each. */
#ifndef TREADLE_MEMORY_VECTOR_H
#define TREADLE_MEMORY_VECTOR_H

#include "base/dtype.h"

#include <immintrin.h>
#include <stdbool.h>

enum { TREADLE_VECTOR = 32 /* values */ };

#define TREADLE_VECTOR_CODE __attribute__((target("avx2,f16c")))
#define TREADLE_VECTOR_PART TREADLE_VECTOR_CODE static inline __attribute__((always_inline))

static inline size_t treadle_vector_bytes(treadle_dtype dtype) {
  return dtype == TREADLE_FP32 || dtype == TREADLE_INT32 ? 4 : dtype == TREADLE_FP8_E4M3 ? 1 : 2;
}

TREADLE_VECTOR_PART __m128i treadle_vector_load_16(const char *from) {
  return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* ---- Decoding: 8 values of fp32 in each of four registers ---- */

/* e4m3 as the upper bits of fp16, whose exponent counts from 8 more: the value over 256. That makes subnormals right,
 * and 480 / 256 of NaN. */
TREADLE_VECTOR_PART __m256i treadle_vector_widen_fp8(__m128i codes) {
  __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7); /* the sign in bits 15 and 14 */
  return _mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff));
}

TREADLE_VECTOR_PART __m256 treadle_vector_decode_fp8(__m128i fp16) {
  __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(fp16), _mm256_set1_ps(256.0f));
  __m256i bits = _mm256_castps_si256(value),
          magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x43f00000));
  return _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi32(0x7ff00000))));
}

TREADLE_VECTOR_PART void treadle_vector_decode(treadle_dtype dtype, __m256 value[4], const char *from) {
  if (dtype == TREADLE_FP8_E4M3) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      __m256i fp16 = treadle_vector_widen_fp8(treadle_vector_load_16(from + 16 * i));
      value[2 * i] = treadle_vector_decode_fp8(_mm256_castsi256_si128(fp16));
      value[2 * i + 1] = treadle_vector_decode_fp8(_mm256_extracti128_si256(fp16, 1));
    }
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    if (dtype == TREADLE_FP32)
      value[i] = _mm256_loadu_ps((const float *)(const void *)(from + 32 * i));
    else if (dtype == TREADLE_FP16)
      value[i] = _mm256_cvtph_ps(treadle_vector_load_16(from + 16 * i));
    else
      value[i] = _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_cvtepu16_epi32(treadle_vector_load_16(from + 16 * i)), 16));
  }
}

/* ---- Encoding: the arithmetic of base/dtype.c. numbers: no value is NaN, and for fp8 what is above 448 becomes 448 ---- */

/* In the lower bits of each 32. */
TREADLE_VECTOR_PART __m256i treadle_vector_encode_bf16(__m256 value, bool numbers) {
  __m256i bits = _mm256_castps_si256(value), upper = _mm256_srli_epi32(bits, 16);
  __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  rounded = _mm256_srli_epi32(rounded, 16);
  if (numbers) return rounded;
  __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
}

TREADLE_VECTOR_PART __m256 treadle_vector_magnitude(__m256 value) {
  return _mm256_and_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

/* Codes of magnitudes up to 448, which larger ones are taken for, and 121 * 8 more in each. To add 2^20 times a power of
 * two to a value of its octave leaves, in the lowest bits of the sum, how many eighths of that power it has, to the
 * nearest, ties to even; below 2^-6, where codes are subnormal, it is the power of that octave. */
TREADLE_VECTOR_PART __m256i treadle_vector_eighths(__m256 value) {
  __m256 magnitude = _mm256_min_ps(treadle_vector_magnitude(value), _mm256_set1_ps(448.0f));
  __m256i octave = _mm256_max_epi32(_mm256_castps_si256(magnitude), _mm256_set1_epi32((127 - 6) << 23));
  octave = _mm256_and_si256(octave, _mm256_set1_epi32(0x7f800000));
  __m256i unit = _mm256_add_epi32(octave, _mm256_set1_epi32(20 << 23));
  __m256i sum = _mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_castsi256_ps(unit)));
  return _mm256_add_epi32(_mm256_sub_epi32(sum, unit), _mm256_srli_epi32(octave, 20));
}

/* All ones where a value has no code: above 464, infinite, or NaN. */
TREADLE_VECTOR_PART __m256i treadle_vector_over_fp8(__m256 value) {
  return _mm256_cmpgt_epi32(_mm256_castps_si256(treadle_vector_magnitude(value)),
                            _mm256_set1_epi32(0x43e80000));
}

/* 32 words of 32 bits become bytes, signed and saturated; packing goes by halves of registers. */
TREADLE_VECTOR_PART __m256i treadle_vector_bytes_of(__m256i a, __m256i b, __m256i c, __m256i d) {
  return _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
}

TREADLE_VECTOR_PART __m256i treadle_vector_encode_fp8(const __m256 v[4], bool numbers) {
  const __m256i more = _mm256_set1_epi16(121 * 8);
  __m256i ab = _mm256_packus_epi32(treadle_vector_eighths(v[0]), treadle_vector_eighths(v[1]));
  __m256i cd = _mm256_packus_epi32(treadle_vector_eighths(v[2]), treadle_vector_eighths(v[3]));
  __m256i made = _mm256_packus_epi16(_mm256_sub_epi16(ab, more), _mm256_sub_epi16(cd, more));
  if (!numbers) {
    __m256i over = treadle_vector_bytes_of(treadle_vector_over_fp8(v[0]), treadle_vector_over_fp8(v[1]),
                                           treadle_vector_over_fp8(v[2]), treadle_vector_over_fp8(v[3]));
    made = _mm256_blendv_epi8(made, _mm256_set1_epi8(0x7f), over);
  }
  __m256i sign = treadle_vector_bytes_of(_mm256_castps_si256(v[0]), _mm256_castps_si256(v[1]),
                                         _mm256_castps_si256(v[2]), _mm256_castps_si256(v[3]));
  made = _mm256_or_si256(made, _mm256_and_si256(sign, _mm256_set1_epi8((char)0x80)));
  return _mm256_permutevar8x32_epi32(made, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

TREADLE_VECTOR_PART void treadle_vector_store(char *to, __m256i value, bool stream) {
  if (stream)
    _mm256_stream_si256((__m256i *)(void *)to, value);
  else
    _mm256_storeu_si256((__m256i *)(void *)to, value);
}

TREADLE_VECTOR_PART void treadle_vector_encode(treadle_dtype dtype, char *to, const __m256 value[4],
                                               bool numbers, bool stream) {
  if (dtype == TREADLE_FP8_E4M3) {
    treadle_vector_store(to, treadle_vector_encode_fp8(value, numbers), stream);
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    if (dtype == TREADLE_FP32) treadle_vector_store(to + 32 * i, _mm256_castps_si256(value[i]), stream);
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    if (dtype == TREADLE_FP16) {
      enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
      __m128i low = _mm256_cvtps_ph(value[i], NEAREST), high = _mm256_cvtps_ph(value[i + 1], NEAREST);
      treadle_vector_store(to + 16 * i, _mm256_set_m128i(high, low), stream);
    } else if (dtype == TREADLE_BF16) {
      __m256i both = _mm256_packus_epi32(treadle_vector_encode_bf16(value[i], numbers),
                                         treadle_vector_encode_bf16(value[i + 1], numbers));
      treadle_vector_store(to + 16 * i, _mm256_permute4x64_epi64(both, 0xd8), stream);
    }
  }
}

#endif

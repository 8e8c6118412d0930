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
  return dtype == TREADLE_FP32 ? 4 : dtype == TREADLE_FP8_E4M3 ? 1 : 2;
}

TREADLE_VECTOR_PART __m128i treadle_vector_load_16(const char *from) {
  return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* ---- Decoding: 8 values of fp32 in each of four registers ---- */

/* e4m3 as the upper bits of fp16, whose exponent counts from 8 more, is the value over 256. That makes subnormals
 * right, and 480 of NaN, which is put right afterwards. */
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
      __m256i code = _mm256_cvtepu8_epi16(treadle_vector_load_16(from + 16 * i));
      __m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x80)), 8);
      __m256i rest = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), 7);
      __m256i fp16 = _mm256_or_si256(sign, rest);
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

/* ---- Encoding: the code in the lower bits of each 32; the arithmetic of base/dtype.c ---- */

TREADLE_VECTOR_PART __m256i treadle_vector_encode_bf16(__m256 value) {
  __m256i bits = _mm256_castps_si256(value), upper = _mm256_srli_epi32(bits, 16);
  __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), quiet, _mm256_castps_si256(nan));
}

TREADLE_VECTOR_PART __m256i treadle_vector_encode_fp8(__m256 value) {
  __m256i bits = _mm256_castps_si256(value),
          magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
  __m256i moved = _mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7ffff - (120 << 23)));
  __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(moved, odd), 20);
  __m256 unit = _mm256_set1_ps(0x1p14f);
  __m256i small = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), unit));
  small = _mm256_sub_epi32(small, _mm256_castps_si256(unit));
  __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), magnitude);
  __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x43e80000));
  __m256i made =
      _mm256_blendv_epi8(_mm256_blendv_epi8(normal, small, is_small), _mm256_set1_epi32(0x7f), is_nan);
  return _mm256_or_si256(made, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}

TREADLE_VECTOR_PART void treadle_vector_store(char *to, __m256i value, bool stream) {
  if (stream)
    _mm256_stream_si256((__m256i *)(void *)to, value);
  else
    _mm256_storeu_si256((__m256i *)(void *)to, value);
}

TREADLE_VECTOR_PART void treadle_vector_encode(treadle_dtype dtype, char *to, const __m256 value[4],
                                               bool stream) {
  if (dtype == TREADLE_FP8_E4M3) {
    __m256i ab =
        _mm256_packus_epi32(treadle_vector_encode_fp8(value[0]), treadle_vector_encode_fp8(value[1]));
    __m256i cd =
        _mm256_packus_epi32(treadle_vector_encode_fp8(value[2]), treadle_vector_encode_fp8(value[3]));
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* packing goes by halves of registers */
    treadle_vector_store(to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order), stream);
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
      __m256i both = _mm256_packus_epi32(treadle_vector_encode_bf16(value[i]),
                                         treadle_vector_encode_bf16(value[i + 1]));
      treadle_vector_store(to + 16 * i, _mm256_permute4x64_epi64(both, 0xd8), stream);
    }
  }
}

#endif

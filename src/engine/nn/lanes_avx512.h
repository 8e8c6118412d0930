/* Lanes (nn/lanes.h) as one register of AVX-512. */
#ifndef TREADLE_NN_LANES_AVX512_H
#define TREADLE_NN_LANES_AVX512_H

#include "base/processor.h"
#include "nn/lanes.h"

#include <immintrin.h>
#include <stdbool.h>

#define LANES_CODE     __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES_PART     LANES_CODE static inline __attribute__((always_inline))
#define LANES_UNROLLED LANES_UNROLL
#define LANES_KEPT     16

static inline bool lanes_supported(void) { return treadle_processor_has(TREADLE_PROCESSOR_AVX512); }

typedef __m512 lanes;

LANES_PART __mmask16 lanes_first(int count) { return (__mmask16)((1u << count) - 1); }

LANES_PART lanes lanes_all(float x) { return _mm512_set1_ps(x); }
LANES_PART lanes lanes_load(const float *from) { return _mm512_loadu_ps(from); }
LANES_PART lanes lanes_pin(lanes x) {
  __asm__("" : "+v"(x));
  return x;
}

LANES_PART lanes lanes_load_part(const float *from, int count) {
  return _mm512_maskz_loadu_ps(lanes_first(count), from);
}

LANES_PART lanes lanes_widen(__m256i bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

LANES_PART lanes lanes_load_bf16(const uint16_t *from) {
  return lanes_widen(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

LANES_PART lanes lanes_load_bf16_part(const uint16_t *from, int count) {
  return lanes_widen(_mm256_maskz_loadu_epi16(lanes_first(count), from));
}

LANES_PART void lanes_store(float *to, lanes x) { _mm512_storeu_ps(to, x); }
LANES_PART void lanes_store_part(float *to, lanes x, int count) {
  _mm512_mask_storeu_ps(to, lanes_first(count), x);
}

/* The arithmetic of treadle_bf16_of_float; vcvtneps2bf16 takes subnormal numbers for 0. */
LANES_PART __m256i lanes_narrow(lanes x) {
  __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
  __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(_mm512_srli_epi32(rounded, 16), nan, quiet));
}

LANES_PART void lanes_store_bf16(uint16_t *to, lanes x) {
  _mm256_storeu_si256((__m256i *)(void *)to, lanes_narrow(x));
}

LANES_PART void lanes_store_bf16_part(uint16_t *to, lanes x, int count) {
  _mm256_mask_storeu_epi16(to, lanes_first(count), lanes_narrow(x));
}

LANES_PART lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
LANES_PART lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
LANES_PART lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
LANES_PART lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
LANES_PART lanes lanes_sqrt(lanes a) { return _mm512_sqrt_ps(a); }
LANES_PART lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
LANES_PART lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); }

LANES_PART lanes lanes_where_less(lanes a, lanes b, lanes x, lanes y) {
  return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x);
}

LANES_PART lanes lanes_within(lanes x, int from, int to, float other) {
  unsigned before_to = to >= LANES ? 0xffff : to <= 0 ? 0 : (1u << to) - 1;
  unsigned before_from = from >= LANES ? 0xffff : from <= 0 ? 0 : (1u << from) - 1;
  return _mm512_mask_mov_ps(_mm512_set1_ps(other), (__mmask16)(before_to & ~before_from), x);
}

LANES_PART lanes lanes_swap(lanes x) { return _mm512_permute_ps(x, 0xb1); }

LANES_PART lanes lanes_raise(lanes x, lanes rounded) {
  __m512i n = _mm512_slli_epi32(_mm512_castps_si512(rounded), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), n));
}

/* Squares of 4 by 4 are turned in place, by pairs and by pairs of pairs; then the squares are. */
LANES_PART void lanes_transpose(lanes x[LANES]) {
  lanes y[LANES];
  LANES_UNROLLED
  for (int i = 0; i < LANES; i += 2) {
    y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
  LANES_UNROLLED
  for (int i = 0; i < LANES; i += 4) {
    LANES_UNROLLED
    for (int j = 0; j < 2; j++) {
      __m512d a = _mm512_castps_pd(y[i + j]), b = _mm512_castps_pd(y[i + j + 2]);
      x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  LANES_UNROLLED
  for (int i = 0; i < 4; i++) {
    y[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
    y[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
  }
  LANES_UNROLLED
  for (int i = 0; i < 4; i++) {
    x[i] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0x88);
    x[i + 8] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0xdd);
    x[i + 4] = _mm512_shuffle_f32x4(y[i + 4], y[i + 12], 0x88);
    x[i + 12] = _mm512_shuffle_f32x4(y[i + 4], y[i + 12], 0xdd);
  }
}

LANES_PART __m256 lanes_upper(lanes x) { return _mm512_extractf32x8_ps(x, 1); }
LANES_PART __m256 lanes_lower(lanes x) { return _mm512_castps512_ps256(x); }

#include "nn/lanes_exp.h"
#include "nn/lanes_fold.h"

#endif

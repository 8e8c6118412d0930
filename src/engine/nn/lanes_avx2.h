/* Lanes (nn/lanes.h) as two registers of AVX2. */
#ifndef TREADLE_NN_LANES_AVX2_H
#define TREADLE_NN_LANES_AVX2_H

#include "base/processor.h"
#include "nn/lanes.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define LANES_CODE     __attribute__((target("avx2,fma")))
#define LANES_PART     LANES_CODE static inline __attribute__((always_inline))
#define LANES_UNROLLED LANES_UNROLL
#define LANES_KEPT     4

static inline bool lanes_supported(void) { return treadle_processor_has(TREADLE_PROCESSOR_AVX2); }

typedef struct lanes {
  __m256 low, high;
} lanes;

LANES_PART __m256i lanes_first(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

LANES_PART lanes lanes_all(float x) { return (lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LANES_PART lanes lanes_load(const float *from) {
  return (lanes){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

LANES_PART lanes lanes_pin(lanes x) {
  __asm__("" : "+x"(x.low), "+x"(x.high));
  return x;
}

LANES_PART lanes lanes_load_part(const float *from, int count) {
  if (count <= 8) return (lanes){_mm256_maskload_ps(from, lanes_first(count)), _mm256_setzero_ps()};
  return (lanes){_mm256_loadu_ps(from), _mm256_maskload_ps(from + 8, lanes_first(count - 8))};
}

LANES_PART __m256 lanes_widen(const uint16_t *from) {
  __m128i bf16 = _mm_loadu_si128((const __m128i *)(const void *)from);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

LANES_PART lanes lanes_load_bf16(const uint16_t *from) {
  return (lanes){lanes_widen(from), lanes_widen(from + 8)};
}

LANES_PART lanes lanes_load_bf16_part(const uint16_t *from, int count) {
  uint16_t whole[LANES] = {0};
  memcpy(whole, from, (size_t)count * sizeof *from);
  return lanes_load_bf16(whole);
}

LANES_PART void lanes_store(float *to, lanes x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}

LANES_PART void lanes_store_part(float *to, lanes x, int count) {
  _mm256_maskstore_ps(to, lanes_first(count), x.low);
  if (count > 8) _mm256_maskstore_ps(to + 8, lanes_first(count - 8), x.high);
}

/* The arithmetic of treadle_bf16_of_float, in the lower half of each 32 bits. */
LANES_PART __m256i lanes_narrow(__m256 x) {
  __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
  __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), quiet, _mm256_castps_si256(nan));
}

LANES_PART void lanes_store_bf16(uint16_t *to, lanes x) {
  __m256i both = _mm256_packus_epi32(lanes_narrow(x.low), lanes_narrow(x.high));
  _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(both, 0xd8));
}

LANES_PART void lanes_store_bf16_part(uint16_t *to, lanes x, int count) {
  uint16_t whole[LANES];
  lanes_store_bf16(whole, x);
  memcpy(to, whole, (size_t)count * sizeof *to);
}

#define LANES_BOTH(name, of)                                                                               \
  LANES_PART lanes name(lanes a, lanes b) { return (lanes){of(a.low, b.low), of(a.high, b.high)}; }
LANES_BOTH(lanes_add, _mm256_add_ps)
LANES_BOTH(lanes_sub, _mm256_sub_ps)
LANES_BOTH(lanes_mul, _mm256_mul_ps)
LANES_BOTH(lanes_div, _mm256_div_ps)
LANES_BOTH(lanes_max, _mm256_max_ps)
#undef LANES_BOTH

LANES_PART lanes lanes_sqrt(lanes a) { return (lanes){_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }

LANES_PART lanes lanes_fma(lanes a, lanes b, lanes c) {
  return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

LANES_PART __m256 lanes_choose_less(__m256 a, __m256 b, __m256 x, __m256 y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

LANES_PART lanes lanes_where_less(lanes a, lanes b, lanes x, lanes y) {
  return (lanes){lanes_choose_less(a.low, b.low, x.low, y.low),
                 lanes_choose_less(a.high, b.high, x.high, y.high)};
}

LANES_PART __m256 lanes_half_within(__m256 x, int from, int to, float other) {
  __m256i keep = _mm256_andnot_si256(lanes_first(from), lanes_first(to));
  return _mm256_blendv_ps(_mm256_set1_ps(other), x, _mm256_castsi256_ps(keep));
}

LANES_PART lanes lanes_within(lanes x, int from, int to, float other) {
  return (lanes){lanes_half_within(x.low, from, to, other),
                 lanes_half_within(x.high, from - 8, to - 8, other)};
}

LANES_PART lanes lanes_swap(lanes x) {
  return (lanes){_mm256_permute_ps(x.low, 0xb1), _mm256_permute_ps(x.high, 0xb1)};
}

LANES_PART __m256 lanes_half_raise(__m256 x, __m256 rounded) {
  __m256i n = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), n));
}

LANES_PART lanes lanes_raise(lanes x, lanes rounded) {
  return (lanes){lanes_half_raise(x.low, rounded.low), lanes_half_raise(x.high, rounded.high)};
}

/* Squares of 4 by 4 are turned in place, by pairs and by pairs of pairs; then the squares are. */
LANES_PART void lanes_transpose_8(__m256 x[8]) {
  __m256 y[8];
  LANES_UNROLLED
  for (int i = 0; i < 8; i += 2) {
    y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  LANES_UNROLLED
  for (int i = 0; i < 8; i += 4) {
    LANES_UNROLLED
    for (int j = 0; j < 2; j++) {
      x[i + 2 * j] = _mm256_shuffle_ps(y[i + j], y[i + j + 2], 0x44);
      x[i + 2 * j + 1] = _mm256_shuffle_ps(y[i + j], y[i + j + 2], 0xee);
    }
  }
  LANES_UNROLLED
  for (int i = 0; i < 4; i++) {
    __m256 upper = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
    x[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
    x[i + 4] = upper;
  }
}

LANES_PART void lanes_transpose(lanes x[LANES]) {
  __m256 square[4][8];
  LANES_UNROLLED
  for (int i = 0; i < 8; i++) {
    square[0][i] = x[i].low;
    square[1][i] = x[i + 8].low;
    square[2][i] = x[i].high;
    square[3][i] = x[i + 8].high;
  }
  LANES_UNROLLED
  for (int i = 0; i < 4; i++) lanes_transpose_8(square[i]);
  LANES_UNROLLED
  for (int i = 0; i < 8; i++) {
    x[i] = (lanes){square[0][i], square[1][i]};
    x[i + 8] = (lanes){square[2][i], square[3][i]};
  }
}

LANES_PART __m256 lanes_upper(lanes x) { return x.high; }
LANES_PART __m256 lanes_lower(lanes x) { return x.low; }

#include "nn/lanes_exp.h"
#include "nn/lanes_fold.h"

#endif

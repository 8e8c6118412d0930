/* By AVX-512: rounding to bf16, and 16 x 16 words of 32 bits turned, rows to columns. */
#ifndef TREADLE_NN_GEMM_TURN_H
#define TREADLE_NN_GEMM_TURN_H

#include <immintrin.h>

#define TREADLE_TURN_PART __attribute__((target("avx512f,avx512bw"), always_inline)) static inline

/* To bf16, the nearest, ties to even, in the upper half of each word; what is below is anything. */
TREADLE_TURN_PART __m512i treadle_gemm_round(__m512 value) {
  __m512i bits = _mm512_castps_si512(value);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
}

/* In four steps that exchange single words, pairs, and groups of four and eight. */
TREADLE_TURN_PART void treadle_gemm_turn(__m512i v[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) { /* v[i + n]: in each quarter q, column 4 q + n of rows i to i + 3 */
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int n = 0; n < 4; n++) { /* quarters of rows 0-3 and 4-7, then of 8-11 and 12-15 */
    t[n] = _mm512_shuffle_i32x4(v[n], v[n + 4], 0x88);
    t[n + 4] = _mm512_shuffle_i32x4(v[n], v[n + 4], 0xdd);
    t[n + 8] = _mm512_shuffle_i32x4(v[n + 8], v[n + 12], 0x88);
    t[n + 12] = _mm512_shuffle_i32x4(v[n + 8], v[n + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int n = 0; n < 4; n++) {
    v[n] = _mm512_shuffle_i32x4(t[n], t[n + 8], 0x88);
    v[n + 8] = _mm512_shuffle_i32x4(t[n], t[n + 8], 0xdd);
    v[n + 4] = _mm512_shuffle_i32x4(t[n + 4], t[n + 12], 0x88);
    v[n + 12] = _mm512_shuffle_i32x4(t[n + 4], t[n + 12], 0xdd);
  }
}

#endif

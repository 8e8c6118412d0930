/* AVX2 with FMA and registers of 8 fp32.
 *
 * Order of additions, of one element of y and one leaf: the leaf is cut into steps, of 8 elements (fp32) or 16 (bf16); where that does
 * not divide it, the last step is the last elements of the leaf, of which those that an earlier step had count as 0 of x; a leaf shorter
 * than a step is followed by zeros. There are 8 lanes, each begins with +0. Each step adds to lane j, by fused multiply-add, its
 * element j (fp32), or its element 2 j and then its element 2 j + 1 (bf16). Then the sum of the leaf is
 * ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)). Leaves: nn/leaf_tree.h. */
#include "base/processor.h"
#include "nn/gemm_parts.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define DOT_CODE __attribute__((target("avx2,fma")))
#define DOT_PART DOT_CODE __attribute__((always_inline)) static inline

enum { DOT_LANES = 8, DOT_COLUMNS = 4, DOT_NEAR = 192 << 10 };

typedef __m256 dot_vec;

DOT_PART dot_vec dot_zero(void) { return _mm256_setzero_ps(); }
DOT_PART dot_vec dot_load(const float *from) { return _mm256_loadu_ps(from); }
DOT_PART void dot_store(float *to, dot_vec value) { _mm256_storeu_ps(to, value); }
DOT_PART dot_vec dot_add_product(dot_vec w, dot_vec x, dot_vec sum) { return _mm256_fmadd_ps(w, x, sum); }

typedef __m128 dot_out;

DOT_PART dot_out dot_out_load(const float *from) { return _mm_loadu_ps(from); }
DOT_PART void dot_out_store(float *to, dot_out value) { _mm_storeu_ps(to, value); }
DOT_PART dot_out dot_out_add(dot_out a, dot_out b) { return _mm_add_ps(a, b); }

DOT_PART dot_out dot_reduce(const dot_vec v[DOT_COLUMNS]) {
  __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

static inline int dot_vectors(treadle_dtype dtype) { return dtype == TREADLE_BF16 ? 2 : 1; }

DOT_PART void dot_widen(dot_vec v[2], const char *from, treadle_dtype dtype) {
  __m256i raw = _mm256_loadu_si256((const __m256i *)(const void *)from);
  if (dtype == TREADLE_BF16) {
    v[0] = _mm256_castsi256_ps(_mm256_slli_epi32(raw, 16));
    v[1] = _mm256_castsi256_ps(_mm256_and_si256(raw, _mm256_set1_epi32((int)0xffff0000)));
  } else {
    v[0] = _mm256_castsi256_ps(raw);
  }
}

/* To bf16, the nearest, ties to even, as fp32. */
DOT_PART dot_vec rounded(dot_vec value) {
  __m256i bits = _mm256_castps_si256(value);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  __m256i whole = _mm256_blendv_epi8(sum, quiet, _mm256_castps_si256(nan));
  return _mm256_castsi256_ps(_mm256_and_si256(whole, _mm256_set1_epi32((int)0xffff0000)));
}

DOT_PART dot_vec in_order(__m256 halves) { /* what a shuffle of two registers has made by halves of them */
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(halves), 0xd8));
}

DOT_PART void dot_pack_step(float *to, const float *from, treadle_gemm_inner inner) {
  dot_vec low = dot_load(from);
  if (inner.dtype != TREADLE_BF16) {
    dot_store(to, low);
    return;
  }
  dot_vec high = dot_load(from + DOT_LANES);
  if (!inner.fine) {
    low = rounded(low);
    high = rounded(high);
  }
  dot_store(to, in_order(_mm256_shuffle_ps(low, high, 0x88)));
  dot_store(to + DOT_LANES, in_order(_mm256_shuffle_ps(low, high, 0xdd)));
}

#include "nn/gemm_dot.h"

static const char *lacks(void) {
  return treadle_processor_has(TREADLE_PROCESSOR_AVX2) ? NULL : "the processor has no AVX2 with FMA";
}

const treadle_gemm_kernel treadle_gemm_avx2 = {
    .name = "avx2",
    .about = "AVX2 with FMA",
    .lacks = lacks,
    .takes = dot_takes,
    .packed_bytes = dot_packed_bytes,
    .pack = dot_pack,
    .run = dot_run,
};

#endif

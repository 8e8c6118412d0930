/* AVX-512 with registers of 16 fp32.
 *
 * Order of additions, of one element of y and one leaf: the leaf is cut into steps, of 16 elements (fp32) or 32 (bf16); where that does
 * not divide it, the last step is the last elements of the leaf, of which those that an earlier step had count as 0 of x; a leaf shorter
 * than a step is followed by zeros. There are 16 lanes, each begins with +0. Each step adds to lane j, by fused multiply-add, its
 * element j (fp32), or its element 2 j and then its element 2 j + 1 (bf16). Then lane j += lane j + 8, and the sum of the leaf is
 * ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)). Leaves: nn/leaf_tree.h.
 *
 * The processor's own products of bf16 (AVX512_BF16) are not used: they take subnormal numbers for 0, and on the processors that
 * were measured they are half as fast as fused multiply-add (docs/speed.md). */
#include "base/processor.h"
#include "nn/gemm_parts.h"

#if defined(__x86_64__)

#include "nn/gemm_turn.h"

#include <immintrin.h>

#define DOT_CODE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define DOT_PART DOT_CODE __attribute__((always_inline)) static inline

enum { DOT_LANES = 16, DOT_COLUMNS = 8, DOT_NEAR = 640 << 10 };

typedef __m512 dot_vec;

DOT_PART dot_vec dot_zero(void) { return _mm512_setzero_ps(); }
DOT_PART dot_vec dot_load(const float *from) { return _mm512_loadu_ps(from); }
DOT_PART void dot_store(float *to, dot_vec value) { _mm512_storeu_ps(to, value); }
DOT_PART dot_vec dot_add_product(dot_vec w, dot_vec x, dot_vec sum) { return _mm512_fmadd_ps(w, x, sum); }

typedef __m256 dot_out;

DOT_PART dot_out dot_out_load(const float *from) { return _mm256_loadu_ps(from); }
DOT_PART void dot_out_store(float *to, dot_out value) { _mm256_storeu_ps(to, value); }
DOT_PART dot_out dot_out_add(dot_out a, dot_out b) { return _mm256_add_ps(a, b); }

/* Lanes j + (j + 8): those of a, then those of b. */
DOT_PART dot_vec add_halves(dot_vec a, dot_vec b) {
  return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}

/* Of each four lanes 0 + 1, 2 + 3: those of a, then those of b. */
DOT_PART dot_vec add_neighbours(dot_vec a, dot_vec b) {
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

DOT_PART dot_out dot_reduce(const dot_vec v[DOT_COLUMNS]) {
  dot_vec low = add_neighbours(add_halves(v[0], v[4]), add_halves(v[1], v[5]));
  dot_vec high = add_neighbours(add_halves(v[2], v[6]), add_halves(v[3], v[7]));
  dot_vec fours = add_neighbours(low, high); /* columns 0 to 3: two fours of lanes; columns 4 to 7 */
  return _mm256_add_ps(_mm512_castps512_ps256(_mm512_shuffle_f32x4(fours, fours, 0x08)),
                       _mm512_castps512_ps256(_mm512_shuffle_f32x4(fours, fours, 0x0d)));
}

static inline int dot_vectors(treadle_dtype dtype) { return dtype == TREADLE_BF16 ? 2 : 1; }

DOT_PART void dot_widen(dot_vec v[2], const char *from, treadle_dtype dtype) {
  __m512i raw = _mm512_loadu_si512(from);
  if (dtype == TREADLE_BF16) {
    v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(raw, 16));
    v[1] = _mm512_castsi512_ps(_mm512_and_si512(raw, _mm512_set1_epi32((int)0xffff0000)));
  } else {
    v[0] = _mm512_castsi512_ps(raw);
  }
}

/* To bf16, the nearest, ties to even, as fp32. */
DOT_PART dot_vec rounded(dot_vec value) {
  __m512i upper = treadle_gemm_round(value);
  return _mm512_castsi512_ps(_mm512_and_si512(upper, _mm512_set1_epi32((int)0xffff0000)));
}

DOT_PART void dot_pack_step(float *to, const float *from, treadle_gemm_inner inner) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
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
  dot_store(to, _mm512_permutex2var_ps(low, even, high));
  dot_store(to + DOT_LANES, _mm512_permutex2var_ps(low, odd, high));
}

#include "nn/gemm_dot.h"

static const char *lacks(void) {
  return treadle_processor_has(TREADLE_PROCESSOR_AVX512) ? NULL : "the processor has no AVX-512";
}

const treadle_gemm_kernel treadle_gemm_avx512 = {
    .name = "avx512",
    .about = "AVX-512 (F, BW, DQ, VL)",
    .lacks = lacks,
    .takes = dot_takes,
    .packed_bytes = dot_packed_bytes,
    .pack = dot_pack,
    .run = dot_run,
};

#endif

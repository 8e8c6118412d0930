/* Sum and largest of 16 lanes, from their lower and upper halves as registers of AVX. */
#ifndef TREADLE_NN_LANES_FOLD_H
#define TREADLE_NN_LANES_FOLD_H

LANES_PART float lanes_sum(lanes x) {
  __m256 eight = _mm256_add_ps(lanes_lower(x), lanes_upper(x));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

LANES_PART float lanes_largest(lanes x) {
  __m256 eight = _mm256_max_ps(lanes_lower(x), lanes_upper(x));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

#endif

/* Transposing tiles by blocks of N x N, N elements to a register of 16 bytes.
 *
 * To interleave rows i and i + N/2 of a block, elementwise, into rows 2i and 2i + 1 moves one bit of the
 * row number to the front of the column number; after log2(N) rounds they have changed places. SSE2, which every
 * x86-64 has. */
#include "memory/transpose.h"

#include <string.h>

void treadle_transpose_plain(treadle_tile to, treadle_tile from, size_t rows, size_t columns, size_t each) {
  for (size_t row = 0; row < rows; row++)
    for (size_t column = 0; column < columns; column++)
      memcpy(to.base + column * to.pitch + row * each, from.base + row * from.pitch + column * each, each);
}

#if defined(__x86_64__)

#include <immintrin.h>

/* `rounds` is log2 of N = 16 / each. */
#define TRANSPOSE(function, each, rounds, low, high)                                                       \
  static void function(char *to, size_t to_pitch, const char *from, size_t from_pitch) {                   \
    enum { N = 16 / (each) };                                                                              \
    __m128i a[N], b[N];                                                                                    \
    _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) a[i] =                                            \
        _mm_loadu_si128((const __m128i *)(const void *)(from + (size_t)i * from_pitch));                   \
    _Pragma("GCC unroll 4") for (int round = 0; round < (rounds); round++) {                               \
      _Pragma("GCC unroll 8") for (int i = 0; i < N / 2; i++) {                                            \
        b[2 * i] = low(a[i], a[i + N / 2]);                                                                \
        b[2 * i + 1] = high(a[i], a[i + N / 2]);                                                           \
      }                                                                                                    \
      _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) a[i] = b[i];                                    \
    }                                                                                                      \
    _Pragma("GCC unroll 16") for (int i = 0; i < N; i++)                                                   \
        _mm_storeu_si128((__m128i *)(void *)(to + (size_t)i * to_pitch), a[i]);                            \
  }

TRANSPOSE(block_1, 1, 4, _mm_unpacklo_epi8, _mm_unpackhi_epi8)
TRANSPOSE(block_2, 2, 3, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
TRANSPOSE(block_4, 4, 2, _mm_unpacklo_epi32, _mm_unpackhi_epi32)

void treadle_transpose_tile(treadle_tile to, treadle_tile from, size_t rows, size_t columns, size_t each) {
  size_t n = 16 / each;
  for (size_t column = 0; column < columns; column += n)
    for (size_t row = 0; row < rows; row += n) {
      char *t = to.base + column * to.pitch + row * each;
      const char *f = from.base + row * from.pitch + column * each;
      if (each == 1)
        block_1(t, to.pitch, f, from.pitch);
      else if (each == 2)
        block_2(t, to.pitch, f, from.pitch);
      else
        block_4(t, to.pitch, f, from.pitch);
    }
}

#else

void treadle_transpose_tile(treadle_tile to, treadle_tile from, size_t rows, size_t columns, size_t each) {
  treadle_transpose_plain(to, from, rows, columns, each);
}

#endif

/* CRC-32: zlib's, and on x86 one that folds 64 bytes a step by carry-less products, since zlib's (0.5 GB/s
 * on the machine of docs/speed.md) would be slower than the disk.
 *
 * The method and the constants are those of V. Gopal et al., "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", Intel 2009, for the reflected polynomial: a block B that
 * lies d bits before the end counts as B * x^d mod P, so four lanes of 128 bits are moved over the next
 * 512 bits by multiplying with x^512 mod P and added to them; at last the lanes become one, 64 bits, and
 * by Barrett's division 32. Where the processor multiplies four lanes at once, sixteen are moved over 2048 bits. */
#include "base/crc.h"

#include "base/processor.h"

#include <stdbool.h>
#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { STEP = 64, WIDE_STEP = 256 };

#define TARGET __attribute__((target("pclmul,sse4.1")))

TARGET static inline __m128i load(const unsigned char *from) {
  return _mm_loadu_si128((const __m128i *)(const void *)from);
}

#define WIDE __attribute__((target("avx512f,vpclmulqdq")))

WIDE static inline __m512i fold_512(__m512i lanes, __m512i distance, __m512i there) {
  __m512i low = _mm512_clmulepi64_epi128(lanes, distance, 0x00),
          high = _mm512_clmulepi64_epi128(lanes, distance, 0x11);
  return _mm512_ternarylogic_epi64(low, high, there, 0x96); /* the sum of the three */
}

/* Moves a lane over the distance of the constants, and adds what lies there. */
TARGET static inline __m128i fold(__m128i lane, __m128i distance, __m128i there) {
  __m128i low = _mm_clmulepi64_si128(lane, distance, 0x00),
          high = _mm_clmulepi64_si128(lane, distance, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/* The same in registers of 512 bits, 256 bytes a step: sixteen lanes, moved over 2048 bits, and four of them in the end.
 * Returns how many bytes they stand for; count is at least WIDE_STEP. */
WIDE static size_t fold_wide(uint32_t crc, const unsigned char *from, size_t count, unsigned char *lanes) {
  const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01322d1430, 0x011542778a));
  const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01c6e41596, 0x0154442bd4));
  __m512i x[4];
  size_t at = WIDE_STEP;
  for (int i = 0; i < 4; i++) x[i] = _mm512_loadu_si512(from + 64 * i);
  x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
  for (; count - at >= WIDE_STEP; at += WIDE_STEP)
    for (int i = 0; i < 4; i++)
      x[i] = fold_512(x[i], by_2048, _mm512_loadu_si512(from + at + 64 * (size_t)i));
  for (int i = 1; i < 4; i++) x[i] = fold_512(x[i - 1], by_512, x[i]);
  _mm512_storeu_si512(lanes, x[3]);
  return at;
}

/* count is a multiple of 64, at least 64; crc without the inversions at both ends. */
TARGET static uint32_t fold_all(uint32_t crc, const unsigned char *from, size_t count, bool wide) {
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641); /* 1/P, P */
  const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
  unsigned char first[STEP];
  size_t at = wide && count >= WIDE_STEP ? fold_wide(crc, from, count, first) : 0;
  __m128i lanes[4];
  for (int i = 0; i < 4; i++) lanes[i] = load((at ? first : from) + 16 * i);
  if (!at) {
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
    at = STEP;
  }
  for (; at < count; at += STEP)
    for (int i = 0; i < 4; i++) lanes[i] = fold(lanes[i], by_512, load(from + at + 16 * (size_t)i));
  __m128i x = lanes[0];
  for (int i = 1; i < 4; i++) x = fold(x, by_128, lanes[i]);
  x = _mm_xor_si128(_mm_srli_si128(x, 8),
                    _mm_clmulepi64_si128(x, by_128, 0x10)); /* to 64 bits and 32 zeros */
  x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low_words), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, low_words), barrett, 0x10);
  x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), barrett, 0x00));
  return (uint32_t)_mm_extract_epi32(x, 1);
}
#endif

uint32_t treadle_crc32(uint32_t crc, const void *bytes, size_t count) {
  const unsigned char *from = bytes;
#if defined(__x86_64__)
  size_t whole = count - count % STEP;
  if (whole && treadle_processor_has(TREADLE_PROCESSOR_CLMUL)) {
    bool wide = treadle_processor_has(TREADLE_PROCESSOR_CLMUL_WIDE);
    crc = ~fold_all(~crc, from, whole, wide);
    from += whole;
    count -= whole;
  }
#endif
  return count ? (uint32_t)crc32_z(crc, from, count) : crc;
}

uint32_t treadle_crc32c(uint32_t crc, const void *bytes, size_t count) {
  const unsigned char *from = bytes;
  crc = ~crc;
  for (size_t i = 0; i < count; i++) {
    crc ^= from[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

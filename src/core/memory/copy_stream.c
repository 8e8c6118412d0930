/* Rows by way of stores that go past the cache (AVX2).
 *
 * An ordinary store reads the line it writes into the cache first, so that a copy moves three bytes for
 * each one; a non-temporal store of whole lines moves two. memcpy of the C library knows that, but only for
 * calls above a large threshold (24 MiB where this was measured), and our rows and pages are smaller.
 *
 * Three loops, chosen by measurement (docs/speed.md, "Copy kernel"):
 *   - rows whose sources follow each other: one after the other, 128 bytes at a time, with a prefetch AHEAD
 * bytes in front which runs on into the next row. The processor's own prefetch stops at page borders and
 * knows nothing of the next row.
 *   - rows with gaps between their sources: four in turn, 512 bytes of each. Alone, each row wakes the
 *     processor's prefetch, which then fetches the gap too; the change of row keeps it short. Rows of 1 to 2 KiB
 *     are better off with 256 bytes in turn and a prefetch of our own.
 *   - long runs: in quarters, four in turn, 512 bytes of each.
 * Rows begin and end anywhere: lines that are not whole go through memcpy. */
#include "memory/copy_stream.h"

#include "base/processor.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { LINE = 64, AHEAD = 512, GROUP = 4, NO_STREAM = 512, LONG_ROW = 64 << 10 };
enum { AHEAD_FROM = 1024, AHEAD_TO = 2048 }; /* rows in a group that are better off with our prefetch */

#define AVX2 __attribute__((target("avx2")))

bool treadle_stream_supported(void) { return treadle_processor_has(TREADLE_PROCESSOR_AVX2); }

void treadle_stream_fence(void) { _mm_sfence(); }

/* The parts of a row that are no whole lines: mostly none. */
static inline void edge(char *to, const char *from, size_t bytes) {
  if (bytes > 0) memcpy(to, from, bytes);
}

/* Bytes before the first whole line at `to`. */
static size_t head_of(const char *to) { return (LINE - (uintptr_t)to % LINE) % LINE; }

AVX2 static inline __m256i load(const char *from) { return _mm256_loadu_si256((const __m256i *)from); }
AVX2 static inline void store(char *to, __m256i value) {
  _mm256_stream_si256((__m256i *)(void *)to, value);
}

AVX2 static inline void two_lines(char *to, const char *from) {
  __m256i a = load(from), b = load(from + 32), c = load(from + 64), d = load(from + 96);
  store(to, a);
  store(to + 32, b);
  store(to + 64, c);
  store(to + 96, d);
}

AVX2 static inline void one_line(char *to, const char *from) {
  __m256i a = load(from), b = load(from + 32);
  store(to, a);
  store(to + 32, b);
}

/* One row; `next` is where the source goes on, for the prefetch. */
AVX2 static void stream_row(char *to, const char *from, size_t row, const char *next) {
  size_t head = head_of(to), i = head;
  edge(to, from, head);
  for (; i + 2 * LINE <= row; i += 2 * LINE) {
    const char *ahead = i + AHEAD < row ? from + i + AHEAD : next + (i + AHEAD - row);
    _mm_prefetch(ahead, _MM_HINT_T0);
    _mm_prefetch(ahead + LINE, _MM_HINT_T0);
    two_lines(to + i, from + i);
  }
  for (; i + LINE <= row; i += LINE) one_line(to + i, from + i);
  edge(to + i, from + i, row - i);
}

/* All of a block is loaded before the first store: at most 16 registers. */
AVX2 static inline void block_512(char *to, const char *from) {
  __m256i value[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) value[i] = load(from + 32 * i);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) store(to + 32 * i, value[i]);
}

AVX2 static inline void block_256(char *to, const char *from, const char *next) {
  __m256i value[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) _mm_prefetch(next + LINE * i, _MM_HINT_T0);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) value[i] = load(from + 32 * i);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) store(to + 32 * i, value[i]);
}

/* GROUP rows in turn; their destinations have the same head. A row of 1 to 2 KiB prefetches what comes next in it,
 * at its end the same row of the next group, which is `group_step` further on. */
AVX2 static void stream_group(char *to, size_t to_stride, const char *from, size_t from_stride, size_t row,
                              size_t group_step) {
  size_t i = head_of(to), head = i;
  for (size_t k = 0; k < GROUP; k++) edge(to + k * to_stride, from + k * from_stride, head);
  for (; row >= AHEAD_FROM && row <= AHEAD_TO && i + 256 <= row; i += 256)
    for (size_t k = 0; k < GROUP; k++) {
      const char *f = from + k * from_stride + i;
      block_256(to + k * to_stride + i, f, i + 512 <= row ? f + 256 : f + group_step - (i - head));
    }
  for (; i + 512 <= row; i += 512)
    for (size_t k = 0; k < GROUP; k++) block_512(to + k * to_stride + i, from + k * from_stride + i);
  for (size_t k = 0; k < GROUP; k++) {
    char *t = to + k * to_stride;
    const char *f = from + k * from_stride;
    size_t rest = i;
    for (; rest + LINE <= row; rest += LINE) one_line(t + rest, f + rest);
    edge(t + rest, f + rest, row - rest);
  }
}

/* A long run as four rows, and what is left of it. */
AVX2 static void stream_long(char *to, const char *from, size_t bytes) {
  size_t quarter = bytes / GROUP / 512 * 512;
  stream_group(to, quarter, from, quarter, quarter, 0);
  edge(to + GROUP * quarter, from + GROUP * quarter, bytes - GROUP * quarter);
}

void treadle_stream_rows(char *to, size_t to_stride, const char *from, size_t from_stride, size_t row,
                         size_t rows) {
  size_t i = 0;
  if (row < NO_STREAM) {
    for (; i < rows; i++) memcpy(to + i * to_stride, from + i * from_stride, row);
  } else if (row >= LONG_ROW) {
    for (; i < rows; i++) stream_long(to + i * to_stride, from + i * from_stride, row);
  } else if (from_stride != row && to_stride % LINE == 0) {
    for (; i + GROUP <= rows; i += GROUP)
      stream_group(to + i * to_stride, to_stride, from + i * from_stride, from_stride, row,
                   GROUP * from_stride);
  }
  for (; i < rows; i++) {
    const char *f = from + i * from_stride;
    stream_row(to + i * to_stride, f, row, i + 1 < rows ? f + from_stride : f);
  }
}

AVX2 void treadle_stream_lines(char *to, const char *from, size_t bytes) {
  if ((uintptr_t)to % LINE != 0 || bytes % LINE != 0)
    memcpy(to, from, bytes);
  else
    for (size_t i = 0; i < bytes; i += LINE) one_line(to + i, from + i);
}

#else

#include <stdlib.h>

bool treadle_stream_supported(void) { return false; }
void treadle_stream_fence(void) {}
void treadle_stream_rows(char *to, size_t to_stride, const char *from, size_t from_stride, size_t row,
                         size_t rows) {
  (void)to, (void)to_stride, (void)from, (void)from_stride, (void)row, (void)rows;
  abort(); /* not supported: nobody calls it */
}
void treadle_stream_lines(char *to, const char *from, size_t bytes) {
  (void)to, (void)from, (void)bytes;
  abort();
}

#endif

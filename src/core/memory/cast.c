/* Casts by AVX2 and F16C: 32 values at a time are decoded to fp32, added to, encoded and stored.
 *
 * One function for each pair of types, with and without an addition, made of the same three parts by the
 * compiler: types are constants in them. Where it is asked for, runs of at least NO_STREAM destination bytes are stored past the
 * cache, from the first whole line on. Ends shorter than a block go through a buffer of one block. */
#include "memory/cast.h"

#include "base/processor.h"

#include <string.h>

#if defined(__x86_64__)

#include "memory/vector.h"

#include <stdatomic.h>

enum { BLOCK = TREADLE_VECTOR, LINE = 64, NO_STREAM = 512, AHEAD = 512, TYPES = TREADLE_FP8_E4M3 + 1 };

/* Asked once: a virtual machine leaves its processor to answer cpuid. */
bool treadle_cast_supported(void) {
  static atomic_int known; /* 0: not asked yet, 1: no, 2: yes */
  int answer = atomic_load_explicit(&known, memory_order_relaxed);
  if (!answer) {
    answer = treadle_processor_has(TREADLE_PROCESSOR_F16C) ? 2 : 1;
    atomic_store_explicit(&known, answer, memory_order_relaxed);
  }
  return answer == 2;
}

/* ---- Runs ---- */

TREADLE_VECTOR_PART void block(treadle_dtype to_dtype, treadle_dtype from_dtype, bool adds, char *to,
                               const char *from, __m256 add, bool stream) {
  __m256 value[4];
  treadle_vector_decode(from_dtype, value, from);
  if (from_dtype == TREADLE_FP16 && to_dtype == TREADLE_FP32 && !adds) {
    /* F16C makes signalling NaN quiet, the twin leaves it: the only pair where that can be seen. */
    __m256 nan = _mm256_or_ps(_mm256_cmp_ps(value[0], value[1], _CMP_UNORD_Q),
                              _mm256_cmp_ps(value[2], value[3], _CMP_UNORD_Q));
    if (_mm256_movemask_ps(nan)) {
      treadle_dtype_convert(to, to_dtype, from, from_dtype, BLOCK);
      return;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    if (adds) value[i] = _mm256_add_ps(value[i], add);
  treadle_vector_encode(to_dtype, to, value, false, stream);
}

typedef void run_function(char *to, const char *from, size_t count, int add, bool stream);

/* Whole blocks. */
TREADLE_VECTOR_PART void run(treadle_dtype to_dtype, treadle_dtype from_dtype, bool adds, char *to,
                             const char *from, size_t count, int added) {
  size_t to_step = BLOCK * treadle_vector_bytes(to_dtype),
         from_step = BLOCK * treadle_vector_bytes(from_dtype);
  __m256 add = _mm256_set1_ps((float)added);
  for (size_t i = 0; i < count; i += BLOCK, to += to_step, from += from_step)
    block(to_dtype, from_dtype, adds, to, from, add, false);
}

/* The same, past the cache. */
TREADLE_VECTOR_PART void stream_run(treadle_dtype to_dtype, treadle_dtype from_dtype, bool adds, char *to,
                                    const char *from, size_t count, int added) {
  size_t to_step = BLOCK * treadle_vector_bytes(to_dtype),
         from_step = BLOCK * treadle_vector_bytes(from_dtype);
  __m256 add = _mm256_set1_ps((float)added);
  for (size_t i = 0; i < count; i += BLOCK, to += to_step, from += from_step) {
#pragma GCC unroll 2
    for (size_t line = 0; line < from_step; line += LINE) _mm_prefetch(from + line + AHEAD, _MM_HINT_T0);
    block(to_dtype, from_dtype, adds, to, from, add, true);
  }
}

#define RUN_ONE(name, to_dtype, from_dtype, adds)                                                          \
  TREADLE_VECTOR_CODE static void name(char *to, const char *from, size_t count, int add, bool stream) {   \
    if (stream)                                                                                            \
      stream_run(to_dtype, from_dtype, adds, to, from, count, add);                                        \
    else                                                                                                   \
      run(to_dtype, from_dtype, adds, to, from, count, add);                                               \
  }
#define RUN(name, to_dtype, from_dtype)                                                                    \
  RUN_ONE(name, to_dtype, from_dtype, false)                                                               \
  RUN_ONE(name##_add, to_dtype, from_dtype, true)
#define RUNS(name, to_dtype)                                                                               \
  RUN(name##_fp32, to_dtype, TREADLE_FP32)                                                                 \
  RUN(name##_bf16, to_dtype, TREADLE_BF16)                                                                 \
  RUN(name##_fp16, to_dtype, TREADLE_FP16)                                                                 \
  RUN(name##_fp8, to_dtype, TREADLE_FP8_E4M3)
RUNS(to_fp32, TREADLE_FP32)
RUNS(to_bf16, TREADLE_BF16)
RUNS(to_fp16, TREADLE_FP16)
RUNS(to_fp8, TREADLE_FP8_E4M3)

#define PAIR(name)                                                                                         \
  { name, name##_add }
#define ROW(name)                                                                                          \
  {                                                                                                        \
    [TREADLE_FP32] = PAIR(name##_fp32), [TREADLE_BF16] = PAIR(name##_bf16),                                \
    [TREADLE_FP16] = PAIR(name##_fp16), [TREADLE_FP8_E4M3] = PAIR(name##_fp8)                              \
  }
static run_function *const runs[TYPES][TYPES][2] = {/* to, from, is something added? */
                                                    [TREADLE_FP32] = ROW(to_fp32),
                                                    [TREADLE_BF16] = ROW(to_bf16),
                                                    [TREADLE_FP16] = ROW(to_fp16),
                                                    [TREADLE_FP8_E4M3] = ROW(to_fp8)};

/* Fewer than a block: by way of a whole one. */
static void run_part(run_function *blocks, int add, char *to, size_t to_bytes, const char *from,
                     size_t from_bytes) {
  char in[BLOCK * sizeof(float)] = {0}, out[BLOCK * sizeof(float)];
  memcpy(in, from, from_bytes);
  blocks(out, in, BLOCK, add, false);
  memcpy(to, out, to_bytes);
}

static void run_cast(treadle_cast cast, void *to_p, const void *from_p, size_t count, bool stream) {
  if (treadle_cast_is_copy(cast)) {
    memcpy(to_p, from_p, count * treadle_vector_bytes(cast.to));
    return;
  }
  run_function *blocks = runs[cast.to][cast.from][cast.add != 0];
  int add = cast.add;
  char *to = to_p;
  const char *from = from_p;
  size_t to_bytes = treadle_vector_bytes(cast.to), from_bytes = treadle_vector_bytes(cast.from);
  stream &= count * to_bytes >= NO_STREAM && (uintptr_t)to % to_bytes == 0;
  if (stream) { /* up to the first whole line */
    size_t head = (LINE - (uintptr_t)to % LINE) % LINE / to_bytes;
    for (size_t part; head > 0; head -= part, count -= part) {
      part = head < BLOCK ? head : BLOCK;
      run_part(blocks, add, to, part * to_bytes, from, part * from_bytes);
      to += part * to_bytes;
      from += part * from_bytes;
    }
  }
  size_t whole = count / BLOCK * BLOCK, rest = count - whole;
  if (whole > 0) blocks(to, from, whole, add, stream);
  if (rest > 0)
    run_part(blocks, add, to + whole * to_bytes, rest * to_bytes, from + whole * from_bytes,
             rest * from_bytes);
}

void treadle_cast_run(treadle_cast cast, void *to, const void *from, size_t count) {
  run_cast(cast, to, from, count, false);
}

void treadle_cast_stream(treadle_cast cast, void *to, const void *from, size_t count) {
  run_cast(cast, to, from, count, true);
}

#else

bool treadle_cast_supported(void) { return false; }
void treadle_cast_run(treadle_cast cast, void *to, const void *from, size_t count) {
  treadle_dtype_convert_add(to, cast.to, from, cast.from, cast.add, count);
}
void treadle_cast_stream(treadle_cast cast, void *to, const void *from, size_t count) {
  treadle_cast_run(cast, to, from, count);
}

#endif

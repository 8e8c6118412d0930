/* Casts by AVX2 and F16C: 32 values at a time are decoded to fp32, added to, encoded and stored.
 *
 * One function for each pair of types, with and without an addition, made of the same three parts by the
 * compiler: types are constants in them. Where it is asked for, runs of at least NO_STREAM destination bytes are stored past the
 * cache, from the first whole line on. Ends shorter than a block go through a buffer of one block. */
#include "memory/cast.h"

#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

enum { BLOCK = 32, LINE = 64, NO_STREAM = 512, AHEAD = 512, TYPES = TREADLE_FP8_E4M3 + 1 };

#define VECTOR __attribute__((target("avx2,f16c")))
#define PART   VECTOR static inline __attribute__((always_inline))

/* Asked once: a virtual machine leaves its processor to answer cpuid. */
bool treadle_cast_supported(void) {
  static atomic_int known; /* 0: not asked yet, 1: no, 2: yes */
  int answer = atomic_load_explicit(&known, memory_order_relaxed);
  if (!answer) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    bool has = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    answer = has ? 2 : 1;
    atomic_store_explicit(&known, answer, memory_order_relaxed);
  }
  return answer == 2;
}

static inline size_t bytes_of(treadle_dtype dtype) {
  return dtype == TREADLE_FP32 ? 4 : dtype == TREADLE_FP8_E4M3 ? 1 : 2;
}

PART __m128i load_16(const char *from) { return _mm_loadu_si128((const __m128i *)(const void *)from); }

/* ---- Decoding: 8 values of fp32 in each of four registers ---- */

/* e4m3 as the upper bits of fp16, whose exponent counts from 8 more, is the value over 256. That makes subnormals
 * right, and 480 of NaN, which is put right afterwards. */
PART __m256 decode_fp8(__m128i fp16) {
  __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(fp16), _mm256_set1_ps(256.0f));
  __m256i bits = _mm256_castps_si256(value),
          magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x43f00000));
  return _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi32(0x7ff00000))));
}

PART void decode(treadle_dtype dtype, __m256 value[4], const char *from) {
  if (dtype == TREADLE_FP8_E4M3) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      __m256i code = _mm256_cvtepu8_epi16(load_16(from + 16 * i));
      __m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x80)), 8);
      __m256i rest = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), 7);
      __m256i fp16 = _mm256_or_si256(sign, rest);
      value[2 * i] = decode_fp8(_mm256_castsi256_si128(fp16));
      value[2 * i + 1] = decode_fp8(_mm256_extracti128_si256(fp16, 1));
    }
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    if (dtype == TREADLE_FP32)
      value[i] = _mm256_loadu_ps((const float *)(const void *)(from + 32 * i));
    else if (dtype == TREADLE_FP16)
      value[i] = _mm256_cvtph_ps(load_16(from + 16 * i));
    else
      value[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(from + 16 * i)), 16));
  }
}

/* ---- Encoding: the code in the lower bits of each 32; the arithmetic of base/dtype.c ---- */

PART __m256i encode_bf16(__m256 value) {
  __m256i bits = _mm256_castps_si256(value), upper = _mm256_srli_epi32(bits, 16);
  __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), quiet, _mm256_castps_si256(nan));
}

PART __m256i encode_fp8(__m256 value) {
  __m256i bits = _mm256_castps_si256(value),
          magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
  __m256i moved = _mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7ffff - (120 << 23)));
  __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(moved, odd), 20);
  __m256 unit = _mm256_set1_ps(0x1p14f);
  __m256i small = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), unit));
  small = _mm256_sub_epi32(small, _mm256_castps_si256(unit));
  __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), magnitude);
  __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x43e80000));
  __m256i made =
      _mm256_blendv_epi8(_mm256_blendv_epi8(normal, small, is_small), _mm256_set1_epi32(0x7f), is_nan);
  return _mm256_or_si256(made, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}

PART void store(char *to, __m256i value, bool stream) {
  if (stream)
    _mm256_stream_si256((__m256i *)(void *)to, value);
  else
    _mm256_storeu_si256((__m256i *)(void *)to, value);
}

PART void encode(treadle_dtype dtype, char *to, const __m256 value[4], bool stream) {
  if (dtype == TREADLE_FP8_E4M3) {
    __m256i ab = _mm256_packus_epi32(encode_fp8(value[0]), encode_fp8(value[1]));
    __m256i cd = _mm256_packus_epi32(encode_fp8(value[2]), encode_fp8(value[3]));
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* packing goes by halves of registers */
    store(to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order), stream);
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    if (dtype == TREADLE_FP32) store(to + 32 * i, _mm256_castps_si256(value[i]), stream);
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    if (dtype == TREADLE_FP16) {
      enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
      __m128i low = _mm256_cvtps_ph(value[i], NEAREST), high = _mm256_cvtps_ph(value[i + 1], NEAREST);
      store(to + 16 * i, _mm256_set_m128i(high, low), stream);
    } else if (dtype == TREADLE_BF16) {
      __m256i both = _mm256_packus_epi32(encode_bf16(value[i]), encode_bf16(value[i + 1]));
      store(to + 16 * i, _mm256_permute4x64_epi64(both, 0xd8), stream);
    }
  }
}

/* ---- Runs ---- */

PART void block(treadle_dtype to_dtype, treadle_dtype from_dtype, bool adds, char *to, const char *from,
                __m256 add, bool stream) {
  __m256 value[4];
  decode(from_dtype, value, from);
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
  encode(to_dtype, to, value, stream);
}

typedef void run_function(char *to, const char *from, size_t count, int add, bool stream);

/* Whole blocks. */
PART void run(treadle_dtype to_dtype, treadle_dtype from_dtype, bool adds, char *to, const char *from,
              size_t count, int added, bool stream) {
  size_t to_step = BLOCK * bytes_of(to_dtype), from_step = BLOCK * bytes_of(from_dtype);
  __m256 add = _mm256_set1_ps((float)added);
  if (!stream) {
    for (size_t i = 0; i < count; i += BLOCK, to += to_step, from += from_step)
      block(to_dtype, from_dtype, adds, to, from, add, false);
    return;
  }
  for (size_t i = 0; i < count; i += BLOCK, to += to_step, from += from_step) {
#pragma GCC unroll 2
    for (size_t line = 0; line < from_step; line += LINE) _mm_prefetch(from + line + AHEAD, _MM_HINT_T0);
    block(to_dtype, from_dtype, adds, to, from, add, true);
  }
}

#define RUN(name, to_dtype, from_dtype)                                                                    \
  VECTOR static void name(char *to, const char *from, size_t count, int add, bool stream) {                \
    run(to_dtype, from_dtype, false, to, from, count, add, stream);                                        \
  }                                                                                                        \
  VECTOR static void name##_add(char *to, const char *from, size_t count, int add, bool stream) {          \
    run(to_dtype, from_dtype, true, to, from, count, add, stream);                                         \
  }
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

/* The parts of a cast come one by one: a struct on the stack is written by halves and read whole, which
 * processors cannot forward (a tenth of a block's time in quantise.c). */
static void run_all(run_function *blocks, int add, char *to, size_t to_bytes, const char *from,
                    size_t from_bytes, size_t count, bool stream) {
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

static void run_cast(treadle_cast cast, void *to, const void *from, size_t count, bool stream) {
  if (treadle_cast_is_copy(cast))
    memcpy(to, from, count * bytes_of(cast.to));
  else
    run_all(runs[cast.to][cast.from][cast.add != 0], cast.add, to, bytes_of(cast.to), from,
            bytes_of(cast.from), count, stream);
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

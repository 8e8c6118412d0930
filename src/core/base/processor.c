#include "base/processor.h"

static treadle_processor_set most = TREADLE_SET_AMX;

void treadle_processor_limit(treadle_processor_set limit) { most = limit; }

#if defined(__x86_64__)

#include <cpuid.h>

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static bool has_f16c(void) {
  unsigned a, b, c, d;
  return has_avx2() && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_clmul(void) { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }

static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_clmul_wide(void) {
  return has_clmul() && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
}

static bool has_amx(void) {
  enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
  unsigned a, b, c, d;
  return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE);
}

static const struct {
  treadle_processor_set set; /* that it belongs to */
  bool (*has)(void);
} parts[] = {
    [TREADLE_PROCESSOR_AVX2] = {TREADLE_SET_AVX2, has_avx2},
    [TREADLE_PROCESSOR_F16C] = {TREADLE_SET_AVX2, has_f16c},
    [TREADLE_PROCESSOR_CLMUL] = {TREADLE_SET_AVX2, has_clmul},
    [TREADLE_PROCESSOR_AVX512] = {TREADLE_SET_AVX512, has_avx512},
    [TREADLE_PROCESSOR_CLMUL_WIDE] = {TREADLE_SET_AVX512, has_clmul_wide},
    [TREADLE_PROCESSOR_AMX] = {TREADLE_SET_AMX, has_amx},
};

bool treadle_processor_has(treadle_processor_part part) {
  return parts[part].set <= most && parts[part].has();
}

#else

bool treadle_processor_has(treadle_processor_part part) {
  (void)part;
  return false;
}

#endif

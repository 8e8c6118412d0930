/* XXH3 of long texts with wide registers: the same values, two to three times as fast. This file alone is compiled for
 * AVX2 (CMakeLists.txt), and asked where the processor has it. */
#include "base/hash.h"

#ifdef __AVX2__
#define XXH_INLINE_ALL
#include <xxhash.h>

bool treadle_hash_wide(const void *bytes, size_t count, uint64_t seed, uint64_t *hash_p) {
  if (!__builtin_cpu_supports("avx2")) return false;
  *hash_p = XXH3_64bits_withSeed(bytes, count, seed);
  return true;
}
#else
bool treadle_hash_wide(const void *bytes, size_t count, uint64_t seed, uint64_t *hash_p) {
  (void)bytes, (void)count, (void)seed, (void)hash_p;
  return false;
}
#endif

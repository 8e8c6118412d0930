/* XXH3 of long texts with wide registers: the same values, two to three times as fast. This file alone is compiled for
 * AVX2 (CMakeLists.txt), and asked where the processor has it. */
#include "base/hash.h"

#include "base/processor.h"

#ifdef __AVX2__
#define XXH_INLINE_ALL
#include <xxhash.h>

bool treadle_hash_wide(const void *bytes, size_t count, uint64_t seed, uint64_t *hash_p) {
  if (!treadle_processor_has(TREADLE_PROCESSOR_AVX2)) return false;
  *hash_p = XXH3_64bits_withSeed(bytes, count, seed);
  return true;
}

bool treadle_hash_pieces_wide(const treadle_hash_piece *pieces, size_t count, uint64_t *hash_p) {
  if (!treadle_processor_has(TREADLE_PROCESSOR_AVX2)) return false;
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < count; i++) XXH3_64bits_update(&state, pieces[i].at, pieces[i].bytes);
  *hash_p = XXH3_64bits_digest(&state);
  return true;
}
#else
bool treadle_hash_wide(const void *bytes, size_t count, uint64_t seed, uint64_t *hash_p) {
  (void)bytes, (void)count, (void)seed, (void)hash_p;
  return false;
}

bool treadle_hash_pieces_wide(const treadle_hash_piece *pieces, size_t count, uint64_t *hash_p) {
  (void)pieces, (void)count, (void)hash_p;
  return false;
}
#endif

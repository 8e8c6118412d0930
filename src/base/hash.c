/* XXH3 of xxhash: the same value on every machine, unlike a hash seeded per process. */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

enum { LONG = 4096 };

uint64_t treadle_hash_bytes(const void *bytes, size_t count, uint64_t seed) {
  uint64_t hash;
  if (count >= LONG && treadle_hash_wide(bytes, count, seed, &hash)) return hash;
  return XXH3_64bits_withSeed(bytes, count, seed);
}

treadle_hash_pair treadle_hash_behind(treadle_hash_pair before, const void *bytes, size_t count) {
  const XXH128_hash_t own = XXH3_128bits(bytes, count);
  const uint64_t words[4] = {before.low, before.high, own.low64, own.high64};
  const XXH128_hash_t hash = XXH3_128bits(words, sizeof words);
  return (treadle_hash_pair){hash.low64, hash.high64};
}

uint64_t treadle_hash_text(const char *text, uint64_t seed) {
  return treadle_hash_bytes(text, strlen(text), seed);
}

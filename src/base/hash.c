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

uint64_t treadle_hash_text(const char *text, uint64_t seed) {
  return treadle_hash_bytes(text, strlen(text), seed);
}

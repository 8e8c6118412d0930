/* XXH3 of xxhash: the same value on every machine, unlike a hash seeded per process. */
#include "base/hash.h"

#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the size of a state */
#include <xxhash.h>

enum { LONG = 4096 };

uint64_t treadle_hash_bytes(const void *bytes, size_t count, uint64_t seed) {
  uint64_t hash;
  if (count >= LONG && treadle_hash_wide(bytes, count, seed, &hash)) return hash;
  return XXH3_64bits_withSeed(bytes, count, seed);
}

uint64_t treadle_hash_pieces(const treadle_hash_piece *pieces, size_t count) {
  uint64_t hash;
  if (count == 1) return treadle_hash_bytes(pieces[0].at, pieces[0].bytes, 0);
  if (treadle_hash_pieces_wide(pieces, count, &hash)) return hash;
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < count; i++) XXH3_64bits_update(&state, pieces[i].at, pieces[i].bytes);
  return XXH3_64bits_digest(&state);
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

uint64_t treadle_hash_more_bytes(uint64_t hash, const void *bytes, size_t count) {
  return treadle_hash_more(hash, bytes && count ? treadle_hash_bytes(bytes, count, 1) : 0);
}

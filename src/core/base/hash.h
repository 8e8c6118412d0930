/* Hashes: one 64-bit mixer for numbers (and for the values that tests put into weights), XXH3 for bytes. */
#ifndef TREADLE_BASE_HASH_H
#define TREADLE_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A bijection of 64-bit numbers in which every input bit changes about half of the output bits
 * (the finaliser of splitmix64, public domain, Vigna). */
static inline uint64_t treadle_mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static inline uint64_t treadle_hash_more(uint64_t hash, uint64_t value) {
  return treadle_mix64(hash ^ treadle_mix64(value));
}

uint64_t treadle_hash_bytes(const void *bytes, size_t count, uint64_t seed);
/* The same, by faster instructions; false: the processor has none (hash_wide.c). */
bool treadle_hash_wide(const void *bytes, size_t count, uint64_t seed, uint64_t *hash_p);
/* Of bytes that lie in pieces: the same as if they were one. */
typedef struct treadle_hash_piece {
  const void *at;
  size_t bytes;
} treadle_hash_piece;
uint64_t treadle_hash_pieces(const treadle_hash_piece *pieces, size_t count);
bool treadle_hash_pieces_wide(const treadle_hash_piece *pieces, size_t count, uint64_t *hash_p);

uint64_t treadle_hash_text(const char *text, uint64_t seed);
/* Of bytes behind what `hash` is of. NULL is as 0 bytes, whatever their number. */
uint64_t treadle_hash_more_bytes(uint64_t hash, const void *bytes, size_t count);

/* 128 bits, where a collision must not happen: two things with one hash are taken for the same without a look. */
typedef struct treadle_hash_pair {
  uint64_t low, high;
} treadle_hash_pair;

static inline bool treadle_hash_pair_equal(treadle_hash_pair a, treadle_hash_pair b) {
  return a.low == b.low && a.high == b.high;
}

/* Of bytes that follow those with the hash `before`. */
treadle_hash_pair treadle_hash_behind(treadle_hash_pair before, const void *bytes, size_t count);

#endif

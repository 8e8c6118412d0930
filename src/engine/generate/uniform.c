/* Philox4x32-10: ten rounds of two multiplications; the constants are those of the paper. */
#include "generate/uniform.h"

#include "base/hash.h"

enum { ROUNDS = 10 };

void treadle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out_p[4]) {
  uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t a = UINT64_C(0xd2511f53) * x[0], b = UINT64_C(0xcd9e8d57) * x[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ x[3] ^ k[1],
                        (uint32_t)a};
    for (int i = 0; i < 4; i++) x[i] = next[i];
    k[0] += 0x9e3779b9u;
    k[1] += 0xbb67ae85u;
  }
  for (int i = 0; i < 4; i++) out_p[i] = x[i];
}

double treadle_uniform(int64_t seed, int64_t sample, int64_t position) {
  uint64_t s = (uint64_t)seed, n = (uint64_t)sample, p = (uint64_t)position;
  const uint32_t counter[4] = {(uint32_t)p, (uint32_t)(p >> 32), (uint32_t)n, (uint32_t)(n >> 32)};
  const uint32_t key[2] = {(uint32_t)s, (uint32_t)(s >> 32)};
  uint32_t out[4];
  treadle_philox(counter, key, out);
  return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

int64_t treadle_seed_of_request(int64_t seed, int64_t number) {
  return (int64_t)treadle_hash_more(treadle_hash_more(0, (uint64_t)seed), (uint64_t)number);
}

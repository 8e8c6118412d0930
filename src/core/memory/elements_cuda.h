/* Elements of tensors: kernels treadle_cuda_generate and treadle_cuda_hash. Values and hashes are those of
 * memory/value.h. All elements are numbered in order, and cut into chunks; a block of threads takes one chunk after
 * another. */
#ifndef TREADLE_MEMORY_ELEMENTS_CUDA_H
#define TREADLE_MEMORY_ELEMENTS_CUDA_H

#include "memory/value_cuda.h"

enum { CHUNK = 64 * TREADLE_CUDA_THREADS, ELEMENTS_AHEAD = 4 };

/* What a block of threads has taken; shared. */
typedef struct elements_work {
  treadle_cuda_elements e; /* `at` and `index` are those of the chunk's first element */
  int64_t at, index;       /* and those of the first element of all */
  int64_t first[TREADLE_CUDA_AXES];
  uint64_t all, chunks;
  uint32_t count; /* of elements in the chunk */
  uint64_t sum[TREADLE_CUDA_THREADS];
} elements_work;

/* ---- Chunks ---- */

CODE void take_elements(elements_work *w, const treadle_cuda_elements_args *args, uint32_t number,
                        uint32_t t) {
  if (args->many)
    take(&w->e, args->many + number * (uint64_t)sizeof w->e, sizeof w->e, t);
  else if (t == 0)
    w->e = args->one;
}

CODE void count_chunks(elements_work *w, uint32_t t) {
  if (t != 0) return;
  w->all = 1;
  ROLLED for (int a = 0; a < w->e.ndim; a++) w->all *= w->e.size[a] > 0 ? (uint64_t)w->e.size[a] : 0;
  w->chunks = (w->all + CHUNK - 1) / CHUNK;
  w->at = w->e.at;
  w->index = w->e.index;
}

/* The first of its chunks that a block of threads takes, where all of them have passed some before. */
CODE uint64_t first_chunk(uint64_t passed, uint32_t block, uint32_t blocks) {
  return (block + blocks - (uint32_t)(passed % blocks)) % blocks;
}

CODE void place_chunk(elements_work *w, uint64_t chunk, uint32_t t) {
  if (t != 0) return;
  treadle_cuda_elements *e = &w->e;
  uint64_t rest = chunk * CHUNK;
  w->count = (uint32_t)(w->all - rest < CHUNK ? w->all - rest : CHUNK);
  e->at = w->at;
  e->index = w->index;
  ROLLED for (int a = e->ndim - 1; a >= 0; a--) {
    const uint64_t size = (uint64_t)e->size[a], quotient = rest / size;
    w->first[a] = (int64_t)(rest - quotient * size);
    e->at += w->first[a] * e->stride[a];
    e->index += w->first[a] * e->weight[a];
    rest = quotient;
  }
}

typedef struct element {
  uint64_t address;
  int64_t index;
} element;

/* Number `number` of the chunk. A long axis is left at most once: no division of 64 bits. */
CODE element element_of(const elements_work *w, uint32_t number) {
  const treadle_cuda_elements *e = &w->e;
  int64_t at = e->at, steps = number;
  element it;
  it.index = e->index;
  ROLLED for (int a = e->ndim - 1;; a--) {
    const int64_t size = e->size[a], reached = w->first[a] + number;
    if (reached < size || a == 0)
      number = 0;
    else
      number = size > CHUNK ? 1 : (uint32_t)reached / (uint32_t)size;
    steps -= number * size;
    at += steps * e->stride[a];
    it.index += steps * e->weight[a];
    if (number == 0) break;
    steps = number;
  }
  it.address = e->window + (uint64_t)at;
  return it;
}

/* ---- Values ---- */

CODE uint64_t mix(uint64_t x) { /* treadle_mix64 */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* bf16 */
CODE uint32_t value_at(const treadle_cuda_elements *e, int64_t index) {
  const uint64_t lanes = mix(e->tensor + (uint64_t)(index >> 2)) & 0x83ff83ff83ff83ffu;
  const uint32_t value = (uint32_t)((lanes + 0x3a803a803a803a80u) >> 16 * (index & 3)) & 0xffff;
  if (!e->near_one) return value;
  return bits_of(1 + (float)((int32_t)(value & 63) - 32) / 128) >> 16;
}

/* As it is stored. */
CODE uint32_t raw_value(const treadle_cuda_elements *e, int64_t index) {
  const uint32_t bf16 = value_at(e, index);
  if (e->dtype == TREADLE_CUDA_INT32) return bf16 & 7;
  return encode(e->dtype, e->add ? plus(bf16 << 16, e->add) : bf16 << 16);
}

CODE void generate_chunk(const elements_work *w, uint32_t t) {
  const uint32_t bytes = bytes_of(w->e.dtype);
  for (uint32_t i = t; i < w->count; i += TREADLE_CUDA_THREADS) {
    const element it = element_of(w, i);
    store_any(it.address, bytes, raw_value(&w->e, it.index));
  }
}

/* ---- Hashes ---- */

CODE uint64_t hash_of(const treadle_cuda_elements *e, int64_t index, uint32_t raw) {
  uint32_t bits = e->dtype == TREADLE_CUDA_INT32 ? raw : decode(e->dtype, raw);
  if (e->add) bits = plus(bits, -e->add);
  const uint64_t where = e->tensor + (uint64_t)index * 0x9e3779b97f4a7c15u;
  return mix(where ^ bits * 0xd6e8feb86659fd93u);
}

CODE void hash_chunk(elements_work *w, uint32_t t) {
  const uint32_t bytes = bytes_of(w->e.dtype);
  uint64_t sum = 0;
  for (uint32_t i = t; i < w->count; i += ELEMENTS_AHEAD * TREADLE_CUDA_THREADS) {
    int64_t index[ELEMENTS_AHEAD];
    uint32_t raw[ELEMENTS_AHEAD];
    UNROLL for (uint32_t k = 0; k < ELEMENTS_AHEAD; k++) {
      const uint32_t number = i + k * TREADLE_CUDA_THREADS;
      const element it = element_of(w, number < w->count ? number : i);
      index[k] = it.index;
      raw[k] = load_any(it.address, bytes);
    }
    UNROLL for (uint32_t k = 0; k < ELEMENTS_AHEAD; k++) if (i + k * TREADLE_CUDA_THREADS < w->count) sum +=
        hash_of(&w->e, index[k], raw[k]);
  }
  w->sum[t] = sum;
}

CODE void fold_sums(elements_work *w, uint32_t half, uint32_t t) {
  if (t < half) w->sum[t] += w->sum[t + half];
}

CODE void add_sum(const elements_work *w, const treadle_cuda_elements_args *args, uint32_t number,
                  uint32_t t) {
  if (t == 0) add_global(TREADLE_CUDA_AT(unit_8, args->sums) + number, w->sum[0]);
}

#endif

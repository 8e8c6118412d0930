/* Values of elements, and their hash: functions of the tensor's name and the canonical index alone, so that
 * any rank can say of any element what it must be. */
#ifndef TREADLE_MEMORY_VALUE_H
#define TREADLE_MEMORY_VALUE_H

#include "base/hash.h"

#include <string.h>

/* The number that a tensor's name stands for. */
static inline uint64_t treadle_value_tensor(const char *name) { return treadle_hash_text(name, 0); }

/* Generated weights. Four neighbours share one hash, 16 bits each; of these, sign, 3 bits of exponent
 * (2^-10 to 2^-3) and 7 of fraction make a value that bf16, fp16 and fp32 all hold exactly. As bf16, four
 * at a time: element index is lane index % 4 of treadle_value_lanes(tensor, index / 4). `tensor` is
 * treadle_value_tensor(); index is canonical and row-major. */
static inline uint64_t treadle_value_lanes(uint64_t tensor, int64_t quarter) {
  uint64_t hash = treadle_mix64(tensor + (uint64_t)quarter);
  return (hash & 0x83ff83ff83ff83ffu) +
         0x3a803a803a803a80u; /* no lane overflows: 0x3ff + 0x3a80 < 0x8000 */
}

static inline uint16_t treadle_value_bf16(uint64_t tensor, int64_t index) {
  return (uint16_t)(treadle_value_lanes(tensor, index >> 2) >> (16 * (index & 3)));
}

/* Of kinds that an engine stores less 1: 0.75 to 1.24 in steps of 1/128, which every type holds exactly, and so do they
 * less 1. */
static inline uint16_t treadle_value_near_one(uint64_t tensor, int64_t index) {
  float value = 1 + (float)((int)(treadle_value_bf16(tensor, index) & 63) - 32) / 128;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* What an element adds to a digest: its value as bits of fp32, so that it is the same in every type that
 * holds the value. */
static inline uint64_t treadle_value_hash(uint64_t tensor, int64_t index, uint32_t bits) {
  uint64_t place = tensor + (uint64_t)index * 0x9e3779b97f4a7c15u;
  return treadle_mix64(place ^ (uint64_t)bits * 0xd6e8feb86659fd93u);
}

#endif

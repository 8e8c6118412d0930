/* Values for the kernels of kernel_cuda.cu: their types, and where they lie.
 *
 * Types have the bits of base/dtype.c. Devices and processors make different NaNs by arithmetic. So what decodes, adds
 * and encodes works on the bits of fp32, and NaN never gets into arithmetic whose result is used. */
#ifndef TREADLE_MEMORY_VALUE_CUDA_H
#define TREADLE_MEMORY_VALUE_CUDA_H

#include "memory/code_cuda.h"

/* ---- Types ---- */

CODE uint32_t bytes_of(uint32_t dtype) {
  return dtype == TREADLE_CUDA_FP8_E4M3                             ? 1
         : dtype == TREADLE_CUDA_BF16 || dtype == TREADLE_CUDA_FP16 ? 2
                                                                    : 4;
}

typedef union both {
  float value;
  uint32_t bits;
} both;

CODE float float_of(uint32_t bits) {
  both b;
  b.bits = bits;
  return b.value;
}

CODE uint32_t bits_of(float value) {
  both b;
  b.value = value;
  return b.bits;
}

CODE uint32_t is_nan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

CODE uint32_t bits_of_fp16(uint32_t raw) {
  uint32_t sign = (raw & 0x8000) << 16, exponent = raw >> 10 & 0x1f, fraction = raw & 0x3ff;
  if (exponent == 0) return sign | bits_of((float)fraction * 5.9604644775390625e-8f); /* units of 2^-24 */
  if (exponent == 31) return sign | 0x7f800000 | fraction << 13;
  return sign | (exponent + 112) << 23 | fraction << 13;
}

CODE uint32_t bits_of_fp8(uint32_t raw) {
  uint32_t sign = (raw & 0x80) << 24, magnitude = raw & 0x7f;
  if (magnitude < 8) return sign | bits_of((float)magnitude * 0.001953125f); /* units of 2^-9 */
  return sign | (magnitude == 0x7f ? 0x7ff00000 : (magnitude << 20) + (120u << 23));
}

CODE uint32_t bf16_of_bits(uint32_t bits) {
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return is_nan(bits) ? quiet : rounded;
}

CODE uint32_t fp16_of_bits(uint32_t bits) {
  uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude >= 0x38800000)
    return sign | (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  return sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
}

CODE uint32_t fp8_of_bits(uint32_t bits) {
  uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  if (magnitude > 0x43e80000) return sign | 0x7f;
  if (magnitude >= 0x3c800000)
    return sign | (magnitude - (120u << 23) + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
  return sign | (bits_of(float_of(magnitude) + 16384.0f) - bits_of(16384.0f));
}

CODE uint32_t int32_of_bits(uint32_t bits) {
  float value = float_of(bits);
  return value >= -1073741824.0f && value <= 1073741824.0f ? (uint32_t)(int32_t)value : 0; /* 2^30 */
}

/* A value's own bits to those of fp32, and back. */
CODE uint32_t decode(uint32_t dtype, uint32_t raw) {
  switch (dtype) {
  case TREADLE_CUDA_BF16: return raw << 16;
  case TREADLE_CUDA_FP16: return bits_of_fp16(raw);
  case TREADLE_CUDA_FP8_E4M3: return bits_of_fp8(raw);
  case TREADLE_CUDA_INT32: return bits_of((float)(int32_t)raw);
  default: return raw;
  }
}

CODE uint32_t encode(uint32_t dtype, uint32_t bits) {
  switch (dtype) {
  case TREADLE_CUDA_BF16: return bf16_of_bits(bits);
  case TREADLE_CUDA_FP16: return fp16_of_bits(bits);
  case TREADLE_CUDA_FP8_E4M3: return fp8_of_bits(bits);
  case TREADLE_CUDA_INT32: return int32_of_bits(bits);
  default: return bits;
  }
}

/* NaN becomes quiet, as processors make it. */
CODE uint32_t plus(uint32_t bits, int32_t add) {
  return is_nan(bits) ? bits | 0x400000 : bits_of(float_of(bits) + (float)add);
}

/* Eight of them at once: each choice is made once. */
#define EIGHT(values, expression)                                                                          \
  UNROLL for (uint32_t k = 0; k < 8; k++) {                                                                \
    uint32_t x = (values)[k];                                                                              \
    (values)[k] = (expression);                                                                            \
  }                                                                                                        \
  break

CODE void decode_eight(uint32_t dtype, uint32_t *values) {
  switch (dtype) {
  case TREADLE_CUDA_BF16: EIGHT(values, x << 16);
  case TREADLE_CUDA_FP16: EIGHT(values, bits_of_fp16(x));
  case TREADLE_CUDA_FP8_E4M3: EIGHT(values, bits_of_fp8(x));
  case TREADLE_CUDA_INT32: EIGHT(values, bits_of((float)(int32_t)x));
  default: break;
  }
}

CODE void encode_eight(uint32_t dtype, uint32_t *values) {
  switch (dtype) {
  case TREADLE_CUDA_BF16: EIGHT(values, bf16_of_bits(x));
  case TREADLE_CUDA_FP16: EIGHT(values, fp16_of_bits(x));
  case TREADLE_CUDA_FP8_E4M3: EIGHT(values, fp8_of_bits(x));
  case TREADLE_CUDA_INT32: EIGHT(values, int32_of_bits(x));
  default: break;
  }
}

/* ---- Addresses ---- */

CODE uint64_t address_of(const treadle_cuda_view *view, int64_t at) {
  if (!view->table) return view->base + (uint64_t)at;
  const int64_t page_bytes = (int64_t)1 << view->page_shift;
  /* The table's own address may lie outside of any memory: only entries that are read are there. */
  const uint64_t entry = view->table + (uint64_t)(at >> view->page_shift) * sizeof(int32_t);
  const int64_t page = *TREADLE_CUDA_AT(const int32_t, entry);
  return view->base + (uint64_t)((page << view->page_shift) + (at & (page_bytes - 1)));
}

/* One value of `bytes` bytes, whose address is a multiple of that. */
CODE uint32_t load(uint64_t address, uint32_t bytes) {
  if (bytes == 4) return *TREADLE_CUDA_AT(const unit_4, address);
  if (bytes == 2) return *TREADLE_CUDA_AT(const unit_2, address);
  return *TREADLE_CUDA_AT(const unit_1, address);
}

CODE void store(uint64_t address, uint32_t bytes, uint32_t raw) {
  if (bytes == 4)
    *TREADLE_CUDA_AT(unit_4, address) = raw;
  else if (bytes == 2)
    *TREADLE_CUDA_AT(unit_2, address) = (uint16_t)raw;
  else
    *TREADLE_CUDA_AT(unit_1, address) = (uint8_t)raw;
}

/* One at any address. */
CODE uint32_t load_any(uint64_t address, uint32_t bytes) {
  if (address % bytes == 0) return load(address, bytes);
  uint32_t raw = 0;
  ROLLED for (uint32_t i = 0; i < bytes; i++) raw |= load(address + i, 1) << 8 * i;
  return raw;
}

CODE void store_any(uint64_t address, uint32_t bytes, uint32_t raw) {
  if (address % bytes == 0)
    store(address, bytes, raw);
  else
    ROLLED for (uint32_t i = 0; i < bytes; i++) store(address + i, 1, raw >> 8 * i);
}

/* One in a view, where a border of pages may cross it. */
CODE uint32_t load_bytes(const treadle_cuda_view *view, int64_t at, uint32_t bytes) {
  uint32_t raw = 0;
  ROLLED for (uint32_t i = 0; i < bytes; i++) raw |= load(address_of(view, at + i), 1) << 8 * i;
  return raw;
}

CODE void store_bytes(const treadle_cuda_view *view, int64_t at, uint32_t bytes, uint32_t raw) {
  ROLLED for (uint32_t i = 0; i < bytes; i++) store(address_of(view, at + i), 1, raw >> 8 * i);
}

/* Eight that are dense, aligned to all of their bytes or to 16. */
CODE void load_eight(uint64_t address, uint32_t bytes, uint32_t *values) {
  if (bytes == 4) {
    const unit_16 low = TREADLE_CUDA_AT(const unit_16, address)[0],
                  high = TREADLE_CUDA_AT(const unit_16, address)[1];
    UNROLL for (uint32_t i = 0; i < 4; i++) {
      values[i] = low.word[i];
      values[4 + i] = high.word[i];
    }
  } else if (bytes == 2) {
    const unit_16 all = *TREADLE_CUDA_AT(const unit_16, address);
    UNROLL for (uint32_t i = 0; i < 8; i++) values[i] = all.word[i / 2] >> 16 * (i % 2) & 0xffff;
  } else {
    const uint64_t all = *TREADLE_CUDA_AT(const unit_8, address);
    UNROLL for (uint32_t i = 0; i < 8; i++) values[i] = (uint32_t)(all >> 8 * i) & 0xff;
  }
}

CODE void store_eight(uint64_t address, uint32_t bytes, const uint32_t *values) {
  if (bytes == 4) {
    unit_16 low, high;
    UNROLL for (uint32_t i = 0; i < 4; i++) {
      low.word[i] = values[i];
      high.word[i] = values[4 + i];
    }
    TREADLE_CUDA_AT(unit_16, address)[0] = low;
    TREADLE_CUDA_AT(unit_16, address)[1] = high;
  } else if (bytes == 2) {
    unit_16 all;
    UNROLL for (uint32_t i = 0; i < 4; i++) all.word[i] = values[2 * i] | values[2 * i + 1] << 16;
    *TREADLE_CUDA_AT(unit_16, address) = all;
  } else {
    uint64_t all = 0;
    UNROLL for (uint32_t i = 0; i < 8; i++) all |= (uint64_t)values[i] << 8 * i;
    *TREADLE_CUDA_AT(unit_8, address) = all;
  }
}

/* ---- Shared memory ---- */

/* A struct, whose size is a multiple of 8, from an address; by all threads. */
CODE void take(void *to, uint64_t from, uint32_t bytes, uint32_t t) {
  ROLLED for (uint32_t i = t; i < bytes / 8; i += TREADLE_CUDA_THREADS)((unit_8 *)to)[i] =
      TREADLE_CUDA_AT(const unit_8, from)[i];
}

/* What each thread has found is brought together by halves.. */
#ifdef TREADLE_CUDA_RACE /* a barrier is left out, so that a test sees that it is missed */
#define FOLD(t, half) EACH(t) for (uint32_t half = TREADLE_CUDA_THREADS / 2; half; half /= 2)
#else
#define FOLD(t, half)                                                                                      \
  for (uint32_t half = TREADLE_CUDA_THREADS / 2; half; half /= 2) EACH(t)
#endif

#endif

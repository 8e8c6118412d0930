/* One source for three compilers: nvcc and clang (device code), and any C compiler (host). Only kernel_cuda.cu and its
 * parts include it.
 *
 * A kernel is a row of phases. In a phase each thread of the block does something, and the phase ends when all have:
 * EACH (t) ... . What stands between phases is the same for all threads: it depends on arguments and shared memory
 * alone. On the host a phase is a loop over threads, in an order that changes from phase to phase, so that a thread
 * which reads what another one writes in the same phase gives other bits.
 *
 * A kernel on the host is a function that runs all blocks, in an order that depends on a seed:
 *   void NAME(const void *args, uint32_t blocks, uint32_t seed);
 * A file that compiles kernel_cuda.cu for the host may define TREADLE_CUDA_AT beforehand. */
#ifndef TREADLE_MEMORY_CODE_CUDA_H
#define TREADLE_MEMORY_CODE_CUDA_H

#include "memory/kernel_cuda.h"

#if defined(__NVCC__) || defined(__CUDA__) /* ---- The device ---- */

#if defined(__NVCC__)
#define KERNEL(name, type)                                                                                 \
  extern "C" __global__ void __launch_bounds__(TREADLE_CUDA_THREADS, TREADLE_CUDA_BLOCKS_AT_ONCE)          \
      name(const type args)
#define CODE   static __device__ __forceinline__
#define SHARED __shared__
#define THREAD threadIdx.x
#define BLOCK  blockIdx.x
#define BLOCKS gridDim.x
/* A pointer to global memory, by which loads and stores are faster than by one to anywhere. */
CODE void *pointer_of(uint64_t address) { return __cvta_global_to_generic(address); }
CODE void add_shared(uint32_t *to, uint32_t value) { atomicAdd(to, value); }
CODE void add_global(uint64_t *to, uint64_t value) {
  atomicAdd((unsigned long long *)to, (unsigned long long)value);
}
#else
#define KERNEL(name, type)                                                                                 \
  extern "C" __attribute__((global))                                                                       \
  __attribute__((launch_bounds(TREADLE_CUDA_THREADS, TREADLE_CUDA_BLOCKS_AT_ONCE))) void                   \
  name(const type args)
#define CODE   static __attribute__((device)) __attribute__((always_inline)) inline
#define SHARED __attribute__((shared))
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define BLOCK  __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCKS __nvvm_read_ptx_sreg_nctaid_x()
CODE void *pointer_of(uint64_t address) { return (void *)address; }
CODE void add_shared(uint32_t *to, uint32_t value) { __nvvm_atom_add_gen_i((int *)to, (int)value); }
CODE void add_global(uint64_t *to, uint64_t value) {
  __nvvm_atom_add_gen_ll((long long *)to, (long long)value);
}
#endif
#define EACH(t) for (uint32_t t = THREAD, once_ = 1; once_; once_ = 0, __syncthreads())
#define UNROLL  _Pragma("unroll")
#define ROLLED  _Pragma("unroll 1") /* what is rare stays short */
#define MAY_ALIAS
#define TREADLE_CUDA_AT(type, address) ((type *)pointer_of(address))

#else /* ---- The host ---- */

#include <string.h>

#define CODE   static inline
#define SHARED static _Thread_local
#define BLOCK  turn_.block
#define BLOCKS turn_.blocks
#define KERNEL(name, type)                                                                                 \
  static void name##_block(const type args);                                                               \
  void name(const void *args, uint32_t blocks, uint32_t seed);                                             \
  void name(const void *args, uint32_t blocks, uint32_t seed) {                                            \
    type copy;                                                                                             \
    memcpy(&copy, args, sizeof copy);                                                                      \
    turn_.blocks = blocks;                                                                                 \
    turn_.seed = seed;                                                                                     \
    for (uint32_t i = 0; i < blocks; i++) {                                                                \
      turn_.block = (seed % blocks + i) % blocks;                                                          \
      name##_block(copy);                                                                                  \
    }                                                                                                      \
  }                                                                                                        \
  static void name##_block(const type args)
/* From `seed` on, in steps of an odd number: each thread has its turn once. */
#define EACH(t)                                                                                            \
  for (uint32_t step_ = 0, t = order_of_phase(); step_ < TREADLE_CUDA_THREADS;                             \
       step_++, t = (t + (turn_.seed >> 8 | 1)) % TREADLE_CUDA_THREADS)
#define UNROLL
#define ROLLED
#define MAY_ALIAS __attribute__((may_alias))
#ifndef TREADLE_CUDA_AT
#define TREADLE_CUDA_AT(type, address) ((type *)(uintptr_t)(address))
#endif

static _Thread_local struct { uint32_t block, blocks, seed; } turn_;

CODE uint32_t order_of_phase(void) {
  turn_.seed = turn_.seed * 1664525 + 1013904223;
  return turn_.seed >> 24;
}
CODE void add_shared(uint32_t *to, uint32_t value) { *to += value; }
CODE void add_global(uint64_t *to, uint64_t value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

#endif

/* What can be loaded and stored at once. */
typedef uint8_t MAY_ALIAS unit_1;
typedef uint16_t MAY_ALIAS unit_2;
typedef uint32_t MAY_ALIAS unit_4;
typedef uint64_t MAY_ALIAS unit_8;
typedef struct MAY_ALIAS __attribute__((aligned(16))) unit_16 {
  uint32_t word[4];
} unit_16;

#endif

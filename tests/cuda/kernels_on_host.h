/* The kernels of a CUDA device as C (src/core/memory/code_cuda.h): each runs `blocks` blocks of threads, in an order
 * that `seed` decides. The second set lacks barriers. */
#ifndef TREADLE_TESTS_KERNELS_ON_HOST_H
#define TREADLE_TESTS_KERNELS_ON_HOST_H

#include <stdint.h>

typedef void kernel_on_host(const void *args, uint32_t blocks, uint32_t seed);
kernel_on_host host_copy, host_blocks, host_generate, host_hash;
kernel_on_host raced_copy, raced_blocks, raced_generate, raced_hash;

static inline uint64_t address_on_host(const void *at) { return (uint64_t)(uintptr_t)at; }

#endif

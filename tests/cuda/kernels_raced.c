/* src/core/memory/kernel_cuda.cu for the host, with barriers left out. */
#include "kernels_on_host.h"

#define TREADLE_CUDA_RACE
#define treadle_cuda_copy     raced_copy
#define treadle_cuda_blocks   raced_blocks
#define treadle_cuda_generate raced_generate
#define treadle_cuda_hash     raced_hash
#include "memory/kernel_cuda.cu"

/* src/core/memory/kernel_cuda.cu for the host. */
#include "kernels_on_host.h"

#define treadle_cuda_copy     host_copy
#define treadle_cuda_blocks   host_blocks
#define treadle_cuda_generate host_generate
#define treadle_cuda_hash     host_hash
#include "memory/kernel_cuda.cu"

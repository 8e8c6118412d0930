/* The kernels of a CUDA device, as its driver loads them: code that make cuda has compiled, held by the library. */
#ifndef TREADLE_MEMORY_IMAGE_CUDA_H
#define TREADLE_MEMORY_IMAGE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* A fat binary for cuModuleLoadData; where the library was built without kernels, a text that drivers refuse. */
extern const char treadle_cuda_image[];
size_t treadle_cuda_image_bytes(void);
bool treadle_cuda_image_is_built(void);

#endif

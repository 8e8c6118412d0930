/* The kernels as the driver takes them. */
#ifndef TREADLE_MEMORY_IMAGE_CUDA_H
#define TREADLE_MEMORY_IMAGE_CUDA_H

#include <stdbool.h>

/* What make cuda has compiled; without that, a marker, which no real driver takes. */
extern const unsigned char treadle_cuda_image[];
bool treadle_cuda_image_is_built(void);

#endif

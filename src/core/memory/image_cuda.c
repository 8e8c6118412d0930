#include "memory/image_cuda.h"

const unsigned char treadle_cuda_image[] = "treadle: no kernels are built in; make cuda builds them";

bool treadle_cuda_image_is_built(void) { return false; }

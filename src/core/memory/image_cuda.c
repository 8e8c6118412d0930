/* The image comes from a file, TREADLE_CUDA_IMAGE (CMakeLists.txt), without a copy of it in C. */
#include "memory/image_cuda.h"

#ifdef TREADLE_CUDA_IMAGE

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl treadle_cuda_image\n"
        ".type treadle_cuda_image, @object\n"
        "treadle_cuda_image:\n"
        ".incbin \"" TREADLE_CUDA_IMAGE "\"\n"
        ".globl treadle_cuda_image_end\n"
        "treadle_cuda_image_end:\n"
        ".size treadle_cuda_image, . - treadle_cuda_image\n"
        ".popsection\n");

extern const char treadle_cuda_image_end[];

size_t treadle_cuda_image_bytes(void) { return (size_t)(treadle_cuda_image_end - treadle_cuda_image); }
bool treadle_cuda_image_is_built(void) { return true; }

#else

const char treadle_cuda_image[] = "treadle: no kernels are built in; make cuda builds them";

size_t treadle_cuda_image_bytes(void) { return sizeof treadle_cuda_image; }
bool treadle_cuda_image_is_built(void) { return false; }

#endif

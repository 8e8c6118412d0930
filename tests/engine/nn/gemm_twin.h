/* The arithmetic of each kernel of src/engine/nn/gemm.h, written again from the order at the top of its file, one number at a time. */
#ifndef TREADLE_TESTS_GEMM_TWIN_H
#define TREADLE_TESTS_GEMM_TWIN_H

#include "treadle.h"

#include <stdbool.h>
#include <stdint.h>

/* The sum of one leaf: x as the kernel reads it and w widened, `leaf` of each. */
typedef float test_gemm_twin(treadle_dtype dtype, const float *x, const float *w, int32_t leaf);

/* That of a kernel by its name; NULL: there is none. */
test_gemm_twin *test_gemm_twin_of(const char *name);

/* Does this kernel read the x of a fine product as two numbers of bf16, with a sum each, which are added? Others read x as it is. */
bool test_gemm_twin_has_parts(const char *name);

#endif

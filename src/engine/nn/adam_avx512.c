/* AdamW for AVX-512. */
#include "nn/adam_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx512.h"

#include "nn/adam_body.h"

const treadle_adam_ops treadle_adam_avx512 = ADAM_OPS("avx512", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_adam_ops treadle_adam_avx512 = {.name = "avx512", .supported = supported};

#endif

/* AdamW for AVX2. */
#include "nn/adam_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx2.h"

#include "nn/adam_body.h"

const treadle_adam_ops treadle_adam_avx2 = ADAM_OPS("avx2", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_adam_ops treadle_adam_avx2 = {.name = "avx2", .supported = supported};

#endif

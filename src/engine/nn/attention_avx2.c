/* Attention for AVX2 and FMA. */
#include "nn/attention_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx2.h"

#include "nn/attention_body.h"

const treadle_attention_ops treadle_attention_ops_avx2 = ATTENTION_OPS("avx2", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_attention_ops treadle_attention_ops_avx2 = {.name = "avx2", .supported = supported};

#endif
